"""How the note of a plan shows where the plan comes from."""

from __future__ import annotations

MIXED = "drawn: "
"""The beginning of a drawn plan's note if the campaign's mix chose anything for the plan. A listed plan has the note
that its author wrote."""
_MIXED_BEFORE = "dealt: "
"""The same in records of versions before 0.2."""


DROPPED = "drawn faults dropped: their moment never came"
"""The end of a drawn plan's note if some of its faults were left out; their number stands before it."""


def is_listed(note: str) -> bool:
    """Return whether the plan was listed in a campaign file. The note of a drawn plan is empty, or says what the mix
    chose, or how many faults were left out.
    """
    return bool(note) and not note.startswith((MIXED, _MIXED_BEFORE)) and not note.endswith(DROPPED)
