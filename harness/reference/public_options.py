"""Every public option of the job API and of the configuration, and which of them a plan sets away from the default.

An option is a parameter or a field with a default, a value of an enumeration, one of several classes that may be given
in one place, a step of a stream, or a kind of state. They are read off the public names themselves, so a new one is
here at once; a graph or a configuration that is made from the plan says whether it is set. What no plan can set has its
reason in ``NOT_DRAWN``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from types import UnionType
from typing import Any

import msgspec

from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.reference import event_time_options
from barrier_tck.harness.reference.jobs import build_graph, job_config
from barrier_tck.harness.reference.spark.planned_options import options_of
from barrier_tck.harness.support.errors import InternalError
from barrier_tck.harness.workloads.workload_names import workload_named
from barrier_tck.reference_impl import config, job_api
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess
from barrier_tck.reference_impl.operators.functions import Aggregate, Emission, PerSubtask, Place
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, OperatorSpec, Partitioning, Vertex
from barrier_tck.reference_impl.operators.job import (
    ConnectedKeyedStreams,
    ConnectedStreams,
    KeyedStream,
    Stream,
    StreamJob,
)
from barrier_tck.reference_impl.operators.join import Join
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.operators.list_process import ListProcess, OperatorListState, OperatorStates
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, Combine, Filter, FlatMap, Map
from barrier_tck.reference_impl.operators.timed_process import TimedProcess
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.state.keyed import KeyedStates

NOT_DRAWN: Mapping[str, str] = {
    "JobConfig.storage_root": "a path: each trial has a directory of its own, and checkpoints lie below it",
    "SparkJobRunner(plane)": "a callback: Spark has the Arrow plane only, and the simulator the plane of rows",
    "session_settings(warm_daemon)": "of the session, which all trials of a cluster share; off is for executors that "
    "cannot import the package, and on those the harness could not judge a trial",
    "ParquetSource.repeat": "it reads the same files again, so ids would not be unique, by which records are judged",
}
"""Option -> why no plan sets it. It is for what is impossible: a path, a callback, what all trials have in common."""


@dataclass(frozen=True)
class PlannedJob:
    """What a plan makes of the reference runtime."""

    plan: FilledPlan
    on_spark: bool

    @cached_property
    def graph(self) -> JobGraph:
        """The job; its sources have no input."""
        nothing = CollectionSource((), 1)
        sources = {vertex.name: nothing for vertex in self.plan.job.sources}
        return build_graph(self.plan, workload_named(self.plan.workload.name), sources)

    @cached_property
    def config(self) -> JobConfig:
        """The configuration of the first job of the trial."""
        return job_config(self.plan)

    def steps(self, *specs: type) -> Iterator[tuple[Vertex, int, OperatorSpec]]:
        """Yield the operators of some classes, each with its vertex and its place in the chain."""
        for vertex in self.graph.vertices:
            for number, operator in enumerate(vertex.operators):
                if isinstance(operator, specs):
                    yield vertex, number, operator

    def has(self, *specs: type) -> bool:
        """Return whether there is an operator of one of these classes."""
        return any(True for _ in self.steps(*specs))

    def into(self, vertex: Vertex) -> list[Edge]:
        """Return the edges into a vertex, without those that lead back."""
        return [edge for edge in self.graph.edges if edge.target == vertex.name and not edge.feedback]

    def wide(self, *specs: type) -> bool:
        """Return whether such an operator heads a vertex that is not as wide as one before it."""
        widths = {vertex.name: vertex.parallelism for vertex in self.graph.vertices}
        return any(
            number == 0 and any(widths[edge.source] != vertex.parallelism for edge in self.into(vertex))
            for vertex, number, _ in self.steps(*specs)
        )

    def called(self, *specs: type, default: str) -> bool:
        """Return whether such an operator heads a vertex with a name of its own; no operator heads that of a source."""
        return any(
            number == 0 and vertex.source is None and vertex.name != default
            for vertex, number, _ in self.steps(*specs)
        )

    def sends(self, partitioning: Partitioning) -> bool:
        """Return whether an edge spreads records in this way."""
        return any(edge.partitioning is partitioning for edge in self.graph.edges)


def public_options() -> tuple[str, ...]:
    """Return the names of all options, in the order of the public names."""
    found: dict[str, None] = {}
    for public in _public_values():
        found |= dict.fromkeys(_options_of(public))
    return tuple(found)


def set_by(plan: FilledPlan, on_spark: bool) -> tuple[str, ...]:
    """Return the options that a plan sets away from their defaults; ``on_spark``: in a trial on Spark."""
    job = PlannedJob(plan, on_spark)
    found = dict.fromkeys(_set_in(job.config))
    if on_spark:
        found |= dict.fromkeys(_set_in(options_of(plan)))
    for _, _, spec in job.steps(AggregateSpec):
        assert isinstance(spec, AggregateSpec)
        found |= dict.fromkeys(
            [f"Emission.{spec.emit.name}", *(_name(one) for one in spec.aggregates.values())]
        )
    for _, _, spec in job.steps(Combine):
        assert isinstance(spec, Combine)
        found |= dict.fromkeys(_name(one) for one in spec.aggregates.values())
    for _, _, spec in job.steps(FileSink):
        found |= dict.fromkeys(_set_in(spec))
    found |= dict.fromkeys(_states_of(job))
    found |= {name: None for name, holds in _RULES.items() if holds(job)}
    return tuple(name for name in found if name in known_options())


@cache
def known_options() -> tuple[str, ...]:
    """Return ``public_options`` once for all."""
    return public_options()


# --- which options there are ----------------------------------------------------------------------------------


def _public_values() -> list[Any]:
    of_config = [
        value
        for name, value in vars(config).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == config.__name__
    ]
    of_jobs = [getattr(job_api, name) for name in job_api.__all__]
    streams = [Stream, KeyedStream, ConnectedStreams, ConnectedKeyedStreams]
    return list(dict.fromkeys([*of_config, *of_jobs, *streams]))


_STREAMS = (StreamJob, Stream, KeyedStream, ConnectedStreams, ConnectedKeyedStreams)
_STATES = (KeyedStates, OperatorStates)
_NOT_FOR_USERS = ("stored", "remove_what_is_over")
"""What operators call on states."""
_RESULTS = (
    "EventTimers",
    "JobEnd",
    "JobState",
    "CompletedCheckpoint",
    "JobGraph",
    "SparkJobObserver",
    "KeyedTimers",
    "AggregateFunction",
)
"""What the runtime gives to the user, or calls; it has no option that a job could set."""


def _options_of(public: Any) -> Iterator[str]:
    name = getattr(public, "__name__", "")
    if isinstance(public, UnionType) or not name or name in _RESULTS or name == "OperatorListState":
        return
    if inspect.isclass(public) and issubclass(public, Enum):
        yield from (f"{name}.{member.name}" for member in public)
    elif public in _STREAMS:
        if public is StreamJob:
            yield from _fields_of(public)
        for method, function in inspect.getmembers(public, inspect.isfunction):
            if method.startswith("_") or method == "build" or (public, method) == (Stream, "aggregate"):
                continue
            yield f"{name}.{method}()"
            yield from (f"{name}.{method}({parameter})" for parameter in _with_default(function))
    elif public in _STATES:
        methods = inspect.getmembers(public, inspect.isfunction)
        yield from (
            f"{name}.{method}()"
            for method, _ in methods
            if not method.startswith("_") and method not in _NOT_FOR_USERS
        )
    elif public is SparkJobRunner:
        yield from (f"{name}({parameter})" for parameter in _with_default(public.__init__))
    elif inspect.isclass(public):
        yield name
        yield from _fields_of(public)
    elif inspect.isfunction(public):
        yield from (f"{name}({parameter})" for parameter in _with_default(public))


def _fields_of(public: type) -> Iterator[str]:
    yield from (f"{public.__name__}.{field}" for field in _defaults(public))


def _defaults(public: type) -> dict[str, Any]:
    """Return field -> default, of the fields that have one."""
    if dataclasses.is_dataclass(public):
        return {
            entry.name: entry.default
            for entry in dataclasses.fields(public)
            if entry.default is not dataclasses.MISSING
        }
    if issubclass(public, msgspec.Struct):
        return {
            entry.name: entry.default
            for entry in msgspec.structs.fields(public)
            if entry.default is not msgspec.NODEFAULT
        }
    return {}


def _with_default(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    ]


# --- which of them are set ------------------------------------------------------------------------------------


def _set_in(value: Any) -> Iterator[str]:
    """Yield what a configuration sets, and what is in it."""
    if isinstance(value, Enum):
        yield f"{type(value).__name__}.{value.name}"
    if not (dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)):
        return
    kind: type[Any] = type(value)
    yield kind.__name__
    defaults = _defaults(kind)
    fields: list[str] = (
        [entry.name for entry in dataclasses.fields(value)]
        if dataclasses.is_dataclass(value)
        else list(kind.__struct_fields__)
    )
    for field in fields:
        found = getattr(value, field)
        if field in defaults and found != defaults[field]:
            yield f"{kind.__name__}.{field}"
        yield from _set_in(found)


def _name(aggregate: Aggregate) -> str:
    return type(aggregate).__name__


class _Noting:
    """Stands for the states of an operator, and notes which kinds of states it names; what it gives is empty."""

    def __init__(self, owner: type, found: dict[str, None]) -> None:
        self._owner, self._found = owner, found

    def __getattr__(self, method: str) -> Callable[..., OperatorListState[Any]]:
        self._found[f"{self._owner.__name__}.{method}()"] = None
        return lambda *_, **__: OperatorListState("", False, object, ())


def _states_of(job: PlannedJob) -> Iterator[str]:
    """Yield which kinds of states the functions of a job name when they are opened."""
    found: dict[str, None] = {}
    for vertex, _, spec in job.steps(
        KeyedProcess, KeyedCoProcess, TimedProcess, EventTimeProcess, ListProcess
    ):
        make = getattr(spec, "function")  # noqa: B009 - each of these specs has one
        place = Place(job.graph.name, SubtaskId(vertex.name, 0), vertex.parallelism, AttemptNumber(1))
        function = make.make(place) if isinstance(make, PerSubtask) else make()
        states = _Noting(OperatorStates if isinstance(spec, ListProcess) else KeyedStates, found)
        timers = 2 if isinstance(spec, EventTimeProcess) else int(isinstance(spec, TimedProcess))
        function.open(states, *([None] * timers))
    yield from found


_KEYED = (KeyedProcess, TimedProcess)
Rule = Callable[[PlannedJob], bool]


def _several_into_one(job: PlannedJob) -> bool:
    """Return whether a union leads into a vertex: several edges to the same input."""
    inputs = [(edge.target, edge.input) for edge in job.graph.edges if not edge.feedback]
    return len(set(inputs)) < len(inputs)


def _inputs(least: int, *specs: type) -> Rule:
    return lambda job: any(operator.inputs >= least for _, _, operator in job.steps(*specs))


def _sink_apart(job: PlannedJob) -> bool:
    """Return whether a sink that could be chained is a vertex of its own."""
    return any(
        number == 0 and any(edge.partitioning is Partitioning.FORWARD for edge in job.into(vertex))
        for vertex, number, _ in job.steps(FileSink)
    )


def _stateless(method: str, spec: type[OperatorSpec]) -> dict[str, Rule]:
    """``map``, ``filter`` and ``flat_map`` take these in one place; each of them shows its own only.

    Without a uid an operator is called by its kind and a number; without a name its vertex is called as the operator
    is. So whether a vertex has its name from a uid, too, cannot be seen.
    """
    numbered = re.compile(rf"{method}-\d+")

    def has_uid(job: PlannedJob) -> bool:
        return any(not numbered.fullmatch(operator.uid) for _, _, operator in job.steps(spec))

    def has_name(job: PlannedJob) -> bool:
        heads = (vertex for vertex, number, _ in job.steps(spec) if number == 0 and vertex.source is None)
        return any(not numbered.fullmatch(vertex.name) for vertex in heads)

    return {
        f"Stream.{method}()": lambda job: job.has(spec),
        f"Stream.{method}(name)": has_name,
        f"Stream.{method}(parallelism)": lambda job: job.wide(spec),
        f"Stream.{method}(uid)": has_uid,
    }


def _of_workload(field: str, on_spark: bool) -> Rule:
    return lambda job: bool(getattr(job.plan.workload, field)) and job.on_spark is on_spark


def _on_spark(job: PlannedJob) -> bool:
    return job.on_spark


_RULES: dict[str, Rule] = {
    **event_time_options.RULES,
    "StreamJob.max_parallelism": lambda job: job.graph.max_parallelism != StreamJob("job").max_parallelism,
    "StreamJob.source()": lambda _: True,
    "StreamJob.source(parallelism)": lambda job: any(
        v.source and v.parallelism > 1 for v in job.graph.vertices
    ),
    "StreamJob.source(name)": lambda job: any(v.source and v.name != "source" for v in job.graph.vertices),
    **_stateless("map", Map),
    **_stateless("filter", Filter),
    **_stateless("flat_map", FlatMap),
    "Stream.process()": lambda job: job.has(ListProcess),
    "Stream.process(name)": lambda job: job.called(ListProcess, default="process"),
    "Stream.process(parallelism)": lambda job: job.wide(ListProcess),
    "Stream.then()": lambda job: any(number > 0 for _, number, _ in job.steps(FlatMap, *_KEYED)),
    "Stream.union()": _several_into_one,
    "Stream.iterate()": lambda job: any(edge.feedback for edge in job.graph.edges),
    "Stream.broadcast()": lambda job: job.sends(Partitioning.BROADCAST),
    "Stream.rebalance()": lambda job: job.sends(Partitioning.REBALANCE),
    "Stream.forward()": lambda job: job.sends(Partitioning.FORWARD),
    "Stream.key_by()": lambda job: job.sends(Partitioning.HASH),
    "Stream.connect()": _inputs(2, CoFlatMap, ListProcess),
    "Stream.sink()": lambda job: job.has(FileSink),
    "Stream.sink(parallelism)": lambda job: job.wide(FileSink),
    "Stream.sink(name)": lambda job: job.called(FileSink, default="sink"),
    "Stream.sink(chain)": _sink_apart,
    "KeyedStream.aggregate()": lambda job: job.has(AggregateSpec),
    "KeyedStream.aggregate(emit)": lambda job: any(
        isinstance(spec, AggregateSpec) and spec.emit is not Emission.CHANGES
        for _, _, spec in job.steps(AggregateSpec)
    ),
    "KeyedStream.aggregate(carry)": lambda job: any(
        isinstance(spec, AggregateSpec) and spec.carry for _, _, spec in job.steps(AggregateSpec)
    ),
    "KeyedStream.aggregate(parallelism)": lambda job: job.wide(AggregateSpec),
    "KeyedStream.aggregate(name)": lambda job: job.called(AggregateSpec, default="aggregate"),
    "KeyedStream.aggregate(combine)": lambda job: job.has(Combine),
    "KeyedStream.process()": lambda job: job.has(*_KEYED),
    "KeyedStream.process(parallelism)": lambda job: job.wide(*_KEYED),
    "KeyedStream.process(name)": lambda job: job.called(*_KEYED, default="process"),
    "KeyedStream.process(chain)": lambda job: any(number > 0 for _, number, _ in job.steps(*_KEYED)),
    "KeyedStream.process(timers)": lambda job: job.has(TimedProcess),
    "KeyedStream.connect()": _inputs(2, KeyedCoProcess, TimedProcess),
    "KeyedStream.join()": lambda job: job.has(Join),
    "KeyedStream.join(parallelism)": lambda job: job.wide(Join),
    "KeyedStream.join(name)": lambda job: job.called(Join, default="join"),
    "ConnectedStreams.connect()": _inputs(3, CoFlatMap, ListProcess),
    "ConnectedStreams.process()": _inputs(2, CoFlatMap, ListProcess),
    "ConnectedStreams.process(parallelism)": lambda job: job.wide(CoFlatMap),
    "ConnectedStreams.process(name)": lambda job: job.called(CoFlatMap, default="process"),
    "ConnectedKeyedStreams.connect()": _inputs(3, KeyedCoProcess, TimedProcess),
    "ConnectedKeyedStreams.process()": _inputs(2, KeyedCoProcess, TimedProcess),
    "ConnectedKeyedStreams.process(parallelism)": lambda job: job.wide(KeyedCoProcess),
    "ConnectedKeyedStreams.process(name)": lambda job: job.called(KeyedCoProcess, default="process"),
    "ConnectedKeyedStreams.process(timers)": _inputs(2, TimedProcess),
    "CollectionSource": lambda job: not job.on_spark,
    "CollectionSource.rate_limit": _of_workload("records_per_second", on_spark=False),
    "CollectionSource.start_offset": _of_workload("start_offset", on_spark=False),
    "ParquetSource": _on_spark,
    "ParquetSource.columns": _on_spark,
    "ParquetSource.batch_rows": _on_spark,
    "ParquetSource.rate_limit": _of_workload("records_per_second", on_spark=True),
    "ParquetSource.start_offset": _of_workload("start_offset", on_spark=True),
    "JobConfig.start_from": lambda job: any(savepoint.stop for savepoint in job.plan.savepoints),
    "JobConfig.claim_savepoint": lambda job: any(savepoint.claim for savepoint in job.plan.savepoints),
    # The harness gives these in every trial: what observes it, the points at which faults strike, proxies.
    "SparkJobRunner(components)": _on_spark,
    "SparkJobRunner(options)": _on_spark,
    "SparkJobRunner(observer)": _on_spark,
    "SparkJobRunner(watched)": _on_spark,
    "SparkJobRunner(routes)": _on_spark,
}


def require_known() -> None:
    """Raise InternalError for a rule or a reason that is about no option."""
    unknown = [name for name in (*_RULES, *NOT_DRAWN) if name not in known_options()]
    if unknown:
        raise InternalError(f"there is no public option {unknown[0]!r}; a rule or a reason names it")
