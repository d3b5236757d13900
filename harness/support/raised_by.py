"""Whose code raised an exception, by the modules that it came through: the harness, or what the harness tests.

Libraries raise on behalf of their caller. So the innermost place counts that is neither in the standard library nor in
a package that this project depends on. If it is in the harness, nothing was learnt about the system under test.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from barrier_tck.harness.support.errors import SystemCrashed
from barrier_tck.harness.support.exception_line import exception_line

PROJECT = "barrier_tck"
_HARNESS = ("harness", "faults", "reports")
_RUN_AS_THE_JOB = (
    "harness.reference.kinds",
    "harness.reference.lineage",
    "harness.reference.mutants",
    "harness.reference.operators",
)
"""Packages of the harness whose code is part of the tested job: its functions, operators and planted backends."""
OF_THE_WORLD = (OSError, MemoryError)
"""What the machine raises, through whatever code: no disk, no memory, no connection."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place that an exception came through."""

    module: str
    file: str
    """The name of its file, without folders."""
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def places_of(error: BaseException) -> tuple[Place, ...]:
    """Return the places that an exception came through, the innermost first."""
    places = [
        Place(frame.f_globals.get("__name__", ""), Path(frame.f_code.co_filename).name.rstrip(">"), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return tuple(reversed(places))


def raising_place(places: Iterable[Place]) -> Place | None:
    """Return the innermost place that is not in a library; None if there is none."""
    return next((place for place in places if not _is_library(place.module)), None)


def is_of_harness(place: Place | None) -> bool:
    """Return whether a place is in the harness, and not in what it tests; an unknown place counts as the harness's."""
    if place is None:
        return True
    return _is_in(place.module, _HARNESS) and not _is_in(place.module, _RUN_AS_THE_JOB)


def raised_by_harness(error: BaseException) -> bool:
    """Return whether it was code of the harness that raised an exception."""
    return is_of_harness(raising_place(places_of(error)))


def is_of_project(module: str) -> bool:
    """Return whether a module is one of this project's."""
    return module == PROJECT or module.startswith(f"{PROJECT}.")


def crash_of(error: Exception, process: str) -> SystemCrashed | None:
    """Return the crash of a process that an exception ended; None if the harness raised it."""
    place = raising_place(places_of(error))
    if is_of_harness(place):
        return None
    last_line = exception_line(error)
    return SystemCrashed(f"{process} died of an exception of its own: {last_line} ({place})")


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{PROJECT}.{package}.") for package in packages)


def _is_library(module: str) -> bool:
    top = module.partition(".")[0]
    return (top in sys.stdlib_module_names and top != "__main__") or top in _dependencies()


@lru_cache(maxsize=1)
def _dependencies() -> frozenset[str]:
    """Return the modules at the top of all packages on which this project depends, optional and indirect ones too."""
    found: dict[str, None] = {}
    todo = ["barrier-tck"]
    while todo:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            required = importlib.metadata.requires(todo.pop()) or []
            names = [_normal(re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0]) for each in required]
            todo += [name for name in dict.fromkeys(names) if name not in found]
            found |= dict.fromkeys(names)
    return frozenset(
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if any(_normal(package) in found for package in packages)
    )


def _normal(package: str) -> str:
    return package.lower().replace("_", "-")
