"""Systems under test by name. A name is cheap; a system is imported when it is opened.

A system from elsewhere needs no entry here: ``package.module:Factory`` names it.
"""

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


def require_system(name: str) -> None:
    """Raise UsageProblem, with the nearest name, if there is no such system.

    Only a ``package.module:Factory`` is imported for that.
    """
    if _is_reference(name):
        _imported(name)
    elif name not in _FACTORIES:
        raise UsageProblem(f"there is no system {name!r}{nearest(name, _FACTORIES)}")


def open_system(name: str) -> SystemUnderTest:
    """Make a system; the caller closes it. Raises UsageProblem for a name that leads to none."""
    require_system(name)
    if name not in _FACTORIES:
        return _imported(name)()
    module, factory = _FACTORIES[name]
    make: Callable[[], SystemUnderTest] = getattr(importlib.import_module(module), factory)
    return make()


def _is_reference(name: str) -> bool:
    """Tell whether a name has the form ``package.module:Factory``."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _imported(reference: str) -> Callable[[], SystemUnderTest]:
    """Import the factory of a system from elsewhere."""
    module, _, factory = reference.partition(":")
    try:
        make: Callable[[], SystemUnderTest] = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise UsageProblem(f"the system {reference!r} cannot be imported: {error}") from error
    return make
