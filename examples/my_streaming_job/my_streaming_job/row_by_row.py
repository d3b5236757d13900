"""Wrong: a task that runs again, for whatever reason, writes its rows again."""

import json
from collections.abc import Iterable

from pyspark.sql import DataFrame, Row

from barrier_tck.harness import QueryPlace, StreamingJob
from my_streaming_job.naive import doubled


def write_rows(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append row after row to a file."""

    def write(rows: Iterable[Row]) -> None:
        with open(place.output, "a", buffering=1) as file:
            file.writelines(json.dumps(row.asDict()) + "\n" for row in rows)

    batch.foreachPartition(write)


job = StreamingJob(query=doubled, sink=write_rows, read=lambda spark, place: spark.read.json(place.output))
