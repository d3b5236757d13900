"""Faults in the words of Spark; grain: records of faults."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.exhaust_memory import ExhaustMemory
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.targets import WriteFault
from barrier_tck.faults.triggers import describe
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.streaming.query_targets import TASKS
from barrier_tck.harness.streaming.spark_words import POINTS, fault_in_words, in_words
from barrier_tck.harness.streaming.structured_streaming import POINTS as POINTS_OF_QUERIES
from barrier_tck.harness.streaming.structured_streaming import STEP_OF_SINK


def record_of(fault: Fault, point: ProtocolPoint | None = None) -> FaultRecord:
    trigger = "at 120 ms" if point is None else describe(After(point, TASKS, nth=2))
    return FaultRecord(0, fault.description(), tag_of(fault), trigger, point and point.value, "fired")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (CrashCoordinator(), "kill the driver"),
        (
            CrashCoordinator(unreadable_ms=200),
            "kill the driver, the checkpoint directory unreadable for 200 ms",
        ),
        (KillExecutor(TASKS), "kill executor of a task"),
        (KillWorker(TASKS), "kill Python worker of a task"),
        (PauseExecutor(TASKS, 300), "pause executor of a task for 300 ms"),
        (LoseHost(TASKS), "lose host of a task"),
        (ExhaustMemory(TASKS), "exhaust the memory of the host of a task"),
        (
            FailPrimaryWrites(TASKS, 2),
            "writes to the checkpoint directory fail until the query has failed 2 times",
        ),
        (
            FailPrimaryWrites(TASKS, 1, metadata=True),
            "writes to the log of commits fail until the query has failed once",
        ),
        (
            DisturbWrites(WriteFault.FULL, 3),
            f"the next 3 writes {WriteFault.FULL.phrase}, to the checkpoint directory",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_named_as_users_of_spark_name_it_and_not_twice(fault: Fault, words: str) -> None:
    once = in_words(record_of(fault))
    assert (once.label, once.trigger) == (words, "at 120 ms")
    assert in_words(once) == once
    assert fault_in_words(once) == words


@pytest.mark.parametrize("point", [*POINTS_OF_QUERIES, STEP_OF_SINK], ids=str)
def test_each_point_of_a_query_is_a_moment_that_users_of_spark_know(point: ProtocolPoint) -> None:
    told = in_words(record_of(KillExecutor(TASKS), point))
    assert told.trigger == f"{POINTS[point]}, 2nd time"
    assert point.value not in msgspec.json.encode(told.trigger).decode()
    assert in_words(told) == told
    assert fault_in_words(told) == f"kill executor of a task, {POINTS[point]}"
