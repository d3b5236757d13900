"""Systems under test by name. A name is cheap; a system is imported when it is opened.

A system from elsewhere needs no entry here: ``package.module:Factory`` names it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

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
    """Raise UsageProblem, with the nearest name, if there is no such system.

    A ``package.module:Factory`` is not imported yet, so nothing can be said of it here.
    """
    if name not in _FACTORIES and not _is_reference(name):
        raise UsageProblem(f"there is no system {name!r}{nearest(name, _FACTORIES)}")


def open_system(name: str) -> SystemUnderTest:
    """Make a system; the caller closes it.

    Raises UsageProblem for an unknown name, and for a ``package.module:Factory`` that is not there.
    """
    require_system(name)
    if name in _FACTORIES:
        module, factory = _FACTORIES[name]
        return _factory(importlib.import_module(module), factory)()
    module, _, factory = name.partition(":")
    try:
        make = _factory(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise UsageProblem(f"the system {name!r} cannot be imported: {error}") from error
    return make()


def _factory(module: ModuleType, name: str) -> Callable[[], SystemUnderTest]:
    make: Callable[[], SystemUnderTest] = getattr(module, name)
    return make


def _is_reference(name: str) -> bool:
    """Tell whether a name has the form ``package.module:Factory``."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))
