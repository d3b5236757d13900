"""Which public options of event time a plan sets: by the kinds and parameters of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.workloads.event_time_parameters import BOUND, DRIFT, GAPS, IDLE_AFTER, REPORT
from barrier_tck.harness.workloads.joined_records import FORMS


class JobOfPlan(Protocol):
    """A plan, and the world in which it runs."""

    @property
    def plan(self) -> FilledPlan: ...

    @property
    def on_spark(self) -> bool: ...


Rule = Callable[[Any], bool]


def _steps(job: JobOfPlan, *kinds: str) -> Iterator[tuple[bool, bool, OperatorPlan]]:
    """Yield the operators of some kinds: whether each heads its vertex, and whether that is as wide as its senders."""
    for vertex in job.plan.job.vertices:
        widths = [
            job.plan.job.vertex(edge.source).parallelism for edge in job.plan.job.inputs_of(vertex.name)
        ]
        for operator in vertex.operators:
            if operator.kind in kinds:
                heads = operator.name == vertex.name
                yield heads, heads and any(width != vertex.parallelism for width in widths), operator


def _has(*kinds: str, parameter: str | None = None) -> Rule:
    return lambda job: any(
        parameter is None or parameter in operator.parameters for _, _, operator in _steps(job, *kinds)
    )


def _of_source(parameter: str) -> Rule:
    return lambda job: any(parameter in vertex.parameters for vertex in job.plan.job.sources)


def _form(form: str) -> Rule:
    return lambda job: any(
        one.parameters.get("form", "inner") == form for _, _, one in _steps(job, _INTERVAL, _WINDOW_JOIN)
    )


def _outer(kind: str) -> Rule:
    return lambda job: any(one.parameters.get("form", "inner") != "inner" for _, _, one in _steps(job, kind))


def _ordered(descending: bool) -> Rule:
    return lambda job: any(
        any(column.startswith("-") is descending for column in one.parameters["by"])
        for _, _, one in _steps(job, _TOP)
    )


def _in_world(rule: Rule, on_spark: bool) -> Rule:
    return lambda job: job.on_spark is on_spark and rule(job)


def _step(name: str, kind: str) -> dict[str, Rule]:
    """Return the rules of a step that has a parallelism and a name."""
    return {
        f"{name}()": _has(kind),
        f"{name}(parallelism)": lambda job: any(wide for _, wide, _ in _steps(job, kind)),
        f"{name}(name)": lambda job: any(heads for heads, _, _ in _steps(job, kind)),
    }


def _side_output(job: JobOfPlan) -> bool:
    return any(edge.output for edge in job.plan.job.edges)


def _late_of(kind: str) -> Rule:
    return lambda job: any(
        edge.output and any(one.kind == kind for one in job.plan.job.vertex(edge.source).operators)
        for edge in job.plan.job.edges
    )


_WINDOWS = "event_window"
_PROCESS = (_WINDOWS, "event_timer", "expiring")
_INTERVAL, _WINDOW_JOIN, _TOP = "event_interval_join", "event_window_join", "event_top_n"

RULES: Mapping[str, Rule] = {
    "BoundedOutOfOrder": _of_source(BOUND),
    "BoundedOutOfOrder.bound_ms": lambda job: any(
        vertex.parameters.get(BOUND) for vertex in job.plan.job.sources
    ),
    "BoundedOutOfOrder.idle_after_ms": _of_source(IDLE_AFTER),
    "WatermarkAlignment": _of_source(DRIFT),
    "WatermarkAlignment.update_interval_ms": _of_source(REPORT),
    "StreamJob.source(alignment)": _of_source(DRIFT),
    "CollectionSource.in_turn": _in_world(_of_source(BOUND), on_spark=False),
    "CollectionSource.gaps": _in_world(_of_source(GAPS), on_spark=False),
    "ParquetSource.in_turn": _in_world(_of_source(BOUND), on_spark=True),
    "ParquetSource.gaps": _in_world(_of_source(GAPS), on_spark=True),
    "Gap": _of_source(GAPS),
    "StreamJob.source(watermarks)": _of_source(BOUND),
    "EveryRecords": _has(_WINDOWS, parameter="every"),
    "Session": _has(_WINDOWS, parameter="gap_ms"),
    "Sliding": _has(_WINDOWS, parameter="slide_ms"),
    "Sliding.offset_ms": lambda job: any(
        {"slide_ms", "offset_ms"} <= set(one.parameters) for _, _, one in _steps(job, _WINDOWS)
    ),
    "Tumbling": lambda job: any(
        "size_ms" in one.parameters and "slide_ms" not in one.parameters
        for _, _, one in _steps(job, _WINDOWS)
    ),
    "Tumbling.offset_ms": lambda job: any(
        "offset_ms" in one.parameters and "slide_ms" not in one.parameters
        for _, _, one in _steps(job, _WINDOWS)
    ),
    "Stream.side_output()": _side_output,
    **_step("KeyedStream.window", _WINDOWS),
    "KeyedStream.window(lateness_ms)": _has(_WINDOWS, parameter="lateness_ms"),
    "KeyedStream.window(trigger)": _has(_WINDOWS, parameter="every"),
    **_step("KeyedStream.deduplicate", "event_deduplicate"),
    **_step("KeyedStream.top_n", _TOP),
    **_step("ConnectedKeyedStreams.interval_join", _INTERVAL),
    **_step("ConnectedKeyedStreams.window_join", _WINDOW_JOIN),
    "ConnectedKeyedStreams.interval_join(time)": _has(_INTERVAL),
    "ConnectedKeyedStreams.interval_join(form)": _outer(_INTERVAL),
    "ConnectedKeyedStreams.window_join(form)": _outer(_WINDOW_JOIN),
    # The harness puts a function of its own around that of a join, as a user's function with two inputs would be.
    "ConnectedKeyedStreams.process(event_time)": _has(_INTERVAL, _WINDOW_JOIN),
    "ConnectedKeyedStreams.process(side_outputs)": lambda job: (
        _late_of(_INTERVAL)(job) or _late_of(_WINDOW_JOIN)(job)
    ),
    **{f"JoinForm.{form.upper()}": _form(form) for form in FORMS},
    "JoinSide": _has(_INTERVAL, _WINDOW_JOIN),
    "Within": _has(_INTERVAL),
    "Top": _has(_TOP),
    "Top.rank": _has(_TOP),
    "Order.DESCENDING": _ordered(descending=True),
    "Order.ASCENDING": _ordered(descending=False),
    "TimeToLive": _has("expiring"),
    "TimeToLive.refreshed_by": _has("expiring", parameter="refreshed_by"),
    "RefreshedBy.WRITING": lambda job: any(
        one.parameters.get("refreshed_by", "writing") == "writing" for _, _, one in _steps(job, "expiring")
    ),
    "RefreshedBy.READING": lambda job: any(
        one.parameters.get("refreshed_by") == "reading" for _, _, one in _steps(job, "expiring")
    ),
    "KeyedStream.process(event_time)": _has(*_PROCESS),
    "KeyedStream.process(side_outputs)": _late_of(_WINDOWS),
}
"""Option -> whether a plan sets it."""
