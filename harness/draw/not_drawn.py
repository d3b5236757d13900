"""A draw that failed, where the drawing of other plans goes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotDrawn:
    """Stands in the place of a plan that could not be drawn, because of a fault of the harness."""

    error: Exception
