"""Systems under test by name. A name is cheap; a system is imported when it is opened.

A system from elsewhere needs no entry here: ``package.module:Factory`` names it.
"""

from __future__ import annotations

import contextlib
import importlib
import weakref
from collections.abc import Callable

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import SystemUnderTest

DEFAULT_SYSTEM = "reference-simulated"

_FACTORIES: dict[str, tuple[str, str]] = {
    "reference-simulated": ("barrier_tck.harness.reference.simulated.simulated_system", "ReferenceSimulated"),
    "reference-spark": ("barrier_tck.harness.reference.spark.spark_system", "ReferenceSpark"),
}
"""Name -> (module, factory in it), imported on first use."""

_opened: weakref.WeakKeyDictionary[SystemUnderTest, str] = weakref.WeakKeyDictionary()
"""Systems from elsewhere, and what they were opened as."""


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
        system = _imported(name)()
        with contextlib.suppress(TypeError):  # it may forbid weak references
            _opened[system] = name
        return system
    module, factory = _FACTORIES[name]
    make: Callable[[], SystemUnderTest] = getattr(importlib.import_module(module), factory)
    return make()


def reference_of(system: SystemUnderTest) -> str:
    """Return what opens such a system again: not always the name that it gives itself.

    A system that was not opened here is told by its class, unless it is one of ours.
    """
    with contextlib.suppress(TypeError, KeyError):
        return _opened[system]
    kind = type(system)
    own = {factory: name for name, factory in _FACTORIES.items()}
    return own.get((kind.__module__, kind.__qualname__), f"{kind.__module__}:{kind.__qualname__}")


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
