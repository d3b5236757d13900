"""Systems under test by name. Listing names is cheap; a system is imported only when it is opened.

A third party's system needs no entry here: it is named ``package.module:Factory``.
"""

from __future__ import annotations

import contextlib
import weakref

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import imported, is_target, make, shown
from barrier_tck.harness.system.system_under_test import SystemUnderTest

DEFAULT_SYSTEM = "reference-simulated"

_OURS = {
    "reference-simulated": "barrier_tck.harness.reference.simulated.simulated_system:ReferenceSimulated",
    "reference-spark": "barrier_tck.harness.reference.spark.spark_system:ReferenceSpark",
    "structured-streaming": "barrier_tck.harness.streaming.stock_job:job",
}
"""Name -> the factory that it stands for, imported on first use."""

_opened: weakref.WeakKeyDictionary[SystemUnderTest, str] = weakref.WeakKeyDictionary()
"""Open systems -> the name by which they were opened."""


def require_system(name: str) -> None:
    """Raise UsageProblem, with the nearest name, if there is no such system.

    To find out, only a ``package.module:Factory`` is imported; whatever it registers is known from then on.
    """
    if is_target(name):
        imported(name, "system")
    elif name not in _OURS:
        raise UsageProblem(
            f"there is no system {shown(name)}{nearest(name, _OURS)} "
            "(name a system of your own as package.module:Factory)"
        )


def open_system(name: str) -> SystemUnderTest:
    """Make a system; the caller closes it. Raises UsageProblem if no system has this name."""
    require_system(name)
    system: SystemUnderTest = make(_OURS.get(name, name), "system", SystemUnderTest)
    with contextlib.suppress(TypeError):  # its class may not allow weak references
        _opened[system] = name
    return system


def is_ours(system: SystemUnderTest) -> bool:
    """Return whether a system ships with the project: then its failure is a bug of the project."""
    return reference_of(system) in _OURS


def reference_of(system: SystemUnderTest) -> str:
    """Return the name that opens the same kind of system again; it may differ from the name that the system gives
    itself.

    A system that was not opened here is named by its class, unless it ships with the project.
    """
    with contextlib.suppress(TypeError, KeyError):
        return _opened[system]
    target = f"{type(system).__module__}:{type(system).__qualname__}"
    return next((name for name, ours in _OURS.items() if ours == target), target)
