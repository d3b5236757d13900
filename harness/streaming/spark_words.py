"""Faults and points in the words of Spark: the harness has words that fit any system."""

from __future__ import annotations

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.streaming.query_targets import TASKS

POINTS = {
    ProtocolPoint.CHECKPOINT_TRIGGERED: "before the sink was called",
    ProtocolPoint.ALL_ACKNOWLEDGED: "after the sink had returned, before Spark had committed",
    ProtocolPoint.PUBLICATION_STEP: "at a point of the sink",
    ProtocolPoint.BARRIER_RECEIVED: "at the beginning of a task",
    ProtocolPoint.RECORDS_PROCESSED: "in the middle of a task",
    ProtocolPoint.SNAPSHOT_TAKEN: "at the end of a task",
}
"""When a fault strikes that is aimed at a point."""
_PHRASES = (
    ("crash coordinator", "kill the driver"),
    ("storage unreadable", "the checkpoint directory unreadable"),
    (f"primary writes of {TASKS} fail", "writes to the checkpoint directory fail"),
    ("metadata writes fail", "writes to the log of commits fail"),
    (f"worker of {TASKS}", "Python worker of a task"),
    (f"of {TASKS}", "of a task"),
)
_WRITES = "disturb_writes"


def fault_in_words(fault: FaultRecord) -> str:
    """Return what a fault did, and at which point if it was aimed at one."""
    label = fault.label
    for ours, of_spark in _PHRASES:
        label = label.replace(ours, of_spark)
    if fault.kind == _WRITES:
        label += ", to the checkpoint directory"
    point = POINTS.get(ProtocolPoint(fault.point)) if fault.point is not None else None
    return f"{label}, {point}" if point is not None else label
