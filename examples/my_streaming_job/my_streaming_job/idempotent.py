"""Right: a micro-batch that comes again overwrites what it wrote before."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob


def totals(payments: DataFrame) -> DataFrame:
    """Count and add up the payments of each key."""
    return payments.groupBy("key").agg(sf.count("*").alias("payments"), sf.sum("value").alias("total"))


def overwrite(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write a directory for each micro-batch."""
    batch.write.mode("overwrite").parquet(f"{place.output}/batch_id={batch_id}")


job = StreamingJob(query=totals, sink=overwrite, output_mode="update", latest_by=("key",))
