"""The states of a loop, as the coordinator sees it."""

from __future__ import annotations

from enum import StrEnum


class LoopState(StrEnum):
    """Where the termination of a loop stands."""

    FED = "fed"
    """Records may still come in from outside, or a member does not run yet."""
    COUNTING = "counting"
    """A wave is under way: some members have not reported their counts yet."""
    RESTING = "resting"
    """Records were under way during the last wave; the next one comes after a pause."""
    ENDED = "ended"
    """No record is in the loop, and none can come: its feedback channels have ended."""
