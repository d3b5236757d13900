"""Systems under test by name. A name is cheap; a system is imported when it is opened.

A system from elsewhere needs no entry here: ``package.module:Factory`` names it.
"""

from __future__ import annotations

import contextlib
import weakref

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import imported, is_target, make, shown
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import SystemUnderTest

DEFAULT_SYSTEM = "reference-simulated"

_OURS = {
    "reference-simulated": "barrier_tck.harness.reference.simulated.simulated_system:ReferenceSimulated",
    "reference-spark": "barrier_tck.harness.reference.spark.spark_system:ReferenceSpark",
}
"""Name -> what it stands for, imported on first use."""

_opened: weakref.WeakKeyDictionary[SystemUnderTest, str] = weakref.WeakKeyDictionary()
"""Systems from elsewhere, and what they were opened as."""


def require_system(name: str) -> None:
    """Raise UsageProblem, with the nearest name, if there is no such system.

    Only a ``package.module:Factory`` is imported for that; what it registers is known afterwards.
    """
    if is_target(name):
        imported(name, "system")
    elif name not in _OURS:
        raise UsageProblem(
            f"there is no system {shown(name)}{nearest(name, _OURS)} "
            "(a system of your own is named package.module:Factory)"
        )


def open_system(name: str) -> SystemUnderTest:
    """Make a system; the caller closes it. Raises UsageProblem for a name that leads to none."""
    require_system(name)
    system: SystemUnderTest = make(_OURS.get(name, name), "system", SystemUnderTest)
    if name not in _OURS:
        with contextlib.suppress(TypeError):  # it may forbid weak references
            _opened[system] = name
    return system


def is_ours(system: SystemUnderTest) -> bool:
    """Tell whether a system ships with the project: a failure of it is a bug of ours."""
    return reference_of(system) in _OURS


def reference_of(system: SystemUnderTest) -> str:
    """Return what opens such a system again: not always the name that it gives itself.

    A system that was not opened here is told by its class, unless it is one of ours.
    """
    with contextlib.suppress(TypeError, KeyError):
        return _opened[system]
    target = f"{type(system).__module__}:{type(system).__qualname__}"
    return next((name for name, ours in _OURS.items() if ours == target), target)
