"""A query under test as data: what the harness, the driver and the judge must know of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from barrier_tck.harness.cluster.rendezvous import met
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
OutputMode = Literal["append", "update", "complete"]
"""Spark's output modes."""
Delivery = Literal["exactly_once", "at_least_once"]
"""What a sink promises."""
FILE_SINKS = ("parquet", "orc")
"""Spark's own file sinks that can be named."""
BATCH_ID = "batch_id"
"""The column in which a sink may keep the number of the micro-batch that wrote a row."""


class SinkReports(Protocol):
    """What a sink reports between two actions of one call. It stands still until the report has been taken."""

    def sink_stands(self, name: str) -> None:
        """The sink stands at one of its own points."""


@dataclass(frozen=True)
class QueryPlace:
    """The directories of one trial. Restarts of a query find them as they were left."""

    input: str
    """The input: Parquet files, of which each is one micro-batch, unless a failure let Spark take two together."""
    output: str
    """Belongs to the sink; it does not exist at first."""
    checkpoint: str
    """The query's checkpoint directory; it does not exist at first."""
    rendezvous: str = ""
    """The directory in which the sink meets the harness; empty: the harness does not wait for it."""

    def point(self, name: str) -> None:
        """Let the sink stand still between two of its actions, so that a fault may strike there.

        ``StreamingJob(points=...)`` must name the point. Outside of a trial this does nothing.
        """
        if self.rendezvous:
            with met(self.rendezvous, SinkReports) as harness:  # type: ignore[type-abstract]
                harness.sink_stands(name)


@dataclass(frozen=True, kw_only=True)
class QueryState:
    """What a query keeps from micro-batch to micro-batch, so that the state in between can be judged.

    It is read with Spark's state data source after every micro-batch that Spark retains, and compared as a multiset
    with what ``of`` gives for the rows until then. State that a watermark evicts cannot be said like this.
    """

    of: Callable[[DataFrame], DataFrame]
    """The rows that have been read, as a batch -> the entries of the state."""
    columns: tuple[str, ...] = ("key.*", "value.*")
    """SQL expressions over the source's columns, in the order of the columns of ``of``."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the source, for instance ``joinSide`` or ``stateVarName``."""


@dataclass(frozen=True, kw_only=True)
class Upserts:
    """How a sink merges rows into a table (MERGE, INSERT ... ON CONFLICT), which then has the newest row of each key.

    The names are those of ``APPLY CHANGES``. ``read`` returns the table.
    """

    keys: tuple[str, ...]
    """The columns that identify a row of the table."""
    sequence_by: str
    """An SQL expression over the query's columns: of the rows of a key, the one with the greatest value is the newest.
    No two rows of a key may have the same value."""
    apply_as_deletes: str | None = None
    """An SQL condition: if it holds for the newest row of a key, the table has no row of that key."""


