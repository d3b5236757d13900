"""Sources aligned by watermark: what is allowed, who is not waited for, and what is not read (EVT-6).

Grain: the machine; the machines of a job over attempts; a subtask's part; the job API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.operators.api import NothingYet
from barrier_tck.reference_impl.operators.functions import Count
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource, Gap
from barrier_tck.reference_impl.operators.watermark_strategies import BoundedOutOfOrder, WatermarkAlignment
from barrier_tck.reference_impl.operators.windows import Tumbling
from barrier_tck.reference_impl.protocol.messages import AllowWatermark, SourceWatermark
from barrier_tck.reference_impl.protocol.source_alignment import SourceAlignment
from barrier_tck.reference_impl.protocol.source_alignment_commands import AnnounceBound
from barrier_tck.reference_impl.protocol.source_alignment_states import SourceAlignmentState
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME, END_OF_TIME
from barrier_tck.reference_impl.runtime.aligned_source import REPORTS, AlignedSource
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.source_coordination import SourceCoordination
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_event_time import SourceEventTime
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError

ATTEMPT = AttemptNumber(1)
A, B, C = SubtaskId("a", 0), SubtaskId("b", 0), SubtaskId("b", 1)
MEMBERS = A, B, C
DRIFT = 100


def said(subtask: SubtaskId, at_ms: int, idle: bool = False, ended: bool = False) -> SourceWatermark:
    return SourceWatermark(ATTEMPT, subtask, at_ms, idle, ended)


def group_at(*reports: SourceWatermark) -> SourceAlignment:
    """Return a machine of all members that has taken these reports."""
    machine = SourceAlignment("g", DRIFT, MEMBERS)
    for report in reports:
        machine.handle(report)
    return machine


def allowed(machine: SourceAlignment, report: SourceWatermark) -> int:
    (command,) = machine.handle(report)
    return command.largest_ms


# --- the machine --------------------------------------------------------------------------------------------


def test_nothing_is_announced_until_every_member_has_reported() -> None:
    machine = SourceAlignment("g", DRIFT, MEMBERS)
    assert machine.handle(said(A, 10)) == machine.handle(said(B, 5)) == machine.handle(said(A, 11)) == ()
    assert machine.waiting_for() == "the group g of aligned sources waits for the first report of b[1]"
    reports = said(A, 11), said(B, 5), said(C, 7)
    assert machine.handle(said(C, 7)) == (AnnounceBound(MEMBERS, 105, reports),)
    assert machine.waiting_for().endswith("may read up to 105 ms, and waits for b[0]")


def test_a_report_that_changes_nothing_is_answered_alone_so_that_a_lost_answer_comes_again() -> None:
    machine = group_at(said(A, 11), said(B, 5), said(C, 7))
    assert machine.handle(said(A, 90)) == (AnnounceBound((A,), 105),)
    assert machine.handle(said(A, 90)) == (AnnounceBound((A,), 105),)
    assert machine.handle(said(B, 8))[0].subtasks == MEMBERS


@pytest.mark.parametrize("how", [{"idle": True}, {"ended": True}])
def test_one_that_is_idle_or_has_ended_holds_back_none(how: dict[str, bool]) -> None:
    machine = group_at(said(A, 11), said(B, 5), said(C, 70))
    assert allowed(machine, said(B, 5, **how)) == 111
    assert allowed(machine, said(A, 11, **how)) == 170
    assert allowed(machine, said(C, 70, **how)) == END_OF_TIME
    assert machine.state is SourceAlignmentState.FREE
    assert machine.waiting_for() == ""


def test_an_idle_one_that_comes_back_behind_the_others_is_waited_for() -> None:
    machine = group_at(said(A, 500), said(B, 5, idle=True), said(C, 400))
    assert allowed(machine, said(A, 500)) == 500
    assert allowed(machine, said(B, 6)) == 106


def test_the_slowest_may_always_read_and_the_end_of_time_is_not_passed() -> None:
    machine = group_at(said(A, BEGINNING_OF_TIME), said(B, 0), said(C, 0))
    assert allowed(machine, said(A, BEGINNING_OF_TIME)) == BEGINNING_OF_TIME + DRIFT
    ends = [said(one, END_OF_TIME - 1) for one in MEMBERS]
    assert allowed(group_at(*ends), ends[0]) == END_OF_TIME


def test_a_report_of_a_stranger_is_illegal() -> None:
    with pytest.raises(ProtocolError, match="the members are"):
        group_at().handle(said(SubtaskId("c", 0), 1))


# --- the machines of a job ----------------------------------------------------------------------------------

ALIGNED = WatermarkAlignment("g", DRIFT, 50.0)
ROWS = tuple({"k": "x", "ts": number * 40} for number in range(6))
SLOW = CollectionSource((("slow", ROWS), ("slower", ROWS)), 1, in_turn=True)
FAST = CollectionSource(
    (("fast", tuple({"k": "x", "ts": number * 400} for number in range(6))),), 1, in_turn=True
)


def job_of(
    *alignments: WatermarkAlignment | None, widths: tuple[int, ...] = (1, 2), **options: Any
) -> JobGraph:
    """Return a job whose sources are named a, b and so on, each with its alignment."""
    job = StreamJob("job")
    ends = []
    for name, width, alignment in zip("abc", widths, alignments, strict=False):
        given: dict[str, Any] = {"watermarks": BoundedOutOfOrder("ts"), **options}
        stream = job.source(SLOW, width, name, alignment=alignment, **given)
        window = stream.key_by("k").window(Tumbling(100), "ts", {"n": Count()}, name=f"window-{name}")
        ends.append(window.sink(FileSink(f"out-{name}", uid=f"out-{name}"), name=f"out-{name}"))
    return job.build(*ends)


def test_reports_of_another_attempt_mean_nothing() -> None:
    sources, graph = SourceCoordination(), job_of(ALIGNED, ALIGNED)
    sources.attempt_started(ATTEMPT, graph)
    for report in (said(A, 900), said(B, 900)):
        assert sources.on_report(report) == ()
    sources.attempt_ended()
    assert sources.on_report(said(C, 900)) == ()
    second = AttemptNumber(2)
    sources.attempt_started(second, graph)
    assert sources.on_report(said(C, 900)) == ()
    assert [sources.on_report(SourceWatermark(second, one, 7)) for one in (A, B)] == [(), ()]
    ((group, command),) = sources.on_report(SourceWatermark(second, C, 8))
    assert (group, command.largest_ms, command.subtasks) == ("g", 107, MEMBERS)


def test_each_group_waits_for_its_own_members_and_a_wider_job_for_all_of_them() -> None:
    sources = SourceCoordination()
    graph = job_of(ALIGNED, replace(ALIGNED, group="other"), widths=(1, 1))
    sources.attempt_started(ATTEMPT, graph)
    ((group, command),) = sources.on_report(said(A, 3))
    assert (group, command.subtasks) == ("g", (A,))
    sources.attempt_started(ATTEMPT, graph.at_widths({"a": 2}))
    assert sources.on_report(said(A, 3)) == ()
    assert sources.waiting_for()[0].endswith("the first report of a[1]")
    assert SourceCoordination().on_report(said(A, 3)) == ()


# --- a subtask's part ---------------------------------------------------------------------------------------


@dataclass
class World:
    """The ports of one subtask that are used here."""

    now: float = 0.0
    sent: list[Any] = field(default_factory=list)
    timers: dict[str, float] = field(default_factory=dict)

    def now_ms(self) -> float:
        return self.now

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def set(self, name: str, at_ms: float) -> None:
        self.timers[name] = at_ms

    def send_data(self, channel: int, payload: Any) -> None:
        """Take what is sent to the windows."""

    def send_control(self, channel: int, element: Any) -> None:
        """Take what is sent to the windows."""


class Subtask:
    """A source subtask that reads batches of one record, without a driver around it."""

    def __init__(self, source: CollectionSource, idle_after_ms: float | None = None) -> None:
        graph = job_of(ALIGNED, watermarks=BoundedOutOfOrder("ts", idle_after_ms=idle_after_ms))
        self.world, plane = World(), RowPlane()
        ports = cast("SubtaskPorts", _Ports(self.world))
        self.reader = source.open(0, 1, cast("Any", None), plane)
        router = Router(graph, A, plane, self.world)
        self.time = SourceEventTime(graph, A, (), router, plane, self.reader, self.world)
        deployment = SubtaskDeployment("job", A, ATTEMPT, JobConfig())
        aligned = AlignedSource.of(graph, deployment, ports, self.time, self.reader)
        assert aligned is not None
        self.aligned = aligned

    def poll(self) -> str:
        """Return the split that was read, ``held`` or ``end``."""
        self.aligned.pause_ahead()
        payload = self.reader.poll()
        if payload is None:
            return "end"
        if isinstance(payload, NothingYet):
            self.time.nothing_yet(_nothing)
            return "held"
        self.time.before_batch(_nothing)
        self.time.after_batch(payload, _nothing)
        return self.reader.split

    def allow(self, largest_ms: int) -> None:
        self.aligned.allow(AllowWatermark(largest_ms))

    def reported(self) -> SourceWatermark:
        self.aligned.report()
        message: SourceWatermark = self.world.sent[-1]
        return message


class _Ports:
    def __init__(self, world: World) -> None:
        self.coordinator = self.timers = self.clock = world


def _nothing(start: int, payload: Any) -> None:
    """Take what operators would take."""


def test_before_the_first_announcement_only_what_has_no_watermark_is_read() -> None:
    subtask = Subtask(SLOW)
    assert [subtask.poll() for _ in range(3)] == ["slow", "slower", "held"]
    subtask.allow(-1)
    assert [subtask.poll() for _ in range(3)] == ["slow", "slower", "held"]


def test_a_split_that_is_ahead_waits_and_the_others_are_read_on() -> None:
    subtask = Subtask(replace(SLOW, splits=(*SLOW.splits, *FAST.splits)))
    subtask.allow(150)
    read = [subtask.poll() for _ in range(12)]
    assert read.count("fast") == 2, "the second batch led from -1 to 399, and 150 is allowed"
    assert read.count("slow") == read.count("slower") == 5, "the last batch begins at 119 and ends at 159"
    assert subtask.poll() == "held"
    assert subtask.reported() == said(A, 159), "a split that waits counts, and is not the slowest"
    subtask.allow(159)
    assert [subtask.poll() for _ in range(3)] == ["slow", "slower", "held"]


def test_what_is_allowed_may_become_less() -> None:
    subtask = Subtask(FAST)
    subtask.allow(END_OF_TIME)
    assert [subtask.poll() for _ in range(2)] == ["fast", "fast"]
    subtask.allow(398)
    assert subtask.poll() == "held"
    subtask.allow(399)
    assert subtask.poll() == "fast"


def test_the_end_is_reported_at_once_and_a_subtask_without_splits_has_ended() -> None:
    subtask = Subtask(SLOW)
    subtask.allow(END_OF_TIME)
    while subtask.poll() != "end":
        assert not subtask.reported().ended
    assert subtask.reported().ended
    assert Subtask(replace(SLOW, splits=())).reported().ended


def test_the_time_in_which_a_split_is_paused_does_not_make_it_idle() -> None:
    gap = Gap("fast", 1, polls=3, wait_ms=1.0)
    subtask = Subtask(replace(FAST, gaps=(gap,)), idle_after_ms=10.0)
    subtask.allow(-1)
    assert [subtask.poll() for _ in range(2)] == ["fast", "held"], "it has no record, and is asked"
    subtask.allow(-2)
    subtask.world.now = 1_000.0
    assert subtask.poll() == "held"
    assert subtask.reported().active, "it was paused for a second, and not asked"
    subtask.allow(-1)
    assert subtask.poll() == "held"
    assert subtask.reported().active, "its time begins anew"
    subtask.world.now = 1_010.0
    assert subtask.poll() == "held"
    assert subtask.reported().idle


def test_reports_are_repeated_in_time() -> None:
    subtask = Subtask(SLOW)
    subtask.world.now = 7.0
    subtask.aligned.report()
    assert subtask.world.timers == {REPORTS: 57.0}


# --- the job API --------------------------------------------------------------------------------------------


def test_mistakes_are_told() -> None:
    with pytest.raises(JobUsageError, match="needs a name"):
        WatermarkAlignment("", 1)
    with pytest.raises(JobUsageError, match="max_drift_ms must be 0 or more, not -1"):
        WatermarkAlignment("g", -1)
    with pytest.raises(JobUsageError, match="update_interval_ms must be above 0, not 0"):
        WatermarkAlignment("g", 1, 0)
    with pytest.raises(JobUsageError, match="all sources of a group need the same"):
        job_of(ALIGNED, replace(ALIGNED, max_drift_ms=7))
    with pytest.raises(JobUsageError, match="'a' is aligned by watermark and makes none"):
        job_of(ALIGNED, watermarks=None)


def test_a_job_knows_its_groups() -> None:
    graph = job_of(ALIGNED, None, ALIGNED, widths=(1, 1, 1))
    assert graph.alignments == (ALIGNED,)
    assert [vertex.name for vertex in graph.aligned_sources("g")] == ["a", "c"]
    assert job_of(None).alignments == ()
