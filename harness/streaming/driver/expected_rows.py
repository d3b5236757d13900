"""What a query must have committed: its function as a batch, less what the watermark still holds back.

Where rows were late, or a query is none that Spark runs as a batch, an undisturbed run of the same micro-batches tells.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from barrier_tck.harness.record.query_times import (
    LateInput,
    Reference,
    RowsDue,
    WatermarkComparison,
    WatermarkDifference,
)
from barrier_tck.harness.streaming.driver.input_rows import rendered
from barrier_tck.harness.streaming.driver.late_input import (
    ObservedWatermarks,
    observed_input,
    observed_watermarks,
    watermark_of_files,
)
from barrier_tck.harness.streaming.driver.micro_batches import (
    NotNoted,
    last_watermark_ms,
    noted_batches,
    one_file_each,
)
from barrier_tck.harness.streaming.driver.query_plan import QueryPlan, delay_ms
from barrier_tck.harness.streaming.driver.undisturbed import OF_BATCH, UndisturbedRun, undisturbed_run
from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace, Upserts

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_SEQUENCE, _DELETED, _TIMES = "barrier_tck_sequence", "barrier_tck_deleted", "barrier_tck_times"
"""Columns that no query has."""
_EXAMPLES = 5
_MICRO_BATCHES = "micro-batches"
"""A directory beside the query's own."""


@dataclass(frozen=True)
class ExpectedRows:
    """Two multisets of rows, and how they were found."""

    due: DataFrame
    """Each must be there."""
    early: DataFrame | None = None
    """Each may be there: the batch gives it, and when the stream does, the job has not said."""
    against: Reference = Reference.BATCH
    kinds: RowsDue | None = None
    """See ``OutputComparison``, as for what follows."""
    late: LateInput | None = None
    watermarks: WatermarkComparison | None = None


def expected_rows(
    spark: SparkSession,
    job: QueryDefinition,
    place: QueryPlace,
    *,
    as_batch: bool = True,
    restarted_before: Sequence[int] = (),
) -> ExpectedRows:
    """Return what a job must have committed, after the micro-batches that its checkpoint directory says.

    Without ``as_batch``, Spark refuses the query as a batch. ``restarted_before`` has the micro-batches that were the
    first ones of a driver.

    Raises NotNoted if that depends on the micro-batches, and the directory does not say what they took.
    """
    checkpoint = Path(place.checkpoint)
    if job.batch is not None:  # it may distinguish micro-batches
        directory = str(one_file_each(Path(place.input), checkpoint, checkpoint.with_name(_MICRO_BATCHES)))
        given = batch_rows(job, input_in_order(spark, directory))
        return _by_watermark(spark, job, place, given)
    if not as_batch:
        return _WithTimes(spark, job, place, restarted_before).by_undisturbed_run()
    rows = input_in_order(spark, place.input)
    with observed_watermarks(rows) as observed:
        given = batch_rows(job, rows)
    if not observed:
        return replace(_by_watermark(spark, job, place, given), watermarks=WatermarkComparison())
    return _WithTimes(spark, job, place, restarted_before).by_batch_where_it_can(rows, given, observed)


