"""What operators see of the clock while a subtask takes an element is one time, and it is recorded (EVT-5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.elements import ElementEntry, ReadClock, Stood, Took
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.observed_elements import ObservedClock
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.kinds.expiring import COUNTED
from barrier_tck.harness.workloads.workload_names import job_of

PLAN = TrialPlan(
    job=job_of("event-time", JobPlan("expiring")),
    workload=WorkloadPlan("event-time", batches=20, batch_records=2, keys=3, records_per_second=600),
    checkpoints=CheckpointPlan(interval_ms=10),
)


@dataclass
class Ticking:
    """A clock that goes on whenever it is asked."""

    ms: float = 10.75

    def now_ms(self) -> float:
        self.ms += 1.0
        return self.ms


@dataclass
class Noted:
    clock: ObservedClock = field(init=False)
    entries: list[ElementEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = ObservedClock(Ticking(), self.entries.append)


def test_it_stands_still_within_a_step_and_goes_on_behind_it() -> None:
    noted = Noted()
    assert (noted.clock.now_ms(), noted.clock.now_ms()) == (11.75, 12.75)
    for at_ms in (13.75, 14.75):
        with noted.clock.stands():
            assert {noted.clock.now_ms() for _ in range(3)} == {at_ms}
    assert noted.clock.now_ms() == 15.75
    assert noted.entries == [ReadClock(13), ReadClock(14)]


def test_a_step_in_which_nobody_asks_is_not_noted_and_one_within_another_is_by_itself() -> None:
    noted = Noted()
    with noted.clock.stands():
        pass
    assert not noted.entries
    with noted.clock.stands():
        noted.clock.now_ms()
        with noted.clock.stands("count"):
            noted.clock.now_ms()
        assert noted.clock.now_ms() == 11.75
    assert noted.entries == [ReadClock(11), ReadClock(12, "count")]


def test_it_goes_on_behind_a_step_that_fails() -> None:
    noted = Noted()
    with pytest.raises(ZeroDivisionError), noted.clock.stands():
        _ = 1 // 0
    assert noted.clock.now_ms() < noted.clock.now_ms()


def history_of(plan: TrialPlan, directory: Path) -> History:
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    assert result.history is not None
    return result.history


def test_the_time_is_known_of_each_batch_and_of_each_snapshot_of_state_with_a_time_to_live(
    tmp_path: Path,
) -> None:
    steps = 0
    for one in history_of(PLAN, tmp_path).elements or ():
        pairs = list(zip(one.entries, one.entries[1:], strict=False))
        for entry, behind in pairs:
            if one.subtask.startswith("count["):
                if isinstance(entry, Took):
                    assert isinstance(behind, ReadClock) and not behind.operator
                    steps += 1
                if isinstance(behind, Stood):
                    assert isinstance(entry, ReadClock) and entry.operator == "count"
            else:
                assert not isinstance(entry, ReadClock)
    assert steps > 10


def test_it_is_the_clock_of_the_host_also_where_that_is_ahead(tmp_path: Path) -> None:
    skewed = msgspec.structs.replace(
        PLAN, deployment=DeploymentPlan(executors=2, clock_skew_ms=(5_000, 5_000))
    )
    history = history_of(skewed, tmp_path)
    shown = [
        entry.at_ms for one in history.elements or () for entry in one.entries if isinstance(entry, ReadClock)
    ]
    used = [
        used_ms
        for view in history.checkpoints
        for part in view.state
        if part.name == COUNTED
        for used_ms, _ in part.entries.values()
    ]
    assert used and min(shown) >= 5_000 and set(used) <= set(shown)
