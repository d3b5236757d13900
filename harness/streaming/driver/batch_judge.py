"""Judges committed output: the same function, run as a batch, in a process with its own Spark that no fault touches.

The judge must not be part of what it judges. Run as a module (``python -m
barrier_tck.harness.streaming.driver.batch_judge``) with the number of its end of the connection to the harness.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as sf

from barrier_tck.harness.cluster.driver.peer import Peer
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.record.history import OutputComparison, OutputCounts, StateComparison, WrongRow
from barrier_tck.harness.streaming.driver.expected_rows import (
    ExpectedRows,
    batch_rows,
    column_named,
    expected_rows,
    files_in_order,
    newest,
    rows_of_files,
)
from barrier_tck.harness.streaming.driver.input_rows import InputRows
from barrier_tck.harness.streaming.driver.job_check import checked
from barrier_tck.harness.streaming.driver.micro_batches import NotNoted, taken_by
from barrier_tck.harness.streaming.driver.serving import job_at, serve
from barrier_tck.harness.streaming.driver.state_judge import judged_state
from barrier_tck.harness.streaming.driver.wrong_rows import (
    EXAMPLES,
    Parts,
    Tallied,
    repeated_update,
    wrong_rows,
)
from barrier_tck.harness.streaming.query_definition import BATCH_ID, QueryDefinition, QueryPlace
from barrier_tck.harness.streaming.query_rpc import (
    NOTHING_KNOWN,
    JobCheck,
    JudgeOrder,
    JudgeRpc,
    RowNames,
)
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_PARTS, _ROWS_OF_PART = 20, 10_000
"""What micro-batches add is looked at if there are no more of them, and no more rows of each."""
_LOOKED_AT = 200
"""So many rows that are wrong are looked at for those that belong together."""
SMALL = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
"""What is judged is small and of many shapes: to plan it twice, and to compile it, takes longer than to run it."""
_EXPECTED, _COMMITTED, _BATCHES = "barrier_tck_expected", "barrier_tck_committed", "barrier_tck_batches"
_EARLY = "barrier_tck_early"
_TIMES = "barrier_tck_times"
"""Columns that no query has."""


class BatchJudge:
    """Implements ``JudgeRpc``."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stack = contextlib.ExitStack()
        self._spark: SparkSession | None = None

    def open_session(self, conf: Mapping[str, str]) -> None:
        if self._spark is None:
            self._spark = self._stack.enter_context(
                spark_session(None, "barrier-tck-judge", {**SMALL, **conf}, quick_start=True)
            )

    def check(self, job: str, place: QueryPlace) -> JobCheck:
        assert self._spark is not None, "the session is opened first"
        return checked(self._spark, job_at(job), place)

    def judge(self, order: JudgeOrder) -> OutputComparison:
        assert self._spark is not None, "the session is opened first"
        return judged(
            self._spark,
            job_at(order.job),
            order.place,
            order.run_again,
            order.names,
            as_batch=order.as_batch,
            restarted_before=order.restarted_before,
        )

    def judge_state(self, order: JudgeOrder) -> StateComparison:
        assert self._spark is not None, "the session is opened first"
        kept = job_at(order.job).state
        if kept is None:
            raise UsageProblem(f"{order.job} does not say what it keeps")
        return judged_state(self._spark, kept, order.place)

    def close(self) -> None:
        """End Spark."""
        self._stack.close()