@dataclass(frozen=True, kw_only=True)
class QueryDefinition:
    """The query, its input, its sink, and what both promise.

    Spark's promise is the oracle: the committed output of the query, whatever dies meanwhile, is what the same function
    gives as a batch over the same input. Both are compared as multisets of rows. Sums of floating-point numbers depend
    on their order, so use integers or decimals. A query that is not its own batch needs ``batch``.

    Raises:
        UsageProblem: two of the fields contradict each other.
    """

    query: Callable[[DataFrame], DataFrame]
    """The query. The same function is given the stream and, by the oracle, the whole input as a batch."""
    batch: Callable[[DataFrame], DataFrame] | None = None
    """What the output must be, from the whole input as a batch in one partition, in the order of its files, of which
    each is one micro-batch of the trial; None: ``query``. For queries that are not deterministic, and for those that
    Spark refuses as a batch: without it, their output is compared with that of an undisturbed run of the same
    micro-batches, in which Spark itself is not judged. Only the columns that it returns are compared."""
    sink: str | Callable[[DataFrame, int, QueryPlace], None] = "parquet"
    """``parquet`` or ``orc`` for Spark's own file sink, or a ``foreachBatch`` function that is also given the trial's
    directories."""
    points: tuple[str, ...] = ()
    """The points at which the sink stands still in each call, by ``place.point(...)``: between two of its actions, for
    instance after the write of the first of two tables. Faults are aimed there, too."""
    read: Callable[[SparkSession, QueryPlace], DataFrame] | None = None
    """Reads what the sink has committed; None: the Parquet (or ORC) files in ``place.output``. A column ``batch_id``
    that the query does not have tells which micro-batch wrote a row."""
    input: str | Path = "keyed-totals"
    """The name of a workload, whose rows get a column ``at`` with a timestamp that grows by a second with each row; or
    a directory of Parquet files, of which a trial reads the first ones by name."""
    output_mode: OutputMode = "append"
    latest_by: tuple[str, ...] = ()
    """Mode ``update``, with a sink that keeps every update: the columns that identify a row. Of the rows with the same
    values there, those of the highest ``batch_id`` count; and no update may be there twice."""
    upserts: Upserts | None = None
    """Set if the sink merges the query's rows into a table; then the newest row of each key is expected."""
    final_by: str | None = None
    """Mode ``append`` with a watermark: the column of the output, for instance ``window.end``, that must be at or
    before the watermark when a row is written. Rows beyond the last watermark are not expected. Rows that are given at
    once are expected whatever it says: pairs of an outer join, and rows in which it is null. If the job has a ``batch``
    of its own, the input must have no rows that are late, unless that function drops those that the stream drops."""
    late_rows: bool | None = None
    """Whether rows of generated input may be late, that is behind the watermark when they are read; None: they may if
    ``final_by`` is set and ``batch`` is not. Which rows the query must have committed then, an undisturbed run of the
    same micro-batches tells; where late rows have no part, the batch must agree with it."""
    delivery: Delivery = "exactly_once"
    """``at_least_once``: nothing may be lost, and rows may be there more often only if their micro-batch, or a task of
    it, was run again."""
    state: QueryState | None = None
    """What the query keeps; None: only its output is judged."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark for the session, for instance the provider of state stores."""
    start: Callable[[SparkSession, QueryPlace], StreamingQuery] | None = None
    """Starts the query instead of the harness, for those who do not use ``sink``; it must end when the input is
    consumed (``trigger(availableNow=True)``). A stream of files reads one in each micro-batch unless the function says
    otherwise, and faults are aimed at tasks of as many micro-batches as there are files. A sink of its own is struck
    between two actions at ``points``."""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise UsageProblem(f"this StreamingJob contradicts itself: {problem}")

    @property
    def address(self) -> str:
        """Return ``module:name``, by which other processes import the job.

        Raises:
            UsageProblem: no module has a name for it.
        """
        for module in _modules(self):
            for name, value in vars(sys.modules[module]).items():
                if value is self:
                    return f"{module}:{name}"
        raise UsageProblem(
            "a StreamingJob must be bound to a name of an importable module, because the driver imports it again: "
            "write `job = StreamingJob(...)` at the top level of a file, and not in __main__"
        )


def _modules(job: QueryDefinition) -> Iterator[str]:
    """Yield the modules that may name a job, those of its functions first."""
    functions: tuple[Any, ...] = (job.query, job.sink, job.read, job.start, job.batch)
    likely = [getattr(function, "__module__", "") for function in functions]
    for module in dict.fromkeys([*likely, *sorted(sys.modules)]):
        if module != "__main__" and getattr(sys.modules.get(module), "__dict__", None) is not None:
            yield module


def _problems(job: QueryDefinition) -> Iterator[str]:
    if job.output_mode not in get_args(OutputMode):
        yield f"output_mode is {job.output_mode!r}, and not one of {', '.join(get_args(OutputMode))}"
    if job.delivery not in get_args(Delivery):
        yield f"delivery is {job.delivery!r}, and not one of {', '.join(get_args(Delivery))}"
    if isinstance(job.sink, str):
        if job.sink not in FILE_SINKS:
            yield f"sink is {job.sink!r}; name one of {', '.join(FILE_SINKS)}, or give a function"
        elif job.output_mode != "append" and job.start is None:
            yield f"a file sink only appends, and output_mode is {job.output_mode!r}"
        elif job.points and job.start is None:
            yield "points are passed by a function, and sink is one of Spark's own"
    if len(set(job.points)) < len(job.points):
        yield "points names one more than once"
    if job.latest_by and job.output_mode != "update":
        yield "latest_by is for output_mode 'update'"
    if job.upserts is not None:
        if not job.upserts.keys:
            yield "upserts has no keys"
        if job.latest_by or job.output_mode == "complete":
            yield "upserts is for output_mode 'append' or 'update', without latest_by"
        if isinstance(job.sink, str) and job.start is None:
            yield "a file sink only appends, and upserts says that rows are merged into a table"
    if job.late_rows and job.batch is not None:
        yield "late_rows is for a query that is compared with an undisturbed run, and batch says what it must give"
    if job.final_by is not None and job.output_mode != "append":
        yield "final_by is for output_mode 'append'"
