"""Table tests of schedule validation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.throttle_channel import ThrottleChannel
from barrier_tck.faults.schedule import ScheduleError, validate
from barrier_tck.faults.targets import COORDINATOR, Damage, Peers
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault

SUBTASKS = ("source[0]", "totals[0]", "totals[1]", "sink[0]")
CHANNELS = (
    *(("source[0]", "totals[0]"), ("source[0]", "totals[1]"), ("totals[0]", "sink[0]")),
    *((subtask, COORDINATOR) for subtask in SUBTASKS[:3]),
)
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
        (CrashCoordinator(), At(-0.25), ["faults[1].trigger.time_ms is -0.25"]),
        (CrashCoordinator(), At(float("nan")), ["faults[1].trigger.time_ms is nan"]),
        (
            CrashCoordinator(),
            After(ProtocolPoint.ALL_ACKNOWLEDGED, "sink[0]"),
            ["all_acknowledged", "coordinator", "leave the subtask out"],
        ),
        (LoseHost("sinc[0]"), At(0), ["faults[1].fault.subtask", "did you mean 'sink[0]'"]),
        (CutChannel("source[9]", "totals[0]", 5), At(0), ["faults[1].fault.sender", "'source[9]'"]),
        (CutChannel("source[0]", "coordinatr", 5), At(0), ["fault.receiver", "did you mean 'coordinator'"]),
        (CutChannel("source[0]", "sink[0]", 5), At(0), ["no channel", "totals[0], totals[1], coordinator"]),
        (
            CutChannel("sink[0]", COORDINATOR, 5),
            At(0),
            ["to which 'sink[0]' has no channel; it has none at all"],
        ),
        (BlackHoleChannel(COORDINATOR, "sink[0]", 5), At(0), ["fault.sender", "coordinator as receiver"]),
    ],
)
def test_a_schedule_that_aims_at_nothing_is_refused_with_path_and_value(
    fault: Fault, trigger: At | After, words: list[str]
) -> None:
    fine = ScheduledFault(KillExecutor("source[0]"), At(5))
    with pytest.raises(ScheduleError) as caught:
        validate((fine, ScheduledFault(fault, trigger)), SUBTASKS, CHANNELS)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CrashCoordinator(unreadable_ms=-1), ["unreadable_ms is -1", "0 or more"]),
        (lambda: PauseWorker("sink[0]", 0), ["duration_ms is 0", "1 or more"]),
        (lambda: DelayChannel("source[0]", "totals[0]", 0, 5), ["latency_ms is 0"]),
        (lambda: DelayChannel("source[0]", "totals[0]", 3, 5, jitter_ms=4), ["jitter_ms is 4", "(3)"]),
        (lambda: ThrottleChannel("source[0]", "totals[0]", 0, 5), ["bytes_per_second is 0"]),
        (lambda: FailPrimaryWrites("totals[0]", 0), ["checkpoints is 0", "1 or more"]),
        (lambda: PartitionHalves((), 5), ["subtasks is empty"]),
        (lambda: PartitionHalves(("sink[0]", "sink[0]"), 5), ["subtasks[1]", "named already"]),
        (
            lambda: DamagePrimary("totals[0]", Damage.OLDER_ATTEMPT),
            ["damage is 'older_attempt'", "local copy"],
        ),
    ],
)
def test_an_impossible_fault_cannot_be_made(make: Callable[[], Fault], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are what is tested
        make()
    assert all(word in str(caught.value) for word in words)


def test_an_impossible_fault_cannot_be_read_either() -> None:
    fault = b'{"type": "pause_worker", "subtask": "a[0]", "duration_ms": 0}'
    line = b'{"fault": %s, "trigger": {"type": "at", "time_ms": 1}}' % fault
    with pytest.raises(
        msgspec.ValidationError, match=r"duration_ms is 0; it must be 1 or more - at `\$\.fault`"
    ):
        msgspec.json.decode(line, type=ScheduledFault)


def test_a_schedule_that_fits_the_job_passes() -> None:
    validate(
        (
            ScheduledFault(KillWorker("totals[1]"), After(TAKEN, "totals[0]", 3)),
            ScheduledFault(CrashCoordinator(), After(ProtocolPoint.ALL_ACKNOWLEDGED)),
            ScheduledFault(KillExecutor("sink[0]"), At(0)),
            ScheduledFault(CutChannel("source[0]", "totals[1]", 5), At(0)),
            ScheduledFault(DelayChannel("totals[1]", COORDINATOR, 3, 5, jitter_ms=3), At(0)),
            ScheduledFault(PartitionExecutor("totals[0]", Peers.EXECUTORS, 5), At(0)),
            ScheduledFault(PartitionHalves(("totals[0]", "sink[0]"), 5), At(0)),
        ),
        SUBTASKS,
        CHANNELS,
    )


def test_channels_that_nobody_knows_are_not_checked() -> None:
    validate((ScheduledFault(CutChannel("source[0]", "sink[0]", 5), At(0)),), SUBTASKS)
