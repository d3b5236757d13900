"""Numbers of versions."""

from __future__ import annotations


def release_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.3.3rc1" gives (2, 3, 3)."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
