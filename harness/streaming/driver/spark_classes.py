"""Classes of Spark by release: since 4.0 those that work on a JVM of the same machine are in packages named classic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
else:
    try:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    except ModuleNotFoundError:
        from pyspark.sql import DataFrame as ClassicDataFrame

__all__ = ["ClassicDataFrame", "dataset_class"]


def dataset_class(spark: SparkSession) -> Any:
    """Return the JVM's class of what a DataFrame is there."""
    sql: Any = spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]  # noqa: SLF001
    later = sql.classic.Dataset
    # Py4J takes the name of what is not there for a package.
    return later if hasattr(later, "ofRows") else sql.Dataset
