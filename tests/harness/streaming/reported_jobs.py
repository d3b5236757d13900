"""Jobs as they were reported elsewhere, or as newcomers wrote them: right ones, and wrong ones beside them.

They are found by name, in processes that import this module.
"""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob
from barrier_tck.harness.streaming.stock_job import overwrite, totals

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BETWEEN = "between the two transactions"
"""A point of sinks that do their work in two of them."""
WITHIN = "within the transaction"
BETWEEN_TABLES = "between the tables"


def plain(rows: DataFrame) -> DataFrame:
    return rows.select("id", "value")


def appends(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    batch.write.mode("append").parquet(place.output)


# --- a sink that logs its errors and returns: Spark commits the micro-batch ---------------------------------------


def logs_errors(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    try:
        overwrite(batch, batch_id, place)
    except Exception:
        logging.getLogger("job").exception("micro-batch %s could not be written", batch_id)


errors_logged = StreamingJob(query=plain, sink=logs_errors)


# --- a thread pool that writes, and nobody waits for it -----------------------------------------------------------

_POOL = ThreadPoolExecutor(1)


def writes_in_background(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    rows, schema, spark = batch.collect(), batch.schema, batch.sparkSession
    _POOL.submit(lambda: overwrite(spark.createDataFrame(rows, schema).coalesce(1), batch_id, place))


def writes_in_background_and_waits(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    _POOL.submit(overwrite, batch, batch_id, place).result()


in_background = StreamingJob(query=plain, sink=writes_in_background)
awaited = StreamingJob(query=plain, sink=writes_in_background_and_waits)


# --- Spark's file sink read without its log of what is committed (SPARK-35565) --------------------------------------


def every_file(spark: SparkSession, place: QueryPlace) -> DataFrame:
    return spark.read.parquet(f"{place.output}/part-*")


without_log = StreamingJob(query=plain, sink="parquet", read=every_file)


# --- two tables, of which the second says whether a micro-batch was written ----------------------------------------


def for_two_tables(rows: DataFrame) -> DataFrame:
    return plain(rows).withColumn("table", sf.explode(sf.array(sf.lit("a"), sf.lit("b"))))


def _table(batch: DataFrame, name: str) -> DataFrame:
    return batch.where(sf.col("table") == name).drop("table")


def asks_the_second(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    second = f"{place.output}/b/batch={batch_id}"
    if not Path(second, "_SUCCESS").exists():
        _table(batch, "a").write.mode("append").parquet(f"{place.output}/a")
        _table(batch, "b").write.mode("overwrite").parquet(second)


def overwrites_both(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    _table(batch, "a").write.mode("overwrite").parquet(f"{place.output}/a/batch={batch_id}")
    place.point(BETWEEN_TABLES)
    _table(batch, "b").write.mode("overwrite").parquet(f"{place.output}/b/batch={batch_id}")


def both_tables(spark: SparkSession, place: QueryPlace) -> DataFrame:
    read = spark.read.option("recursiveFileLookup", "true")
    first, second = (
        read.parquet(f"{place.output}/{name}").select("id", "value", sf.lit(name).alias("table"))
        for name in ("a", "b")
    )
    return first.union(second)


two_tables = StreamingJob(
    query=for_two_tables, sink=overwrites_both, read=both_tables, points=(BETWEEN_TABLES,)
)
two_tables_asked = StreamingJob(query=for_two_tables, sink=asks_the_second, read=both_tables)


# --- SQLite: windows by key, a ledger of micro-batches, totals -------------------------------------------------------


def per_window(rows: DataFrame) -> DataFrame:
    windows = rows.withWatermark("at", "2 seconds").groupBy(sf.window("at", "4 seconds").alias("w"), "key")
    counted = windows.agg(sf.count("*").alias("n"), sf.sum("value").alias("total"))
    return counted.selectExpr("w.end AS until", "key", "n", "total")


def _database(place: QueryPlace) -> sqlite3.Connection:
    database = sqlite3.connect(place.output)
    database.execute(
        "CREATE TABLE IF NOT EXISTS t(until TEXT, key TEXT, n INT, total INT, PRIMARY KEY(until, key))"
    )
    database.execute("CREATE TABLE IF NOT EXISTS done(batch INT PRIMARY KEY)")
    return database


def _rows(batch: DataFrame) -> list[tuple[Any, ...]]:
    return [(str(row.until), row.key, row.n, row.total) for row in batch.collect()]


UPSERT = "INSERT OR REPLACE INTO t VALUES (?, ?, ?, ?)"
ADD = (
    "INSERT INTO t VALUES (?, ?, ?, ?) ON CONFLICT(until, key) DO UPDATE SET n = n + excluded.n, "
    "total = total + excluded.total"
)


def _executes(statement: str) -> Callable[[DataFrame, int, QueryPlace], None]:
    def write(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
        with _database(place) as database:
            database.executemany(statement, _rows(batch))

    return write


def _note(database: sqlite3.Connection, batch_id: int) -> bool:
    """Note a micro-batch; return whether it was noted before."""
    if database.execute("SELECT 1 FROM done WHERE batch = ?", (batch_id,)).fetchone():
        return True
    database.execute("INSERT INTO done VALUES (?)", (batch_id,))
    return False


def adds_once(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Note the micro-batch in the transaction that writes it."""
    rows = _rows(batch)
    with _database(place) as database:
        noted = _note(database, batch_id)
        place.point(WITHIN)
        if not noted:
            database.executemany(ADD, rows)


def notes_it_first(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Note the micro-batch in a transaction of its own."""
    rows = _rows(batch)
    with _database(place) as database:
        if _note(database, batch_id):
            return
    place.point(BETWEEN)
    with _database(place) as database:
        database.executemany(UPSERT, rows)


def notes_it_last(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write row after row in transactions of their own, and then note the micro-batch."""
    rows = _rows(batch)
    with _database(place) as database:
        if database.execute("SELECT 1 FROM done WHERE batch = ?", (batch_id,)).fetchone():
            return
    for row in rows:
        with _database(place) as database:
            database.execute(ADD, row)
    with _database(place) as database:
        _note(database, batch_id)


def of_database(spark: SparkSession, place: QueryPlace) -> DataFrame:
    rows = _database(place).execute("SELECT until, key, n, total FROM t").fetchall()
    table = spark.createDataFrame(rows, "until string, key string, n long, total long")
    return table.withColumn("until", sf.to_timestamp("until"))


def windows_into(sink: Callable[[DataFrame, int, QueryPlace], None], *points: str) -> StreamingJob:
    return StreamingJob(query=per_window, sink=sink, read=of_database, final_by="until", points=points)


upserted_windows = windows_into(_executes(UPSERT))
added_windows = windows_into(_executes(ADD))
windows_added_once = windows_into(adds_once, WITHIN)
windows_noted_first = windows_into(notes_it_first, BETWEEN)
windows_noted_last = windows_into(notes_it_last)


def sums(rows: DataFrame) -> DataFrame:
    """Count and add up by key; the column ``until`` is there for the table's sake."""
    return totals(rows).selectExpr("timestamp_seconds(0) AS until", "key", "count AS n", "sum AS total")


upserted_totals = StreamingJob(query=sums, sink=_executes(UPSERT), read=of_database, output_mode="update")
added_totals = StreamingJob(query=sums, sink=_executes(ADD), read=of_database, output_mode="update")


# --- windows of other kinds ----------------------------------------------------------------------------------------


def windows_of_windows(rows: DataFrame) -> DataFrame:
    """Count in windows, and in windows of those windows (SPARK-40925)."""
    timed = rows.withWatermark("at", "1 second")
    inner = timed.groupBy(sf.window("at", "2 seconds").alias("w"), "key").agg(sf.count("*").alias("n"))
    outer = inner.groupBy(sf.window(sf.window_time("w"), "4 seconds").alias("w"))
    return outer.agg(sf.sum("n").alias("n"), sf.count("*").alias("keys")).selectExpr(
        "w.end AS until", "n", "keys"
    )


def in_sessions(rows: DataFrame) -> DataFrame:
    sessions = rows.withWatermark("at", "1 second").groupBy(
        sf.session_window("at", "3 seconds").alias("s"), "key"
    )
    return sessions.agg(sf.count("*").alias("n")).selectExpr("s.end AS until", "key", "n")


nested_windows = StreamingJob(query=windows_of_windows, sink=overwrite, final_by="until")
nested_windows_appended = StreamingJob(query=windows_of_windows, sink=appends, final_by="until")
sessions = StreamingJob(query=in_sessions, sink=overwrite, final_by="until")
sessions_appended = StreamingJob(query=in_sessions, sink=appends, final_by="until")


# --- a query that its user starts, with a checkpoint directory of its own or one that each driver makes anew --------
# (SPARK-55058: the sink knows micro-batches by the id of the query, which is in the checkpoint directory)


def started(
    checkpoint_of: Callable[[QueryPlace], str],
) -> Callable[[SparkSession, QueryPlace], StreamingQuery]:
    def start(spark: SparkSession, place: QueryPlace) -> StreamingQuery:
        def write(batch: DataFrame, batch_id: int) -> None:
            query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            batch.write.mode("overwrite").parquet(f"{place.output}/{query}/{batch_id}")

        stream = spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(place.input)
        writer = plain(stream).writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", checkpoint_of(place)).trigger(availableNow=True).start()

    return start


def _new_directory(place: QueryPlace) -> str:
    return tempfile.mkdtemp(prefix="checkpoint-", dir=Path(place.input).parent)


def of_any_query(spark: SparkSession, place: QueryPlace) -> DataFrame:
    return spark.read.option("recursiveFileLookup", "true").parquet(place.output)


checkpoint_kept = StreamingJob(query=plain, start=started(lambda place: place.checkpoint), read=of_any_query)
checkpoint_lost = StreamingJob(query=plain, start=started(_new_directory), read=of_any_query)


# --- surrogate keys from a counter in the driver, which begins at 0 again with the next one --------------------------

_NEXT: dict[str, int] = {}


def numbers_rows(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    first = _NEXT.get(place.output, 0)
    row = sf.row_number().over(Window.orderBy("id"))
    batch.withColumn("row_key", sf.lit(first) + row).write.mode("overwrite").parquet(
        f"{place.output}/batch_id={batch_id}"
    )
    _NEXT[place.output] = first + batch.count()


def once_by_key(spark: SparkSession, place: QueryPlace) -> DataFrame:
    """Read the table as those do who take its key for one."""
    return spark.read.parquet(place.output).dropDuplicates(["row_key"]).select("id", "value")


numbered_in_memory = StreamingJob(query=plain, sink=numbers_rows, read=once_by_key)


# --- insert if absent, by a key that is drawn anew when a micro-batch comes again ------------------------------------


def inserts_absent(batch: DataFrame, batch_id: int, place: QueryPlace, key: str) -> None:
    new = batch.withColumn("row_key", sf.expr(key))
    if Path(place.output).exists():
        old = batch.sparkSession.read.parquet(place.output).select("row_key")
        new = new.join(old, "row_key", "left_anti")
    new.write.mode("append").parquet(place.output)


def by_random_key(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    inserts_absent(batch, batch_id, place, "uuid()")


def by_own_key(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    inserts_absent(batch, batch_id, place, "cast(id AS string)")


def without_key(spark: SparkSession, place: QueryPlace) -> DataFrame:
    return spark.read.parquet(place.output).drop("row_key")


inserted_by_id = StreamingJob(query=plain, sink=by_own_key, read=without_key)
inserted_by_uuid = StreamingJob(query=plain, sink=by_random_key, read=without_key)


# --- rows written one by one, with and without a file for each partition ---------------------------------------------


def file_for_each_partition(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write a file that is named for its partition, and put it in its place when it is whole."""
    from pyspark import TaskContext

    Path(place.output).mkdir(exist_ok=True)

    def write(rows: Iterable[Any]) -> None:
        context = TaskContext.get()
        assert context is not None
        name = f"{batch_id}-{context.partitionId()}"
        part = Path(place.output, f".{name}-{context.taskAttemptId()}")
        part.write_text("".join(f'{{"id": {row.id}, "value": {row.value}}}\n' for row in rows))
        part.rename(Path(place.output, name))

    batch.foreachPartition(write)


def of_lines(spark: SparkSession, place: QueryPlace) -> DataFrame:
    return spark.read.schema("id LONG, value LONG").json(place.output)


one_file_a_partition = StreamingJob(query=plain, sink=file_for_each_partition, read=of_lines)
