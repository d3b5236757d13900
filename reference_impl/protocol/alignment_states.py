"""The states of barrier alignment, and of one checkpoint whose barriers are only counted."""

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
