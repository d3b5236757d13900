"""Systems under test by name. A name is cheap; a system is imported when it is opened."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from harness.errors import UsageProblem
from harness.strict_input import nearest
from harness.suts.system import SystemUnderTest

DEFAULT_SYSTEM = "reference-simulated"

_FACTORIES: dict[str, tuple[str, str]] = {
    "reference-simulated": ("harness.suts.reference_simulated", "ReferenceSimulated"),
    "reference-spark": ("harness.suts.reference_spark", "ReferenceSpark"),
}
"""Name -> (module, factory in it), imported on first use."""


def system_names() -> tuple[str, ...]:
    """Return the names of all systems."""
    return tuple(_FACTORIES)


def require_system(name: str) -> None:
    """Raise UsageProblem, with the nearest name, if there is no such system."""
    if name not in _FACTORIES:
        raise UsageProblem(f"there is no system {name!r}{nearest(name, _FACTORIES)}")


def open_system(name: str) -> SystemUnderTest:
    """Make a system; the caller closes it. Raises UsageProblem for an unknown name."""
    require_system(name)
    module, factory = _FACTORIES[name]
    make: Callable[[], SystemUnderTest] = getattr(importlib.import_module(module), factory)
    return make()
