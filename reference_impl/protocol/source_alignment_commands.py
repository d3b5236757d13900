"""What the machine of a group of aligned sources asks of its shell, frozen."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import SourceWatermark


class AnnounceBound(msgspec.Struct, frozen=True):
    """Tell members up to which watermark they may read."""

    subtasks: tuple[SubtaskId, ...]
    largest_ms: int
    reports: tuple[SourceWatermark, ...] = ()
    """If it is another one than before: the last report of each member, from which it follows."""
