"""What passed through the channels of a job around its barriers, as each process saw it; for cut diagrams.

A channel is named by its ends, as ``sender->receiver``, and ``#n`` follows if there are several between the same two.
Batches of a channel are numbered from 0 in each attempt, by the sender in the order of sending and by the receiver in
the order of reading; as channels are FIFO (BAR-2), the same number is the same batch. A watermark has its place among
them, so it is a batch here, one without records. Batches in flight that the attempt restored at the receiver come
before all others and have negative numbers. No oracle reads these lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class What(StrEnum):
    """What passed."""

    BATCH = "batch"
    BARRIER = "barrier"
    END = "end"


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """One line of ``passages.jsonl``."""

    attempt: int
    subtask: str
    """The process that logged it."""
    at_ms: float
    """On the trial's own clock."""


class _OnChannel(_Line, frozen=True):
    channel: str
    position: int
    """A batch: its number. A barrier or an end: how many batches lie before it; what it overtook lies behind it."""
    what: What = What.BATCH
    records: int = 0
    """A batch: how many records it holds."""
    checkpoint: int | None = None
    """A barrier: its checkpoint."""
    watermark_ms: int | None = None
    """A watermark: the event time that it says, in milliseconds of the epoch."""
    idle: bool = False
    """A watermark: whether its sender expects nothing for now, so that nobody waits for it (EVT-1)."""


class Sent(_OnChannel, frozen=True, tag="sent"):
    """The subtask put something on an output channel."""


class Taken(_OnChannel, frozen=True, tag="taken"):
    """The subtask took something from an input channel."""


class CutTaken(_Line, frozen=True, tag="cut"):
    """The subtask took its snapshot: everything that it had done until then lies before the cut."""

    checkpoint: int
    sent: dict[str, int]
    """Output channel -> batches sent before the snapshot."""
    taken: dict[str, int]
    """Input channel -> batches processed before the snapshot."""


class InFlightKept(_Line, frozen=True, tag="kept"):
    """The subtask acknowledged a checkpoint; its part holds these batches of its channels, in flight (UNA-1, CHL-2)."""

    checkpoint: int
    inputs: dict[str, int]
    """Input channel -> whole batches, and ends of batches: the next ones that the subtask would have taken."""
    outputs: dict[str, int]
    """Output channel -> the same: the last ones that the subtask had sent."""
    counted: bool = True
    """Whether this was counted in the file; if not, these are numbers of buffers, and parts of batches count too."""


TraceEvent = Sent | Taken | CutTaken | InFlightKept


def in_order(trace_events: Iterable[TraceEvent]) -> tuple[TraceEvent, ...]:
    """Return events by attempt and time; those of one subtask stay in the order in which it recorded them."""
    return tuple(sorted(trace_events, key=lambda entry: (entry.attempt, entry.at_ms)))
