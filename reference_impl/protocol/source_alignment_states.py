"""The states of a group of aligned sources, as the coordinator sees it."""

from __future__ import annotations

from enum import StrEnum


class SourceAlignmentState(StrEnum):
    """What the sources of a group wait for."""

    GATHERING = "gathering"
    """A member has not reported in this attempt: nothing is known of the smallest watermark."""
    ALIGNED = "aligned"
    """The members keep within the bound of the smallest watermark of those that are active."""
    FREE = "free"
    """No member is active: nobody waits for anybody."""
