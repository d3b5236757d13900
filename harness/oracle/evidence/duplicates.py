"""Records that count twice, as they may after a recovery in at-least-once mode (ALO-2)."""

from __future__ import annotations

DUPLICATED = "duplicated"
"""The count of them in a finding."""
