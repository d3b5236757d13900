"""The nemesis: scripted points and times, no system."""

from __future__ import annotations

import threading

import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import Targets, WriteFault
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.record.operations import FaultFired, FaultHealed, FaultStarted, HealingStarted
from barrier_tck.harness.trial.nemesis import RETRIES_MAX, RETRY_MS, Nemesis
from tests.harness.fake_system import FakeTargets

TAKEN = ProtocolPoint.SNAPSHOT_TAKEN
AIMED = ScheduledFault(KillExecutor("a[0]"), After(TAKEN, "a[0]", nth=2))
TIMED = ScheduledFault(CrashCoordinator(), At(20))


def bound(*schedule: ScheduledFault, missing: tuple[str, ...] = ()) -> Nemesis:
    nemesis = Nemesis(schedule)
    nemesis.bind(FakeTargets(missing), lambda: 7.0)
    return nemesis


def test_an_aimed_fault_fires_at_its_occurrence_and_never_again() -> None:
    nemesis = bound(AIMED)
    outcomes = []
    for attempt in (1, 1, 2, 2):
        nemesis.point_reached(TAKEN, "a[0]", attempt)
        outcomes.append(nemesis.records()[0].outcome)
    assert outcomes == ["not_fired", "fired", "fired", "fired"]
    (record,) = nemesis.records()
    assert (record.attempt, record.fired_at_ms, record.kind) == (1, 7.0, "kill_executor")
    assert [line.operation for line in nemesis.operations()] == [
        FaultStarted(0),
        FaultFired(0, "executor of a[0]"),
    ]


def test_occurrences_are_counted_over_all_attempts_and_for_the_named_subtask_only() -> None:
    nemesis = bound(AIMED)
    nemesis.point_reached(TAKEN, "a[1]", 1)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    nemesis.point_reached(TAKEN, "a[0]", 2)
    assert nemesis.records()[0].attempt == 2


def test_a_timed_fault_fires_when_its_time_has_come_even_if_floats_fall_short_of_it() -> None:
    nemesis = bound(TIMED)
    assert nemesis.next_time_ms() is None, "nothing has run yet"
    nemesis.time_reached(500.0)
    nemesis.first_attempt_ran()
    assert nemesis.next_time_ms() == 27.0
    nemesis.time_reached(26.0)
    assert nemesis.records()[0].outcome == "not_fired"
    nemesis.time_reached((0.1 + 27.0) - 0.1 - 1e-12)
    assert nemesis.records()[0].outcome == "fired"
    assert nemesis.next_time_ms() is None


def test_a_fault_that_never_came_says_why() -> None:
    aimed, timed = bound(AIMED, TIMED).records()
    assert aimed.reason == "its point was passed only 0 times"
    assert timed.reason == "the trial was over before its time came"


def test_a_timed_fault_whose_target_is_missing_looks_again_and_gives_up_in_the_end() -> None:
    nemesis = bound(TIMED, missing=("coordinator",))
    nemesis.first_attempt_ran()
    nemesis.time_reached(27.0)
    assert nemesis.next_time_ms() == 27.0 + RETRY_MS
    for _ in range(RETRIES_MAX):
        due = nemesis.next_time_ms()
        if due is not None:
            nemesis.time_reached(due)
    assert nemesis.next_time_ms() is None
    assert nemesis.records()[0].outcome == "skipped"


def test_an_aimed_fault_whose_target_is_missing_takes_the_next_occurrence() -> None:
    results = iter([Injection("skipped", reason="no worker now"), Injection("fired", "w")])
    nemesis = Nemesis(
        [ScheduledFault(KillWorker("a[0]"), After(TAKEN))], lambda fault, targets: next(results)
    )
    nemesis.bind(FakeTargets(), lambda: 1.0)
    nemesis.point_reached(TAKEN, "b[0]", 1)
    assert nemesis.records()[0].outcome == "skipped"
    nemesis.point_reached(TAKEN, "b[0]", 1)
    (record,) = nemesis.records()
    assert record.outcome == "fired" and "try 2" in record.reason


def test_a_raising_injector_is_recorded_and_not_tried_again() -> None:
    calls = []

    def broken(fault: Fault, targets: Targets) -> Injection:
        calls.append(fault)
        raise OSError("no permission")

    nemesis = Nemesis([ScheduledFault(KillWorker("a[0]"), After(TAKEN))], broken)
    nemesis.bind(FakeTargets(), lambda: 1.0)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    (record,) = nemesis.records()
    assert len(calls) == 1 and record.outcome == "not_fired" and "no permission" in record.reason