class _WithTimes:
    """What a query must have committed whose output depends on which rows were late."""

    def __init__(
        self, spark: SparkSession, job: QueryDefinition, place: QueryPlace, restarted_before: Sequence[int]
    ) -> None:
        self._spark, self._job, self._place = spark, job, place
        self._restarted_before = restarted_before
        noted = noted_batches(Path(place.checkpoint))
        self._batches, self._alike = noted.batches, noted.alike

    def by_undisturbed_run(self) -> ExpectedRows:
        """Return what an undisturbed run gives, of a query that Spark refuses as a batch."""
        run = self._comparable_run()
        left = left_by(self._job, run.rows, len(self._batches) - 1)
        if left is None:
            raise NotNoted(
                "each update replaces a row that the job does not name (latest_by, upserts), and the query cannot be "
                "run as a batch"
            )
        return ExpectedRows(left, against=Reference.UNDISTURBED, watermarks=self._watermarks((), run))

    def by_batch_where_it_can(
        self, rows: DataFrame, given: DataFrame, observed: ObservedWatermarks
    ) -> ExpectedRows:
        """Return what the batch gives, unless rows were late, or it does not tell when its rows are due.

        Then an undisturbed run tells that. Where late rows have no part, it must agree with the batch: what it lacks
        there is expected all the same.
        """
        seen = observed_input(observed, self._batches, partial(delay_ms, self._spark))
        whole = self._due(given)
        if seen.late is None and seen.knows_files and (whole.early is None or not self._alike):
            return replace(whole, watermarks=self._watermarks(seen.greatest_ms, None))
        run = self._comparable_run()
        watermarks = self._watermarks(seen.greatest_ms, run)
        found = replace(
            whole, early=None, against=Reference.UNDISTURBED, watermarks=watermarks, late=seen.late
        )
        left = left_by(self._job, run.rows, len(self._batches) - 1)
        sides = {"whole": whole.due, "given": given, "left": left if left is not None else run.rows}
        if seen.late is not None and seen.knows_files:
            with observed_watermarks(rows, watermark_of_files(self._batches)):
                sides["in_time"] = self._due(batch_rows(self._job, rows)).due
        tally = _Tally(sides)
        whole_n, left_n = tally["whole"], tally["left"]
        if not seen.knows_files:
            sure = sf.lit(0)
        else:
            sure = sf.least(whole_n, tally["in_time"]) if "in_time" in sides else whole_n
        if left is None:  # an update replaces a row, and which is not known: any update may be the last one
            early = sf.greatest(whole_n, sf.least(left_n, sf.lit(1))) - sure
            return replace(found, due=tally.rows(sure), early=tally.rows(early))
        if "in_time" not in sides and seen.knows_files:  # nothing excuses a row that the batch does not give
            left_n = sf.least(left_n, tally["given"])
        due = sf.greatest(left_n, sure)
        if seen.late is not None:
            number, missing = tally.first(sf.greatest(whole_n - due, sf.lit(0)), _EXAMPLES)
            late = msgspec.structs.replace(seen.late, missing=number, examples=missing)
            found = replace(found, late=late)
        return replace(found, due=tally.rows(due))

    def _due(self, given: DataFrame) -> ExpectedRows:
        return _by_watermark(self._spark, self._job, self._place, given)

    def _comparable_run(self) -> UndisturbedRun:
        """Return an undisturbed run with the watermarks of the query, if there is one.

        A new driver of a query with several watermarks knows none of them until each has met a row. So theirs may stay
        behind, and then the run is one that is started again at the same micro-batches.
        """
        run = self._run()
        noted = tuple(batch.watermark_ms for batch in self._batches)
        if self._restarted_before and run.watermarks_ms != noted:
            streamed = streamed_plan(self._spark, self._job, self._place)
            if streamed.number_of_watermarks() > 1:
                return self._run(self._restarted_before)
        return run

    def _run(self, restarted_before: Sequence[int] = ()) -> UndisturbedRun:
        if not self._alike:
            raise NotNoted("its sources took other files each in some micro-batch")
        # Whoever removes the place removes it, too, if this process is killed meanwhile.
        parent = Path(self._place.checkpoint).parent
        directory = Path(tempfile.mkdtemp(prefix="undisturbed-", dir=parent))
        return undisturbed_run(
            self._spark, self._job, self._place, self._batches, directory, restarted_before
        )

    def _watermarks(self, greatest_ms: Sequence[int], run: UndisturbedRun | None) -> WatermarkComparison:
        noted = [batch.watermark_ms for batch in self._batches]
        # If one source is ahead, it is not known when the watermark has met a row first.
        greatest_ms = greatest_ms if self._alike else ()
        return compared_watermarks(noted, greatest_ms, run.watermarks_ms if run is not None else None)


