"""Table tests of schedule validation."""

from __future__ import annotations

import pytest

from faults.schedule import ScheduleError, validate
from faults.vocabulary import (
    After,
    At,
    CrashCoordinator,
    KillExecutor,
    KillWorker,
    ProtocolPoint,
    ScheduledFault,
)

SUBTASKS = ("source[0]", "totals[0]", "totals[1]", "sink[0]")
TAKEN = ProtocolPoint.SNAPSHOT_TAKEN


@pytest.mark.parametrize(
    ("fault", "trigger", "words"),
    [
        (
            KillExecutor("totls[0]"),
            At(0),
            ["faults[1].fault.subtask", "'totls[0]'", "did you mean 'totals[0]'"],
        ),
        (KillWorker("totals[2]"), At(0), ["faults[1].fault.subtask", "'totals[2]'"]),
        (
            CrashCoordinator(),
            After(TAKEN, "sink[9]"),
            ["faults[1].trigger.subtask", "did you mean 'sink[0]'"],
        ),
        (CrashCoordinator(), After(TAKEN, nth=0), ["faults[1].trigger.nth is 0"]),
        (CrashCoordinator(), At(-1), ["faults[1].trigger.time_ms is -1"]),
        (
            CrashCoordinator(),
            After(ProtocolPoint.ALL_ACKNOWLEDGED, "sink[0]"),
            ["all_acknowledged", "coordinator", "leave the subtask out"],
        ),
    ],
)
def test_a_schedule_that_aims_at_nothing_is_refused_with_path_and_value(
    fault: KillExecutor | KillWorker | CrashCoordinator, trigger: At | After, words: list[str]
) -> None:
    fine = ScheduledFault(KillExecutor("source[0]"), At(5))
    with pytest.raises(ScheduleError) as caught:
        validate((fine, ScheduledFault(fault, trigger)), SUBTASKS)
    assert all(word in str(caught.value) for word in words)


def test_a_schedule_that_fits_the_job_passes() -> None:
    validate(
        (
            ScheduledFault(KillWorker("totals[1]"), After(TAKEN, "totals[0]", 3)),
            ScheduledFault(CrashCoordinator(), After(ProtocolPoint.ALL_ACKNOWLEDGED)),
            ScheduledFault(KillExecutor("sink[0]"), At(0)),
        ),
        SUBTASKS,
    )