def judged(
    spark: SparkSession,
    job: QueryDefinition,
    place: QueryPlace,
    run_again: Sequence[int],
    names: RowNames = NOTHING_KNOWN,
    *,
    as_batch: bool = True,
    restarted_before: Sequence[int] = (),
) -> OutputComparison:
    """Return how the committed output of a job differs from what its function gives as a batch.

    ``run_again`` names the micro-batches that ran more than once, whose rows an at-least-once sink may hold more than
    once; ``names`` the columns by which the input of a row that is wrong is found; ``restarted_before`` the
    micro-batches that were the first ones of a driver. Without ``as_batch``, Spark refuses the query as a batch.
    """
    try:
        wanted = expected_rows(spark, job, place, as_batch=as_batch, restarted_before=restarted_before)
    except NotNoted as error:
        return OutputComparison(None, problem=f"what the query must have committed is not known: {error}")
    expected = wanted.due
    committed = _committed(spark, job, place, expected)
    missing = [name for name in expected.columns if name not in committed.columns]
    if missing:
        return OutputComparison(None, problem=f"the output that was read has no column {', '.join(missing)}")
    has_batches = BATCH_ID in committed.columns and BATCH_ID not in expected.columns
    if job.latest_by and not has_batches:
        return OutputComparison(None, problem=f"latest_by needs a column {BATCH_ID} in the output")
    committed = committed.select(
        *(column_named(field.name).cast(field.dataType).alias(field.name) for field in expected.schema),
        (sf.col(BATCH_ID).cast("long") if has_batches else sf.lit(None).cast("long")).alias(_BATCHES),
    )
    excused = list(run_again) if job.delivery == "at_least_once" else []
    repeated = _Changelog(0, ())
    taken = taken_by(Path(place.checkpoint))
    if job.latest_by:
        repeated = _written_twice(committed, excused)
        committed = newest(committed, job.latest_by, _BATCHES)
    elif job.output_mode == "complete" and has_batches:
        newest_batch = committed.agg(sf.max(_BATCHES)).collect()[0][0]
        committed = committed.where(sf.col(_BATCHES) == sf.lit(newest_batch).cast("long"))
    counts, wrong, copies = _compared(wanted, committed, excused, has_batches)
    counts = msgspec.structs.replace(counts, duplicated=counts.duplicated + repeated.repeated)
    found = wrong_rows(
        [_tallied(row) for row in wrong],
        run_again,
        lambda: _parts(spark, job, place, taken, expected),
        InputRows(Path(place.input), taken, names).of,
    )
    found = found.with_more(repeated.updates)
    return OutputComparison(
        counts,
        found.examples,
        checks={"copies of rows of micro-batches that ran again": {"output": copies}} if copies else {},
        added_again=found.added_again,
        wrong=found.rows,
        against=wanted.against,
        rows_due=wanted.kinds,
        late=wanted.late,
        watermarks=wanted.watermarks,
    )


@dataclass(frozen=True)
class _Changelog:
    """Updates that were written more often than once."""

    repeated: int
    """How many rows too many there are."""
    updates: tuple[WrongRow, ...]
    """The first of them."""


def _committed(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, expected: DataFrame
) -> DataFrame:
    if job.read is not None:
        return job.read(spark, place)
    if not _has_files(Path(place.output)):
        return spark.createDataFrame([], expected.schema)
    return spark.read.format(job.sink if isinstance(job.sink, str) else "parquet").load(place.output)


def _has_files(output: Path) -> bool:
    """Return whether there is a file that Spark would read; it passes over names that begin like hidden ones."""
    return output.is_file() or any(
        file.is_file() and not any(_is_hidden(name) for name in file.relative_to(output).parts)
        for file in output.rglob("*")
    )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _written_twice(committed: DataFrame, excused: Sequence[int]) -> _Changelog:
    """Return the updates of a changelog that one micro-batch wrote more than once."""
    counted = committed.groupBy(*map(column_named, committed.columns)).agg(sf.count(sf.lit(1)).alias(_TIMES))
    found = counted.where((sf.col(_TIMES) > 1) & ~sf.col(_BATCHES).isin(list(excused)))
    repeated = found.agg(sf.sum(sf.col(_TIMES) - 1)).collect()[0][0] or 0
    shown = found.limit(EXAMPLES).collect() if repeated else []
    updates = (repeated_update(_values(row), row[_TIMES], row[_BATCHES]) for row in shown)
    return _Changelog(repeated, tuple(updates))