class _Tally:
    """How often each row is in some multisets, whose columns are those of the first one."""

    def __init__(self, sides: Mapping[str, DataFrame]) -> None:
        like = next(iter(sides.values()))
        self._names = [column_named(name) for name in like.columns]
        marked = [
            as_in(rows, like).withColumns({_count_of(other): sf.lit(int(other == name)) for other in sides})
            for name, rows in sides.items()
        ]
        counts = [sf.sum(_count_of(name)).alias(_count_of(name)) for name in sides]
        self._tally = computed(reduce(DataFrame.unionAll, marked).groupBy(*self._names).agg(*counts))

    def __getitem__(self, side: str) -> Column:
        """Return how often one of them has a row."""
        return sf.col(_count_of(side))

    def rows(self, times: Column) -> DataFrame:
        """Return each row so often."""
        copies = self._tally.where(times > 0).withColumn(_TIMES, sf.explode(sf.sequence(sf.lit(1), times)))
        return copies.select(*self._names)

    def first(self, times: Column, number: int) -> tuple[int, tuple[str, ...]]:
        """Return how many rows there are if each is there so often, and the first few as readers see them."""
        found = self._tally.withColumn(_TIMES, times).where(sf.col(_TIMES) > 0).cache()
        total = found.agg(sf.sum(_TIMES)).collect()[0][0] or 0
        shown = found.select(*self._names).limit(number).collect() if total else []
        found.unpersist()
        return int(total), tuple(rendered(row.asDict()) for row in shown)


def _count_of(side: str) -> str:
    return f"barrier_tck_of_{side}"


def compared_watermarks(
    noted_ms: Sequence[int], greatest_ms: Sequence[int], undisturbed_ms: Sequence[int] | None
) -> WatermarkComparison:
    """Compare the watermarks of micro-batches with the greatest that they may be, and with those of another run.

    ``greatest_ms`` is empty, and ``undisturbed_ms`` None, if they are not known.
    """
    differences = []
    for number, found in enumerate(noted_ms):
        before = noted_ms[number - 1] if number else 0
        if found < before:
            why, expected = "that of the one before, behind which it must not be, is", before
        elif greatest_ms and found > greatest_ms[number]:
            why, expected = "by the rows that were read before it can be at most", greatest_ms[number]
        elif undisturbed_ms is not None and found != undisturbed_ms[number]:
            why, expected = "in an undisturbed run it is", undisturbed_ms[number]
        else:
            continue
        differences.append(WatermarkDifference(number, found, expected, why))
    advances = sum(one < other for one, other in itertools.pairwise(noted_ms))
    return WatermarkComparison(len(noted_ms), advances, undisturbed_ms is not None, tuple(differences))


def _by_watermark(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, given: DataFrame
) -> ExpectedRows:
    """Return which rows of a batch are due at the last watermark, if the job says when a row is."""
    if job.final_by is None:
        return ExpectedRows(given)
    rows = computed(given)
    watermark = sf.timestamp_millis(sf.lit(last_watermark_ms(Path(place.checkpoint))))
    due_by = sf.col(job.final_by)
    final = final_at(due_by, watermark)
    if job.batch is not None:
        return ExpectedRows(rows.where(final), kinds=_kinds(rows, due_by, watermark))
    streamed = streamed_plan(spark, job, place)
    outer = streamed.outer_joins_of_streams()
    if not any(outer):
        return ExpectedRows(rows.where(final), kinds=_kinds(rows, due_by, watermark))
    at_once = job.upserts is None and streamed.pairs_come_at_once()
    joined = QueryPlan(spark, given).with_inner_joins(outer) if at_once else None
    if joined is None:
        return ExpectedRows(rows.where(final), rows.where(~final))
    pairs = computed(joined)
    # Rows without a partner come when the watermark says that none can follow, and pairs come at once.
    alone = computed(rows.exceptAll(pairs))
    kinds = _kinds(alone, due_by, watermark)
    kinds = msgspec.structs.replace(kinds, at_once=kinds.at_once + pairs.count())
    return ExpectedRows(pairs.unionAll(alone.where(final)), alone.where(~final), kinds=kinds)


def _kinds(rows: DataFrame, due_by: Column, watermark: Column) -> RowsDue:
    """Return how many rows are due and how many are not; one in which the column is null does not wait."""
    of_kinds = (due_by <= watermark, due_by.isNull(), due_by > watermark)
    counted = rows.agg(*(sf.count_if(kind) for kind in of_kinds)).collect()[0]
    return RowsDue(*map(int, counted))


