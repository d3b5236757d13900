"""What one subtask of one attempt took and sent, element by element, in its order: the recorded order of arrival.

Event time depends on it: which records are late, and what a window holds when it fires. So trials whose job knows
event time record it, and the oracle replays it (``oracle.evidence.event_time``).
"""

from __future__ import annotations

from typing import Any

import msgspec

Row = dict[str, Any]


class Polled(msgspec.Struct, frozen=True, tag="polled", omit_defaults=True):
    """A source read a batch of a split, or nothing."""

    split: str
    """Empty: no split had a record."""
    offset: int
    """The number of the first record of the batch."""
    rows: tuple[Row, ...]
    open_splits: tuple[str, ...]
    """The splits that have not ended, as far as the reader knows, behind this."""
    quiet: tuple[str, ...] = ()
    """The splits that had no record when they were asked last, behind this."""
    held: tuple[str, ...] = ()
    """The splits that were not asked, because they are further ahead than is allowed (EVT-6)."""


class Took(msgspec.Struct, frozen=True, tag="took"):
    """It processed a batch of an input channel."""

    channel: int
    """Its number among the inputs of the subtask."""
    rows: tuple[Row, ...]


class TookWatermark(msgspec.Struct, frozen=True, tag="took-watermark", omit_defaults=True):
    """It took a watermark of an input channel."""

    channel: int
    at_ms: int
    idle: bool = False
    origin: str = ""
    """``sender->receiver#edge`` of the channel that it was on before the job was rescaled; empty for any other. If it
    was on several, all of them, with ``|`` between them, the first one first."""


class InputOver(msgspec.Struct, frozen=True, tag="input-over"):
    """It took that no record follows on an input channel."""

    channel: int


class AllOver(msgspec.Struct, frozen=True, tag="all-over"):
    """Its whole input has ended, and its operators emit what they emit last, behind this."""


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """It sent a batch on an output channel."""

    channel: int
    rows: tuple[Row, ...]


class SentWatermark(msgspec.Struct, frozen=True, tag="sent-watermark", omit_defaults=True):
    """It sent a watermark on an output channel."""

    channel: int
    at_ms: int
    idle: bool = False


class SplitsIdle(msgspec.Struct, frozen=True, tag="splits-idle"):
    """Which splits of a source count as idle from here on."""

    idle: tuple[str, ...]


class ToldTime(msgspec.Struct, frozen=True, tag="told-time", omit_defaults=True):
    """A subtask of an aligned source reported how far event time has come in it (EVT-6)."""

    at_ms: int
    """The smallest watermark of its active splits; of no meaning if there is none."""
    idle: bool = False
    ended: bool = False


class Allowed(msgspec.Struct, frozen=True, tag="allowed"):
    """A subtask of an aligned source learned up to which watermark its splits may be read from here on (EVT-6)."""

    largest_ms: int


class ReadClock(msgspec.Struct, frozen=True, tag="read-clock", omit_defaults=True):
    """Its operators asked what time it is, while it took an element, or one of them did so for its snapshot (EVT-5).

    Within that the clock does not go on for them.
    """

    at_ms: int
    """What the clock showed, in ms of the epoch."""
    operator: str = ""
    """The operator that is about to be snapshotted; empty: the subtask is taking an element."""


class Stood(msgspec.Struct, frozen=True, tag="stood"):
    """Here is its snapshot for a checkpoint."""

    checkpoint: int


ElementEntry = (
    Polled
    | Took
    | TookWatermark
    | InputOver
    | AllOver
    | Sent
    | SentWatermark
    | SplitsIdle
    | ToldTime
    | Allowed
    | ReadClock
    | Stood
)


class SubtaskElements(msgspec.Struct, frozen=True):
    """What one subtask of one attempt took and sent."""

    subtask: str
    attempt: int
    restored: int | None
    """The checkpoint from which it started; None: from the beginning."""
    finished: bool
    """Whether it had finished in that checkpoint: it reads and emits nothing again (BAR-6)."""
    inputs: tuple[str, ...]
    """The name of each input channel: ``sender->receiver#edge``."""
    outputs: tuple[str, ...]
    """The name of each output channel."""
    entries: tuple[ElementEntry, ...]
