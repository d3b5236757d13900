"""Wrong: if the driver dies between the append and Spark's commit, the micro-batch is appended again."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob


def doubled(payments: DataFrame) -> DataFrame:
    """Double each payment."""
    return payments.select("id", (sf.col("value") * 2).alias("doubled"))


def append(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append to one directory."""
    batch.write.mode("append").parquet(place.output)


job = StreamingJob(query=doubled, sink=append)