def left_by(job: QueryDefinition, rows: DataFrame, last: int) -> DataFrame | None:
    """Return what the sink of a job leaves of the rows that its micro-batches gave, of which ``last`` was the last one.

    ``rows`` name their micro-batch in ``OF_BATCH``. None if an update replaces a row, and the job does not say which.
    """
    columns = [name for name in rows.columns if name != OF_BATCH]
    if job.output_mode == "complete":
        return rows.where(sf.col(OF_BATCH) == last).select(*map(column_named, columns))
    if job.upserts is not None:
        return merged(rows.select(*map(column_named, columns)), job.upserts)
    if job.output_mode == "append":
        return rows.select(*map(column_named, columns))
    if not job.latest_by:
        return None
    return newest(rows, job.latest_by, OF_BATCH).select(*map(column_named, columns))


def newest(rows: DataFrame, keys: Sequence[str], batch: str) -> DataFrame:
    """Return the rows that the last micro-batch wrote which wrote any with the same keys, each once."""
    latest = Window.partitionBy(*map(column_named, keys)).orderBy(sf.col(batch).desc())
    ranked = rows.withColumn(_SEQUENCE, sf.rank().over(latest))
    return ranked.where(sf.col(_SEQUENCE) == 1).drop(_SEQUENCE).dropDuplicates()


def as_in(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Return rows with the columns of others, in their order and of their types."""
    return rows.select(
        *(column_named(field.name).cast(field.dataType).alias(field.name) for field in others.schema)
    )


def final_at(column: Column, watermark: Column) -> Column:
    """Return which rows are due: those up to the watermark, and those that do not wait for it."""
    return column.isNull() | (column <= watermark)


def computed(rows: DataFrame) -> DataFrame:
    """Return the same rows, computed now, so that nothing that is asked of them changes how they are computed.

    Spark moves a filter behind a query into it. Up to 4.3 it moves one on the end of a session window in front of the
    merging of sessions; then some of a session's rows are missing, and a shorter session is found in its place.
    """
    return rows.localCheckpoint()


def batch_rows(job: QueryDefinition, rows: DataFrame) -> DataFrame:
    """Return what a job gives for the whole input, whatever the watermark."""
    given = (job.batch or job.query)(rows)
    return given if job.upserts is None else merged(given, job.upserts)


def input_in_order(spark: SparkSession, directory: str, partitions: bool = False) -> DataFrame:
    """Return the input as a stream meets it: file by file, in one partition (or one for each file).

    So a batch that keeps the first row of a key keeps that which a stream has met first.
    """
    rows = rows_of_files(spark, files_in_order(Path(directory)))
    return rows if partitions else rows.coalesce(1)


def files_in_order(directory: Path) -> list[Path]:
    """Return the files of an input as a stream meets them: by their times."""
    return sorted(
        (file for file in directory.iterdir() if file.is_file() and not file.name.startswith(("_", "."))),
        key=lambda file: (file.stat().st_mtime_ns, file.name),
    )


def rows_of_files(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Return the rows of some files of an input, file by file."""
    read = spark.read.schema(spark.read.parquet(*map(str, files)).schema)
    return reduce(DataFrame.unionAll, [read.parquet(str(file)) for file in files])


def streamed_plan(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> QueryPlan:
    """Return the plan of a query whose input is a stream; nothing is started."""
    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(place.input)
    return QueryPlan(spark, job.query(stream))


def column_named(name: str) -> Column:
    """Return a column, whatever characters its name has."""
    quoted = name.replace("`", "``")
    return sf.col(f"`{quoted}`")


def merged(rows: DataFrame, upserts: Upserts) -> DataFrame:
    """Return the newest row of each key, unless it deletes the key."""
    columns = rows.columns
    newest = Window.partitionBy(*map(column_named, upserts.keys)).orderBy(
        sf.expr(upserts.sequence_by).desc_nulls_last()
    )
    deleted = sf.expr(upserts.apply_as_deletes or "false")
    marked = rows.withColumns({_SEQUENCE: sf.row_number().over(newest), _DELETED: deleted})
    kept = (sf.col(_SEQUENCE) == 1) & sf.expr(f"{_DELETED} IS NOT TRUE")
    return marked.where(kept).select(*map(column_named, columns))
