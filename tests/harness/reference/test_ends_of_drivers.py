"""What a driver says of a job whose coordinator ended; grain: the driver's side alone, with a runner that is played."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.reference.spark.job_driver import how_it_ended
from barrier_tck.harness.reference.spark.job_rpc import JobOver
from barrier_tck.harness.support.errors import HarnessError
from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, ProtocolError, StorageError
from barrier_tck.reference_impl.spark.running_attempt import JobEnd


def crashed_by(raise_it: Callable[[], object]) -> RuntimeError:
    """Return what a runner raises if something ended its coordinator."""
    with pytest.raises((ValueError, ProtocolError, HarnessError)) as crash:
        raise_it()
    error = RuntimeError(f"the coordinator crashed: {crash.value!r}")
    error.__cause__ = crash.value
    return error


def raised(error: Exception) -> Callable[[], object]:
    def raise_it() -> object:
        raise error

    return raise_it


class PlayedRunner:
    """A runner whose job ends at once."""

    stopped_with = None

    def __init__(self, end: JobEnd | Exception) -> None:
        self._end = end

    def wait(self) -> JobEnd:
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


def over(end: JobEnd | Exception) -> JobOver:
    runner: Any = PlayedRunner(end)
    return how_it_ended(runner)


@pytest.mark.parametrize(
    ("end", "crash", "reason"),
    [
        pytest.param(StorageError("disk 3 is gone"), "StorageError", "disk 3 is gone", id="storage"),
        pytest.param(
            crashed_by(raised(ProtocolError("an acknowledgement out of turn"))),
            "ProtocolError",
            "an acknowledgement out of turn",
            id="an illegal event",
        ),
        pytest.param(
            crashed_by(lambda: KeyGroupRange(2, 1)),
            "SystemCrashed",
            r"the coordinator died of an exception of its own: ValueError: a key group range needs .*\(ids.py",
            id="its own code",
        ),
        pytest.param(
            IncompatibleState("vertex 'totals' has parallelism 3"),
            "SystemCrashed",
            "the coordinator died of an exception of its own: .*parallelism 3",
            id="what it stored itself does not fit",
        ),
        pytest.param(
            crashed_by(lambda: plan_from({"faults": 3}, "a plan", "plan")),
            "RuntimeError",
            "the coordinator crashed",
            id="the harness",
        ),
    ],
)
def test_a_coordinator_that_dies_is_the_systems_failure_unless_the_harness_ended_it(
    end: Exception, crash: str, reason: str
) -> None:
    told = over(end)
    assert (told.state, told.crash) == (None, crash)
    assert re.search(reason, told.reason)


def test_an_end_in_good_order_is_none() -> None:
    told = over(JobEnd(JobState.FINISHED, "all subtasks have finished"))
    assert (told.state, told.reason, told.crash) == (JobState.FINISHED, "all subtasks have finished", "")
