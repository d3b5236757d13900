"""The states of barrier alignment, of one checkpoint whose barriers are only counted, and of one that is recorded."""

from __future__ import annotations

from enum import StrEnum


class AlignmentState(StrEnum):
    """Where the aligner of a subtask stands."""

    IDLE = "idle"
    """No channel is held back."""
    ALIGNING = "aligning"
    """Some channels delivered the barrier and are held back; others are missing."""
    HOLDING = "holding"
    """Every channel delivered it and is held back until the synchronous part of the snapshot has ended."""


class TrackingState(StrEnum):
    """Where one checkpoint stands with a tracker."""

    UNKNOWN = "unknown"
    """Nothing came of it yet."""
    COUNTED = "counted"
    """Some channels delivered its barrier, and others are missing."""
    OBSOLETE = "obsolete"
    """A snapshot of it or of a later one was due here already, or it was given up: its barriers are ignored."""


class ChannelPolicy(StrEnum):
    """What barriers do on one input channel. A checkpointing mode is a policy for each channel."""

    ALIGN = "align"
    """The snapshot waits until the barrier is reached; the channel holds no channel state."""
    OVERTAKE = "overtake"
    """The snapshot does not wait; what the barrier overtakes is channel state (UNA-1)."""
    RECORD = "record"
    """The snapshot does not wait; what is read between it and the barrier is channel state (CHL-1)."""


class RecordingState(StrEnum):
    """Where one checkpoint stands with a recorder."""

    UNKNOWN = "unknown"
    """Nothing came of it yet."""
    ALIGNING = "aligning"
    """A barrier of it came, and channels that are aligned have not reached theirs, or an older one is due first."""
    TAKING = "taking"
    """The synchronous part of its snapshot is under way."""
    RECORDING = "recording"
    """The snapshot is taken, and channels are recorded until their barriers come."""
    OBSOLETE = "obsolete"
    """Every channel is closed, or it was given up, or a later one was due here: its barriers are ignored."""
