"""What a user writes: pipelines, step by step, which become a ``JobGraph``.

>>> job = (
...     StreamJob("flights")
...     .source(flights, parallelism=2, name="flights")
...     .filter(lambda row: row["origin"] is not None)
...     .key_by("carrier", "origin")
...     .aggregate({"flights": Count()}, emit=Emission.CHANGES, parallelism=2, name="totals")
...     .sink(FileSink("totals"), parallelism=1)
...     .build()
... )  # doctest: +SKIP

Every step returns a new value, so a stream may go on in several ways from a common beginning, and streams come
together again: ``union`` mixes records of the same columns, ``connect`` keeps its inputs apart, ``join`` pairs rows.
``iterate`` leads records back, round a loop.
``StreamJob.build`` takes every stream that ended in a sink. Steps of equal parallelism are chained into one vertex;
a key, a partitioning, another parallelism, a name of its own, or a second way on begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.chosen_columns import Columns, as_mapping
from barrier_tck.reference_impl.operators.deduplicate import deduplicate
from barrier_tck.reference_impl.operators.encoding import AGGREGATES_MAX
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess
from barrier_tck.reference_impl.operators.functions import (
    Aggregate,
    Emission,
    PerSubtask,
    merging_aggregates,
)
from barrier_tck.reference_impl.operators.graph import JobGraph, OperatorSpec, Partitioning
from barrier_tck.reference_impl.operators.interval_join import Within, interval_join
from barrier_tck.reference_impl.operators.join import Join
from barrier_tck.reference_impl.operators.join_sides import JoinForm, JoinSide
from barrier_tck.reference_impl.operators.keyed_process import (
    KeyedCoProcess,
    KeyedProcess,
    require_joinable,
)
from barrier_tck.reference_impl.operators.list_process import ListFunction, ListProcess
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, Combine, Filter, FlatMap, Map
from barrier_tck.reference_impl.operators.steps import Back, Chaining, Feed, Step, graph_of
from barrier_tck.reference_impl.operators.timed_process import TimedProcess
from barrier_tck.reference_impl.operators.top_n import Top, top_n
from barrier_tck.reference_impl.operators.watermark_strategies import WatermarkAlignment, WatermarkStrategy
from barrier_tck.reference_impl.operators.window_join import window_join
from barrier_tck.reference_impl.operators.windows import Trigger, WindowAssigner, window_aggregate
from barrier_tck.reference_impl.runtime_errors import JobUsageError


@dataclass(frozen=True, slots=True)
class StreamJob:
    """The beginning of every pipeline of a job."""

    name: str
    max_parallelism: int = 128
    """Number of key groups; it never changes for a job (RSC-1)."""

    def __post_init__(self) -> None:
        if not self.name:
            raise JobUsageError("a job needs a name")
        if self.max_parallelism < 1:
            raise JobUsageError(f"the maximum parallelism must be 1 or more, not {self.max_parallelism}")

    def source(
        self,
        source: Source,
        parallelism: int = 1,
        name: str = "source",
        watermarks: WatermarkStrategy | None = None,
        alignment: WatermarkAlignment | None = None,
    ) -> Stream:
        """Read a source. ``watermarks`` says how far event time has come in it; windows need that (EVT-1).
        ``alignment`` keeps it from running ahead of others, and its splits of each other (EVT-6).
        """
        step = Step(parallelism, source=source, watermarks=watermarks, alignment=alignment, name=name)
        return Stream(self, (Feed(step),))

    def build(self, *ended: Stream) -> JobGraph:
        """Return the graph of all streams that ended in a sink, side by side where they have nothing in common.

        Raises JobUsageError if one has no sink or is another job's, or if ``JobGraph`` refuses the whole.
        """
        if not ended:
            raise JobUsageError(f"job {self.name!r} has no sink; give build every stream that ended in one")
        for stream in ended:
            if not stream.has_sink:
                raise JobUsageError(f"job {self.name!r} has no sink; end it with .sink(...)")
            _require_same_job(self, stream.job)
        ends = [feed.step for stream in ended for feed in stream.ends]
        return graph_of(self.name, self.max_parallelism, ends)


@dataclass(frozen=True, slots=True)
class Stream:
    """A pipeline so far, or several in a union."""

    job: StreamJob
    ends: tuple[Feed, ...]
    """The last step of each pipeline, and how its records are passed on."""
    has_sink: bool = False

    def map(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Replace every record: ``function`` takes and returns a row (or is ``Vectorized`` or ``PerSubtask``)."""
        return self._then("map", lambda own: Map(own, function), name, parallelism, uid)

    def filter(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Keep the records for which ``function`` holds."""
        return self._then("filter", lambda own: Filter(own, function), name, parallelism, uid)

    def flat_map(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Replace every record by the rows that ``function`` returns."""
        return self._then("flat_map", lambda own: FlatMap(own, function), name, parallelism, uid)

    def process(
        self,
        function: Callable[[], ListFunction] | PerSubtask,
        name: str = "process",
        parallelism: int | None = None,
    ) -> Stream:
        """Give every record to a function that keeps lists without keys; ``function`` makes one per subtask.

        ``name`` names the vertex and the operator; the lists are found under it after a restart. For state per key,
        write ``.key_by(column, ...).process(...)``.
        """
        return self._then("process", lambda own: ListProcess(own, function), name, parallelism, name)

    def then(self, operator: OperatorSpec) -> Stream:
        """Chain any operator to the last vertex. A keyed operator sees the keys of its partitioning."""
        return self._followed(_given(operator), operator.uid, None, self._width, Chaining.ALWAYS)

    def union(self, *others: Stream) -> Stream:
        """Mix in the records of other streams, in no particular order. All streams have the same columns."""
        for other in others:
            _require_stream("union", other)
            _require_open(other)
            _require_same_job(self.job, other.job)
        _require_open(self)
        return replace(self, ends=(*self.ends, *(end for other in others for end in other.ends)))

    def iterate(self, body: Callable[[Stream], tuple[Stream, Stream]]) -> Stream:
        """Lead records round a loop.

        ``body`` is given this stream, mixed with everything that comes back, and returns two streams: what goes round
        again, of the same columns, and what goes on. The job ends when no record is in the loop any more; so each
        record must leave the loop after some turns, and no operator in it may emit at the end of its input. A job with
        a loop cannot run with checkpoints in at-least-once mode.
        """
        _require_open(self)
        back = Back()
        begin = Step(self._width, kind="what comes back", back=back)
        again, onward = body(replace(self, ends=(*self.ends, Feed(begin))))
        for stream in (again, onward):
            _require_stream("iterate", stream)
            _require_same_job(self.job, stream.job)
        _require_open(again)
        if any(end.step.back is not None for end in again.ends):
            raise JobUsageError("iterate: what goes round again must pass an operator first")
        back.feeds = again.ends
        return onward

    def broadcast(self) -> Stream:
        """Send every record to all subtasks of the next step."""
        return self._sent(Partitioning.BROADCAST)

    def rebalance(self) -> Stream:
        """Send batches to the subtasks of the next step in turn."""
        return self._sent(Partitioning.REBALANCE)

    def forward(self) -> Stream:
        """Send the records of subtask i to subtask i of the next step, which gets a vertex of its own."""
        return self._sent(Partitioning.FORWARD)

    def side_output(self, name: str) -> Stream:
        """Go on with what the last operator emits to one of its side outputs, as late records of a window."""
        _require_open(self)
        return replace(self, ends=tuple(replace(end, output=name) for end in self.ends))

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition by the values of columns; ``aggregate``, ``window``, ``process``, ``connect``, ``join`` follow."""
        if not columns:
            raise JobUsageError("key_by needs at least one column")
        _require_distinct("key_by", columns)
        self._require_undecided()
        return KeyedStream(self, columns)

    def connect(self, *others: Stream) -> ConnectedStreams:
        """Lead several streams into one step that tells them apart; ``process`` follows."""
        for other in others:
            _require_stream("connect", other)
        return ConnectedStreams((self, *others))

    def aggregate(self, *arguments: Any, **options: Any) -> Stream:
        """Refuse: only a keyed stream can be aggregated."""
        raise JobUsageError("aggregate needs keys: write .key_by(column, ...).aggregate(...)")

    def sink(
        self, sink: OperatorSpec, parallelism: int | None = None, name: str | None = None, chain: bool = True
    ) -> Stream:
        """End in a sink: any spec of an operator.

        It joins the last vertex if it is equally wide and ``chain`` holds; otherwise it gets a vertex of
        its own, called ``name`` ("sink" if not given).
        """
        width = self._width if parallelism is None else parallelism
        chaining = Chaining.IF_POSSIBLE if chain else Chaining.NEVER
        ended = self._followed(_given(sink), sink.uid, name or "sink", width, chaining)
        return replace(ended, has_sink=True)

    def build(self) -> JobGraph:
        """Return the graph of a job that has this one sink; raises JobUsageError as ``StreamJob.build``."""
        return self.job.build(self)

    @property
    def _width(self) -> int:
        return self.ends[0].step.parallelism

    def _then(
        self,
        kind: str,
        make: Callable[[str], OperatorSpec],
        name: str | None,
        parallelism: int | None,
        uid: str | None,
    ) -> Stream:
        """Append an operator: to the last vertex, or as a vertex of its own if a name or a width asks for one."""
        width = self._width if parallelism is None else parallelism
        chaining = Chaining.IF_POSSIBLE if name is None else Chaining.NEVER
        return self._followed(make, uid, name, width, chaining, kind)

    def _followed(
        self,
        make: Callable[[str], OperatorSpec],
        uid: str | None,
        name: str | None,
        width: int,
        chaining: Chaining,
        kind: str = "",
    ) -> Stream:
        _require_open(self)
        step = Step(width, self.ends, make=make, uid=uid, kind=kind, name=name, chaining=chaining)
        return Stream(self.job, (Feed(step),))

    def _sent(self, partitioning: Partitioning) -> Stream:
        self._require_undecided()
        return replace(self, ends=tuple(replace(end, partitioning=partitioning) for end in self.ends))

    def _require_undecided(self) -> None:
        _require_open(self)
        decided = [end.partitioning for end in self.ends if end.partitioning is not None]
        if decided:
            raise JobUsageError(
                f"where the records go is decided already: {decided[0].value}() comes before; leave one out"
            )


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream with keys; a step that keeps state for each key makes it a stream again."""

    stream: Stream
    key: tuple[str, ...]

    def aggregate(
        self,
        aggregates: Mapping[str, Aggregate],
        emit: Emission = Emission.CHANGES,
        carry: tuple[str, ...] = (),
        parallelism: int | None = None,
        name: str = "aggregate",
        combine: bool = False,
    ) -> Stream:
        """Keep running aggregates per key: output column -> aggregate.

        ``name`` names the vertex and the operator; state is found under it after a restart. ``carry``
        names input columns to repeat in each row (EACH_RECORD only). ``combine`` aggregates each batch
        before the shuffle, which pays off when a batch holds many records per key; it excludes EACH_RECORD.
        """
        if not 1 <= len(aggregates) <= AGGREGATES_MAX:
            raise JobUsageError(f"aggregate takes 1 to {AGGREGATES_MAX} aggregates, not {len(aggregates)}")
        _require_distinct("the output of aggregate", (*carry, *self.key, *aggregates))
        if carry and emit is not Emission.EACH_RECORD:
            raise JobUsageError(
                f"carry={carry!r} needs emit=Emission.EACH_RECORD: other rows stand for many records"
            )
        if combine and emit is Emission.EACH_RECORD:
            raise JobUsageError(
                "combine merges records before they are counted, so it excludes Emission.EACH_RECORD"
            )
        keyed, kept = self, dict(aggregates)
        if combine:
            keyed, kept = self._combined(f"{name}.combine", kept), merging_aggregates(kept)
        return _meeting((keyed,), AggregateSpec(name, self.key, kept, emit, carry), parallelism)

    def process(
        self,
        function: Callable[[], Any] | PerSubtask,
        parallelism: int | None = None,
        name: str = "process",
        chain: bool = False,
        timers: bool = False,
        event_time: bool = False,
        side_outputs: tuple[str, ...] = (),
    ) -> Stream:
        """Give every record to a function with states of its own per key; ``function`` makes one per subtask.

        It is a ``KeyedFunction``; with ``timers`` a ``TimedFunction``, which may also act on a key later; with
        ``event_time`` an ``EventTimeFunction``, which may do so in event time, too, and has ``side_outputs``. ``name``
        names the vertex and the operator; state is found under it after a restart. With ``chain`` it joins the vertex
        before it, whose input must have the same keys: operators in between must leave the key's columns as they are.
        """
        operator = _keyed_process(name, (self.key,), function, timers, event_time, side_outputs)
        if not chain:
            return _meeting((self,), operator, parallelism)
        last = self.stream.ends[0].step
        width = last.parallelism if parallelism is None else parallelism
        if not all(end.step.is_partitioned_by(self.key, width) for end in self.stream.ends):
            raise JobUsageError(
                f"{name!r} cannot be chained to {last.label!r}: that has {last.parallelism} subtasks and is not "
                f"partitioned by {self.key!r} into {width}; leave out chain=True"
            )
        return self.stream.then(operator)

    def window(
        self,
        assigner: WindowAssigner,
        time: str,
        aggregates: Mapping[str, Aggregate],
        lateness_ms: int = 0,
        trigger: Trigger | None = None,
        parallelism: int | None = None,
        name: str = "window",
    ) -> Stream:
        """Aggregate the records of each key by windows in event time (EVT-2); ``time`` is the column with it (ms).

        A window fires when the watermark has passed its end, and once more for each record that is late by less than
        ``lateness_ms``. Later ones go to ``.side_output("late")``. ``trigger`` fires windows early, too. ``name`` names
        the vertex and the operator; state is found under it after a restart.
        """
        if not 1 <= len(aggregates) <= AGGREGATES_MAX:
            raise JobUsageError(f"window takes 1 to {AGGREGATES_MAX} aggregates, not {len(aggregates)}")
        windows = window_aggregate(name, self.key, assigner, time, aggregates, lateness_ms, trigger)
        return _meeting((self,), windows, parallelism)

    def top_n(
        self,
        top: Top,
        assigner: WindowAssigner,
        time: str,
        columns: Columns,
        parallelism: int | None = None,
        name: str = "top",
    ) -> Stream:
        """Pass on the first rows of each window and key, with their rank, when the window ends.

        ``time`` is the column with the event time (ms). A row has the key, the bounds of the window, the rank, and
        ``columns`` of the input, or a mapping from output column to column. Late records go to
        ``.side_output("late")``. ``name`` names the vertex and the operator; state is found under it after a restart.
        """
        return _meeting((self,), top_n(name, self.key, top, assigner, time, columns), parallelism)

    def deduplicate(
        self, time: str, horizon_ms: int, parallelism: int | None = None, name: str = "deduplicate"
    ) -> Stream:
        """Pass on the first record of each key, and drop those whose event times differ from it by the horizon or less.

        ``time`` is the column with the event time (ms). Late records go to ``.side_output("late")``. ``name`` names
        the vertex and the operator; state is found under it after a restart.
        """
        return _meeting((self,), deduplicate(name, self.key, time, horizon_ms), parallelism)

    def connect(self, *others: KeyedStream) -> ConnectedKeyedStreams:
        """Lead several keyed streams into one step: equal keys of all meet in one subtask.

        ``process``, ``interval_join`` or ``window_join`` follows.
        """
        for other in others:
            _require_keyed("connect", other)
        return ConnectedKeyedStreams((self, *others))

    def join(
        self,
        other: KeyedStream,
        left: Columns,
        right: Columns,
        parallelism: int | None = None,
        name: str = "join",
    ) -> Stream:
        """Pair each row with every row of the other stream that has the same key; rows are kept for good.

        ``left`` and ``right`` say what a pair consists of: columns of this stream and of the other, or a mapping from
        output column to column that gives them other names. ``name`` names the vertex and the operator.
        """
        _require_keyed("join", other)
        join = Join(name, self.key, other.key, as_mapping(left), as_mapping(right))
        return _meeting((self, other), join, parallelism)

    def _combined(self, uid: str, aggregates: Mapping[str, Aggregate]) -> KeyedStream:
        """Return the stream with a partial aggregation at the end of each stream of its union."""
        stream, spec = self.stream, Combine(uid, self.key, aggregates, self.stream.job.max_parallelism)
        ends: list[Feed] = []
        for number, end in enumerate(stream.ends, start=1):
            own = spec if len(stream.ends) == 1 else replace(spec, uid=f"{uid}-{number}")
            step = Step(
                end.step.parallelism,
                (end,),
                make=_given(own),
                uid=own.uid,
                chaining=Chaining.IF_POSSIBLE,
            )
            ends.append(Feed(step))
        return replace(self, stream=replace(stream, ends=tuple(ends)))

    def __getattr__(self, step: str) -> Any:
        """Refuse any other step, and say which ones may follow."""
        raise _cannot_follow(
            "key_by", step, "aggregate, window, top_n, deduplicate, process, connect or join"
        )


@dataclass(frozen=True, slots=True)
class ConnectedStreams:
    """Several streams on their way into one step; ``process`` makes them one."""

    streams: tuple[Stream, ...]

    def connect(self, *others: Stream) -> ConnectedStreams:
        for other in others:
            _require_stream("connect", other)
        return ConnectedStreams((*self.streams, *others))

    def process(self, function: Any, parallelism: int | None = None, name: str = "process") -> Stream:
        """Replace every record by the rows that ``function`` returns for the row and the number of its input.

        Inputs are numbered from 0, in the order of connecting. The function must keep nothing between records that
        would have to survive a failure. ``name`` names the vertex and the operator.
        """
        operator = CoFlatMap(name, _several(self.streams), function)
        feeds = [
            replace(end, input=number) for number, stream in enumerate(self.streams) for end in stream.ends
        ]
        return _begun(self.streams, feeds, operator, parallelism)

    def __getattr__(self, step: str) -> Any:
        """Refuse any other step, and say which ones may follow."""
        raise _cannot_follow("connect", step, "process")


@dataclass(frozen=True, slots=True)
class ConnectedKeyedStreams:
    """Several keyed streams on their way into one step: ``process``, ``interval_join`` or ``window_join``."""

    streams: tuple[KeyedStream, ...]

    def connect(self, *others: KeyedStream) -> ConnectedKeyedStreams:
        """Lead more keyed streams into the step."""
        for other in others:
            _require_keyed("connect", other)
        return ConnectedKeyedStreams((*self.streams, *others))

    def process(
        self,
        function: Callable[[], Any] | PerSubtask,
        parallelism: int | None = None,
        name: str = "process",
        timers: bool = False,
        event_time: bool = False,
        side_outputs: tuple[str, ...] = (),
    ) -> Stream:
        """Give every record, with its input's number, to a function with states that all inputs share.

        Inputs are numbered from 0, in the order of connecting; ``function`` makes a ``KeyedCoFunction`` per subtask,
        with ``timers`` a ``TimedFunction``, with ``event_time`` an ``EventTimeFunction``, which has ``side_outputs``.
        ``name`` names the vertex and the operator; state is found under it after a restart.
        """
        keys = tuple(keyed.key for keyed in self.streams)
        require_joinable(name, keys)
        operator = _keyed_process(name, keys, function, timers, event_time, side_outputs)
        return _meeting(self.streams, operator, parallelism)

    def interval_join(
        self,
        within: Within,
        left: JoinSide,
        right: JoinSide,
        time: str = "time",
        form: JoinForm = JoinForm.INNER,
        parallelism: int | None = None,
        name: str = "interval_join",
    ) -> Stream:
        """Pair rows of two streams with equal keys whose event times differ by what ``within`` says.

        The first stream is the left side. ``left`` and ``right`` say where their event times are and what a pair
        consists of; ``time`` is the output column with its event time (ms). Late records go to
        ``.side_output("late")``. ``name`` names the vertex and the operator; state is found under it after a restart.
        """
        keys = tuple(keyed.key for keyed in self.streams)
        return _meeting(self.streams, interval_join(name, keys, within, left, right, time, form), parallelism)

    def window_join(
        self,
        assigner: WindowAssigner,
        left: JoinSide,
        right: JoinSide,
        form: JoinForm = JoinForm.INNER,
        parallelism: int | None = None,
        name: str = "window_join",
    ) -> Stream:
        """Pair rows of two streams with equal keys in the same tumbling or sliding window, when that ends.

        The first stream is the left side. ``left`` and ``right`` say where their event times are and what a pair
        consists of; the bounds of the window come behind. Late records go to ``.side_output("late")``; there is no
        allowed lateness. ``name`` names the vertex and the operator; state is found under it after a restart.
        """
        keys = tuple(keyed.key for keyed in self.streams)
        return _meeting(self.streams, window_join(name, keys, assigner, left, right, form), parallelism)

    def __getattr__(self, step: str) -> Any:
        """Refuse any other step, and say which ones may follow."""
        raise _cannot_follow("connect", step, "process, interval_join or window_join")


def _keyed_process(
    name: str,
    keys: tuple[tuple[str, ...], ...],
    function: Callable[[], Any] | PerSubtask,
    timers: bool,
    event_time: bool,
    side_outputs: tuple[str, ...],
) -> OperatorSpec:
    if event_time:
        return EventTimeProcess(name, keys, function, side_outputs)
    if side_outputs:
        raise JobUsageError(f"{name!r}: only a function with event_time=True has side outputs")
    if timers:
        return TimedProcess(name, keys, function)
    if len(keys) == 1:
        return KeyedProcess(name, keys[0], function)
    return KeyedCoProcess(name, keys, function)


def _meeting(inputs: Sequence[KeyedStream], operator: OperatorSpec, parallelism: int | None) -> Stream:
    """Return what follows a shuffle of all inputs by their keys."""
    feeds = [
        Feed(end.step, Partitioning.HASH, keyed.key, number)
        for number, keyed in enumerate(inputs)
        for end in keyed.stream.ends
    ]
    return _begun([keyed.stream for keyed in inputs], feeds, operator, parallelism)


def _begun(
    streams: Sequence[Stream], feeds: Sequence[Feed], operator: OperatorSpec, parallelism: int | None
) -> Stream:
    """Return what follows an operator that begins a vertex of its own name."""
    job = streams[0].job
    for stream in streams:
        _require_open(stream)
        _require_same_job(job, stream.job)
    width = feeds[0].step.parallelism if parallelism is None else parallelism
    step = Step(width, tuple(feeds), make=_given(operator), uid=operator.uid)
    return Stream(job, (Feed(step),))


def _given(operator: OperatorSpec) -> Callable[[str], OperatorSpec]:
    """Return a factory for an operator that has its uid already."""
    return lambda _uid: operator


def _several(streams: Sequence[Stream]) -> int:
    if len(streams) < 2:
        raise JobUsageError("connect needs another stream")
    return len(streams)


def _cannot_follow(after: str, step: str, what: str) -> Exception:
    if step.startswith("_"):
        return AttributeError(step)
    return JobUsageError(f"{step} cannot follow {after}; {what} comes first")


def _require_distinct(where: str, columns: tuple[str, ...]) -> None:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise JobUsageError(f"{where} has the column {twice[0]!r} twice")


def _require_open(stream: Stream) -> None:
    if stream.has_sink:
        raise JobUsageError("nothing can follow a sink; continue from the stream before it")


def _require_same_job(job: StreamJob, other: StreamJob) -> None:
    if other != job:
        raise JobUsageError(
            f"the streams belong to different jobs, {job} and {other}; begin both with one StreamJob"
        )


def _require_stream(step: str, other: object) -> None:
    if not isinstance(other, Stream):
        raise JobUsageError(f"{step} takes streams without keys here, not a {type(other).__name__}")


def _require_keyed(step: str, other: object) -> None:
    if not isinstance(other, KeyedStream):
        raise JobUsageError(
            f"{step} takes keyed streams here, not a {type(other).__name__}: write .key_by(...) first"
        )
