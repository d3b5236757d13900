"""What the notes of plans say about where they come from."""

from __future__ import annotations

DEALT = "dealt: "
"""What the note of a drawn trial begins with if anything was dealt to it; a listed trial has a note of its own."""


def is_listed(note: str) -> bool:
    """Tell from a plan's note whether somebody listed the plan: a drawn one has none, or says what was dealt to it."""
    return bool(note) and not note.startswith(DEALT)
