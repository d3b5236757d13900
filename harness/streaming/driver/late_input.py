"""Which rows of the input were late: behind the watermark of the micro-batch that read them.

Spark promises that a row counts unless it is behind the watermark, and promises nothing for those that are behind it:
some are dropped, others find their window still open. So a query is given once as a batch over all rows, and once over
those that are not late; where the two agree no row that is late has any part in it, and the stream must agree, too.

A query says with ``withWatermark`` what its times are, of rows that it may have filtered or made before. Given a batch,
Spark ignores these calls. Meanwhile they are observed here, and what is late is left out if that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from barrier_tck.harness.record.query_times import LateInput, LateRow
from barrier_tck.harness.streaming.driver.input_rows import rendered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from barrier_tck.harness.streaming.driver.micro_batches import MicroBatch

_EXAMPLES = 5
_FILE, _TIME = "barrier_tck_file", "barrier_tck_time"
"""Columns that no query has."""


@dataclass
class ObservedWatermarks:
    """The calls of ``withWatermark`` that one query made."""

    times: list[DataFrame] = field(default_factory=list)
    """For each call, its rows with the name of the file from which each comes, and its time."""
    delays: list[str] = field(default_factory=list)
    """For each call, how long it waits for rows, as the query says it."""

    def __bool__(self) -> bool:
        return bool(self.times)


@dataclass(frozen=True)
class ObservedInput:
    """What was found out about the times of the input."""

    late: LateInput | None
    """Rows that are behind the watermark of their micro-batch; None if there are none."""
    knows_files: bool
    """Whether it is known of each row from which file it comes. A query that exchanges rows between executors before it
    names their time loses that, and then any row may be late."""
    greatest_ms: tuple[int, ...]
    """The greatest that the watermark of each micro-batch may be, by the rows that were read before; empty unless files
    are known."""


@contextmanager
def observed_watermarks(
    rows: DataFrame, without_late: Mapping[str, int] | None = None
) -> Iterator[ObservedWatermarks]:
    """Observe what a query that is run as a batch says of its times.

    ``rows`` is what it is given, which is read from files. With ``without_late`` (the name of a file -> the watermark
    of the micro-batch that took it, in milliseconds) it goes on with those rows only that are not late.
    """
    observed = ObservedWatermarks()
    frames = type(rows)
    ignored: Callable[[DataFrame, str, str], DataFrame] = frames.withWatermark

    def with_watermark(frame: DataFrame, eventTime: str, delayThreshold: str) -> DataFrame:  # noqa: N803
        ignored(frame, eventTime, delayThreshold)  # refuses what is no time, or no delay
        marked = _with_file_and_time(frame, eventTime)
        observed.times.append(marked)
        observed.delays.append(delayThreshold)
        if without_late is None:
            return frame
        late = _is_late(sf.col(_FILE), sf.col(_TIME), without_late)
        return marked.where(~late).drop(_FILE, _TIME)

    frames.withWatermark = with_watermark  # type: ignore[method-assign, assignment]
    try:
        yield observed
    finally:
        frames.withWatermark = ignored  # type: ignore[method-assign, assignment]


def observed_input(
    observed: ObservedWatermarks, batches: Sequence[MicroBatch], delay_ms: Callable[[str], int]
) -> ObservedInput:
    """Return what the times of the input are, from the files as micro-batches took them.

    ``delay_ms`` returns the milliseconds of a delay that a query names.
    """
    of_file = watermark_of_files(batches)
    batch_of = {name: batch.number for batch in batches for name in batch.files}
    greatest = dict.fromkeys((batch.number for batch in batches), 0)
    number, knows_files, found = 0, True, list[LateRow]()
    for frame, delay in zip(observed.times, observed.delays, strict=True):
        late = _is_late(sf.col(_FILE), sf.col(_TIME), of_file)
        newest = sf.max(sf.unix_millis(sf.col(_TIME)))
        for file, time_ms, late_rows in (
            frame.groupBy(_FILE).agg(newest, sf.sum(late.cast("long"))).orderBy(_FILE).collect()
        ):
            knows_files &= file in batch_of
            number += late_rows
            if file in batch_of and time_ms is not None:
                read_by = batch_of[file]
                greatest[read_by] = max(greatest[read_by], time_ms - delay_ms(delay))
        if number and len(found) < _EXAMPLES:
            for row in frame.where(late).limit(_EXAMPLES - len(found)).collect():
                values = {name: value for name, value in row.asDict().items() if name not in (_FILE, _TIME)}
                name = row[_FILE]
                found.append(LateRow(rendered(values), name, batch_of[name], of_file[name]))
    before = accumulate(greatest.values(), max, initial=0)
    return ObservedInput(
        LateInput(number, tuple(found)) if number else None,
        knows_files,
        tuple(before)[:-1] if knows_files else (),
    )


def watermark_of_files(batches: Sequence[MicroBatch]) -> dict[str, int]:
    """Return the name of each file that was taken -> the watermark of its micro-batch, in milliseconds."""
    return {name: batch.watermark_ms for batch in batches for name in batch.files}


def _with_file_and_time(rows: DataFrame, time: str) -> DataFrame:
    """Return rows with the name of the file from which each comes, and with its time.

    The name is empty if that is not known any more.
    """
    column = sf.col(time)
    if isinstance(rows.select(column).schema[0].dataType, StructType):  # a window is as late as its end
        column = column.getField("end")
    timed = rows.withColumn(_TIME, column.cast("timestamp"))
    try:
        return timed.withColumn(_FILE, sf.regexp_extract(sf.input_file_name(), r"[^/]*$", 0))
    except AnalysisException:  # Spark does not say it of what is joined from several files
        return timed.withColumn(_FILE, sf.lit(""))


def _is_late(file: Column, time: Column, watermark_of: Mapping[str, int]) -> Column:
    """Return whether a row is late; one without a time is not, and neither is one of a file that is not known.

    A row at the watermark itself is late for some operators of Spark, and for others it is not.
    """
    if not watermark_of:
        return sf.lit(False)
    entries = chain.from_iterable((sf.lit(name), sf.lit(mark)) for name, mark in watermark_of.items())
    mark = sf.element_at(sf.create_map(*entries), file)
    return sf.coalesce(sf.unix_millis(time) <= mark, sf.lit(False))
