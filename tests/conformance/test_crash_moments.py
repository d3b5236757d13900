"""The moments between the steps of a trace, and who can crash there; grain: lines of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.conformance.crash_moments import CrashMoment, crash_at, moments_of, require_crash_at
from barrier_tck.conformance.trials import NothingShown, Trial
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.record.records import AttemptRecord
from tests.reports.synthetic_run import record_of

TRACE = (
    "     1.000 coordinator#1 start",
    "     2.000 read[0]#1 poll",
    "     3.000 keep[0]#1 data 0",
    "     3.001 read[0]#1 poll",
    "     4.000 coordinator point attempt_running None",
    "     5.000 keep[0]#1 killed",
    "     6.000 read[0]#2 poll",
    "     7.000 coordinator#1 receive SubtaskRunning",
    "     8.000 read[0]#1 message Cancel",
    "     9.000 keep[0]#2 data 0",
    "    10.000 read[0]#2 poll",
    "    11.000 keep[0]#2 data 0",
    "    12.000 coordinator#1 receive SubtaskFinished",
)


def trial_of(*trace: str, fired_ms: float | None = None) -> Trial:
    unused: Any = None  # neither the history nor the job is looked at
    attempt = AttemptRecord(1, 0.0, 1.5, 12.0, "finished", "", None)
    record = record_of(0)
    faults = (msgspec.structs.replace(record.faults[0], fired_at_ms=fired_ms),)
    return Trial(
        msgspec.structs.replace(record, attempts=(attempt,), faults=faults), unused, Path(), unused, trace
    )


def found(begin_ms: float = 0.0, end_ms: float = 99.0) -> dict[float, CrashMoment]:
    return {moment.time_ms: moment for moment in moments_of(trial_of(*TRACE), begin_ms, end_ms)}


def test_there_is_a_moment_behind_each_step_but_not_between_steps_of_one_moment() -> None:
    assert list(found()) == [1.5, 2.5, 4.5005, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5]


def test_who_took_the_step_comes_first_and_who_takes_no_other_one_does_not_crash() -> None:
    moments = found()
    assert moments[1.5].victims == ("coordinator",)
    assert moments[2.5].victims == ("read[0]", "coordinator")
    assert moments[9.5].victims == ("keep[0]", "coordinator", "read[0]")
    assert moments[10.5].victims == ("coordinator", "keep[0]"), "it reads nothing more"
    assert moments[11.5].victims == ("coordinator",)


def test_only_processes_of_the_running_attempt_crash() -> None:
    moments = found()
    assert moments[6.5].victims == ("read[0]", "coordinator"), "keep[0] has not begun its second attempt"
    assert moments[8.5].victims == ("coordinator", "read[0]"), "a process of the first attempt took the step"


def test_moments_lie_between_two_times() -> None:
    assert list(found(2.6, 9.0)) == [4.5005, 6.5, 7.5, 8.5]


def test_a_crash_counts_from_when_the_first_attempt_ran() -> None:
    moment = found()[2.5]
    trial = trial_of(*TRACE)
    assert crash_at(moment, "read[0]", trial) == ScheduledFault(KillWorker("read[0]"), At(1.0))
    assert crash_at(moment, "coordinator", trial) == ScheduledFault(CrashCoordinator(), At(1.0))


def test_a_crash_is_proven_by_its_time_and_by_the_steps_before_it() -> None:
    moment, undisturbed = found()[6.5], trial_of(*TRACE)
    before = TRACE[:7]
    require_crash_at(moment, undisturbed, trial_of(*before, "     7.100 other[0]#1 poll", fired_ms=6.5))
    for crashed in (
        trial_of(*before, fired_ms=7.5),
        trial_of(*before, fired_ms=None),
        trial_of(*TRACE[:6], "     6.100 other[0]#1 poll", fired_ms=6.5),
    ):
        with pytest.raises(AssertionError):
            require_crash_at(moment, undisturbed, crashed)


def test_a_system_without_a_trace_shows_nothing() -> None:
    with pytest.raises(NothingShown, match="has a trace"):
        list(moments_of(trial_of(), 0.0, 9.0))
