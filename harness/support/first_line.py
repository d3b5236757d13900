"""The first line of a text of many: what a person is told of a Java stack or of a query's plan."""

from __future__ import annotations

LEFT_OUT = "[...]"
"""Stands where lines were left out; records have them."""


def first_line(text: str) -> str:
    """Return the first line that is not empty, with a sign behind it if there are more."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) <= 1:
        return text.strip()
    return f"{lines[0].strip()} {LEFT_OUT}"