def _compared(
    expected: ExpectedRows,
    committed: DataFrame,
    excused: Sequence[int],
    has_batches: bool,
) -> tuple[OutputCounts, list[Row], int]:
    """Compare multisets of rows: both ways, in one pass.

    Return the counts, the first rows that are wrong, and how many copies are excused.
    """
    names = [column_named(name) for name in expected.due.columns]

    def marked(rows: DataFrame, due: int, early: int, committed: int) -> DataFrame:
        batches = sf.col(_BATCHES) if committed else sf.lit(None).cast("long").alias(_BATCHES)
        marks = sf.lit(due).alias(_EXPECTED), sf.lit(early).alias(_EARLY), sf.lit(committed).alias(_COMMITTED)
        return rows.select(*names, *marks, batches)

    both = marked(expected.due, 1, 0, 0).unionAll(marked(committed, 0, 0, 1))
    if expected.early is not None:
        both = both.unionAll(marked(expected.early, 0, 1, 0))
    tally = both.groupBy(*names).agg(
        sf.sum(_EXPECTED).alias(_EXPECTED),
        sf.sum(_EARLY).alias(_EARLY),
        sf.sum(_COMMITTED).alias(_COMMITTED),
        sf.sort_array(sf.collect_list(_BATCHES)).alias(_BATCHES),
    )
    tally = tally.cache()
    due, found = sf.col(_EXPECTED), sf.col(_COMMITTED)
    wanted = due + sf.col(_EARLY)
    more = sf.greatest(found - wanted, sf.lit(0))
    if not excused:
        allowed = sf.lit(0)
    elif has_batches:
        again = sf.filter(sf.col(_BATCHES), lambda batch: batch.isin(list(excused)))
        # Of the copies that are wanted, each micro-batch that ran again and wrote the row has one. What the others
        # wrote beyond the rest is theirs.
        claimed = found - sf.size(again) + sf.size(sf.array_distinct(again))
        allowed = more - sf.least(more, sf.greatest(claimed - wanted, sf.lit(0)))
    else:
        allowed = more
    copies = sf.when(wanted > 0, more - allowed).otherwise(0)
    excused_copies = sf.when(wanted > 0, allowed).otherwise(0)
    lost = sf.greatest(due - found, sf.lit(0))
    strange = sf.when(wanted == 0, found).otherwise(0)
    sums = tally.agg(*(sf.sum(value) for value in (due, found, lost, copies, strange, excused_copies)))
    numbers = [int(value or 0) for value in sums.collect()[0]]
    wrong = tally.where((lost > 0) | (copies > 0) | (strange > 0)).limit(_LOOKED_AT).collect()
    counts = OutputCounts(
        expected=numbers[0],
        committed=numbers[1],
        lost=numbers[2],
        duplicated=numbers[3],
        unexpected=numbers[4],
        wrong_key=0,
        wrong_count=0,
        wrong_sum=0,
    )
    tally.unpersist()
    return counts, wrong, numbers[5]


def _parts(
    spark: SparkSession,
    job: QueryDefinition,
    place: QueryPlace,
    taken: Mapping[str, int],
    expected: DataFrame,
) -> Parts | None:
    """Return what the batch gives for the input of each micro-batch alone; None if that is not known."""
    files: dict[int, list[Path]] = {batch: [] for batch in sorted(set(taken.values()))}
    for file in files_in_order(Path(place.input)):
        if file.name not in taken:
            return None
        files[taken[file.name]].append(file)
    if not 1 < len(files) <= _PARTS:
        return None
    names = [column_named(name) for name in expected.columns]
    found: dict[int, list[dict[str, Any]]] = {}
    for batch, some in files.items():
        try:
            rows = (
                batch_rows(job, rows_of_files(spark, some)).select(*names).limit(_ROWS_OF_PART + 1).collect()
            )
        except Exception as error:  # noqa: BLE001 - a user's function may not be made for a part of the input
            _log.info("the batch cannot be run over the input of micro-batch %s alone: %s", batch, error)
            return None
        if len(rows) > _ROWS_OF_PART:
            return None
        found[batch] = [row.asDict() for row in rows]
    return found


def _tallied(row: Row) -> Tallied:
    batches = tuple(sorted(row[_BATCHES]))
    return Tallied(_values(row), row[_EXPECTED], row[_COMMITTED], row[_EARLY], batches)


def _values(row: Row) -> dict[str, Any]:
    """Return the columns of the query."""
    ours = (_EXPECTED, _EARLY, _COMMITTED, _BATCHES, _TIMES)
    return {name: value for name, value in row.asDict().items() if name not in ours}


def main() -> None:
    """Serve the judge."""
    serve("judge", JudgeRpc, BatchJudge)


if __name__ == "__main__":
    from barrier_tck.harness.streaming.driver import batch_judge

    batch_judge.main()