def test_many_threads_at_one_point_fire_a_fault_once() -> None:
    calls = []

    def slow(fault: Fault, targets: Targets) -> Injection:
        calls.append(fault)
        return Injection("fired", "x")

    nemesis = Nemesis([ScheduledFault(KillWorker("a[0]"), After(TAKEN, nth=3))], slow)
    nemesis.bind(FakeTargets(), lambda: 1.0)

    def pass_the_point() -> None:
        for _ in range(50):
            nemesis.point_reached(TAKEN, "a[0]", 1)

    threads = [threading.Thread(target=pass_the_point) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


class Clock:
    """A deployment's clock; the test moves it."""

    now = 7.0

    def __call__(self) -> float:
        return self.now


def lasting(*schedule: ScheduledFault) -> tuple[Nemesis, FakeTargets, Clock]:
    nemesis, targets, clock = Nemesis(schedule), FakeTargets(), Clock()
    nemesis.bind(targets, clock)
    return nemesis, targets, clock


CUT = ScheduledFault(CutChannel("a[0]", "b[0]", duration_ms=50), After(TAKEN, "a[0]"))


def test_a_lasting_fault_is_healed_after_its_duration_even_if_no_attempt_ever_ran() -> None:
    nemesis, targets, clock = lasting(CUT)
    assert nemesis.next_time_ms() is None
    nemesis.point_reached(TAKEN, "a[0]", 1)
    assert nemesis.next_time_ms() == 57.0
    clock.now = 56.0
    nemesis.time_reached(56.0)
    assert targets.links[0].healed == 0
    clock.now = 57.0
    nemesis.time_reached(57.0)
    assert targets.links[0].healed == 1
    assert nemesis.next_time_ms() is None
    (record,) = nemesis.records()
    assert (record.fired_at_ms, record.healed_at_ms) == (7.0, 57.0)
    found = [(type(line.operation), line.time_ms) for line in nemesis.operations()]
    assert found == [
        (FaultStarted, 7.0),
        (FaultFired, 7.0),
        (HealingStarted, 57.0),
        (FaultHealed, 57.0),
    ]


def test_a_fault_that_still_lasts_at_the_end_is_healed_then_and_only_once() -> None:
    nemesis, targets, clock = lasting(CUT, ScheduledFault(KillWorker("a[0]"), After(TAKEN)))
    nemesis.point_reached(TAKEN, "a[0]", 1)
    clock.now = 20.0
    nemesis.heal_all()
    nemesis.heal_all()
    assert targets.links[0].healed == 1
    assert [record.healed_at_ms for record in nemesis.records()] == [20.0, None]


def test_a_fault_that_fires_after_the_end_of_the_run_is_healed_at_once() -> None:
    nemesis, targets, _ = lasting(CUT)
    nemesis.heal_all()
    nemesis.point_reached(TAKEN, "a[0]", 1)
    assert targets.links[0].healed == 1
    assert nemesis.records()[0].healed_at_ms == 7.0


def test_a_healing_that_fails_is_recorded_and_does_not_keep_others_from_being_healed() -> None:
    def no_way() -> None:
        raise OSError("the proxy does not answer")

    healed: list[str] = []
    heals = iter([no_way, lambda: healed.append("the second")])
    nemesis = Nemesis(
        [ScheduledFault(PauseWorker(f"a[{index}]", 5), After(TAKEN)) for index in range(2)],
        lambda fault, targets: Injection("fired", "w", heal=next(heals)),
    )
    nemesis.bind(FakeTargets(), lambda: 1.0)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    nemesis.heal_all()
    broken, fine = nemesis.records()
    assert broken.healed_at_ms is None and "does not answer" in broken.reason
    assert fine.healed_at_ms == 1.0 and healed == ["the second"]


@pytest.mark.parametrize("came", [True, False])
def test_a_fault_that_lay_in_wait_has_fired_only_if_something_came(came: bool) -> None:
    nemesis = Nemesis(
        [ScheduledFault(DisturbWrites(WriteFault.FULL), After(TAKEN))],
        lambda fault, targets: Injection("fired", "writes", met=lambda: came),
    )
    nemesis.bind(FakeTargets(), lambda: 1.0)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    assert nemesis.records()[0].outcome == "fired"
    for _ in range(2):
        nemesis.heal_all()
        (record,) = nemesis.records()
        assert (record.outcome, record.fired_at_ms) == (("fired", 1.0) if came else ("not_fired", None))
        assert ("nothing came" in record.reason) is not came
        assert len(nemesis.operations()) == (2 if came else 0)


def test_a_fault_that_lies_in_wait_lasts_on_until_something_has_met_it_or_the_run_is_over() -> None:
    met: list[bool] = []
    healed: list[float] = []
    now = [1.0]
    nemesis = Nemesis(
        [ScheduledFault(KillObjectStore(20), After(TAKEN))],
        lambda fault, targets: Injection(
            "fired", "the store", heal=lambda: healed.append(now[0]), met=lambda: bool(met)
        ),
    )
    nemesis.bind(FakeTargets(), lambda: now[0])
    nemesis.point_reached(TAKEN, "a[0]", 1)
    for due in (21.0, 41.0):
        assert nemesis.next_time_ms() == due
        now[0] = due
        nemesis.time_reached(due)
    assert healed == []
    met.append(True)
    now[0] = 61.0
    nemesis.time_reached(61.0)
    assert healed == [61.0] and nemesis.next_time_ms() is None
    nemesis.heal_all()
    (record,) = nemesis.records()
    assert (record.outcome, record.fired_at_ms, record.healed_at_ms) == ("fired", 1.0, 61.0)


def test_a_fault_that_met_nothing_is_healed_in_the_end_and_neither_fired_nor_healed_in_the_books() -> None:
    healed: list[str] = []
    nemesis = Nemesis(
        [ScheduledFault(KillObjectStore(20), After(TAKEN))],
        lambda fault, targets: Injection(
            "fired", "the store", heal=lambda: healed.append("the store"), met=lambda: False
        ),
    )
    nemesis.bind(FakeTargets(), lambda: 1.0)
    nemesis.point_reached(TAKEN, "a[0]", 1)
    nemesis.heal_all()
    (record,) = nemesis.records()
    assert healed == ["the store"]
    assert (record.outcome, record.fired_at_ms, record.healed_at_ms) == ("not_fired", None, None)


def test_only_the_points_that_faults_wait_for_are_watched() -> None:
    assert bound(AIMED, TIMED, AIMED).watched_points() == ((TAKEN, "a[0]"),)
