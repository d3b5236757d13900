"""Faults and points in the words of Spark: the harness has words that fit any system."""

from __future__ import annotations

import re

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.record.history import in_times
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
_CHECKPOINTS = re.compile(r"for (\d+) checkpoints")
_NEXT_WRITES, _TO = re.compile(r"the next \d+ writes "), ", to the checkpoint directory"


def label_in_words(fault: FaultRecord) -> str:
    """Return what a fault did; a label that is in these words already stays as it is."""
    label = fault.label
    for ours, of_spark in _PHRASES:
        label = label.replace(ours, of_spark)
    # What is refused is the query's, until it has failed so often: it has no other checkpoints.
    label = _CHECKPOINTS.sub(lambda found: f"until the query has failed {in_times(int(found[1]))}", label)
    return label + _TO if _NEXT_WRITES.match(label) and not label.endswith(_TO) else label


def fault_in_words(fault: FaultRecord) -> str:
    """Return what a fault did, and at which point if it was aimed at one."""
    point = _point(fault)
    return f"{label_in_words(fault)}, {point}" if point else label_in_words(fault)


def in_words(fault: FaultRecord) -> FaultRecord:
    """Return the record of a fault with its label and its trigger in these words."""
    trigger = fault.trigger
    point = _point(fault)
    if point:
        _, _, which = trigger.rpartition(", ")
        trigger = f"{point}, {which}"
    return msgspec.structs.replace(fault, label=label_in_words(fault), trigger=trigger)


def _point(fault: FaultRecord) -> str:
    return POINTS.get(ProtocolPoint(fault.point), "") if fault.point is not None else ""
