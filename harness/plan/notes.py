"""What the notes of plans say about where they come from."""

from __future__ import annotations

MIXED = "dealt: "
"""What the note of a drawn trial begins with if a campaign's mix chose anything for it; a listed trial has a note of
its own."""


DROPPED = "drawn faults dropped: their moment never came"
"""What the note of a drawn trial ends with if some of its faults, whose number stands before, were left out."""


def is_listed(note: str) -> bool:
    """Return whether the plan was listed in a campaign file: the note of a drawn one is empty, or says what its mix
    chose, or how many of its faults were left out.
    """
    return bool(note) and not note.startswith(MIXED) and not note.endswith(DROPPED)
