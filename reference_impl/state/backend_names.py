"""State backends by name: those we ship, and any other as ``package.module:Factory``."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable
from typing import Any

from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.backend import StateBackend, StateCapability

SHIPPED = {
    "heap": "barrier_tck.reference_impl.state.heap:HeapStateBackend",
    # Named, not imported: who does not use RocksDB does not pay for loading it.
    "rocksdb": "barrier_tck.reference_impl.state.rocksdb:RocksDBStateBackend",
}
"""Name -> target of the backends of this package."""

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def backend_named(name: str) -> Callable[[], StateBackend]:
    """Return what makes a backend: ``heap``, ``rocksdb``, or ``package.module:Factory`` (STA-2).

    The factory is called once here, to see that it gives a backend. Raises JobUsageError, which says what to
    change, if the name is unknown, the module does not import, or the factory raises or makes something else.
    """
    target = SHIPPED.get(name, name)
    if not _TARGET.fullmatch(target):
        near = difflib.get_close_matches(name, SHIPPED, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(SHIPPED)}"
        raise JobUsageError(
            f"state_backend {name!r} is not known; {hint} Another backend is named package.module:Factory"
        )
    module_name, _, factory_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise JobUsageError(
            f"state_backend {name!r}: {module_name} does not import: {type(error).__name__}: {error}"
        ) from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        near = difflib.get_close_matches(factory_name, [n for n in dir(module) if n[0] != "_"], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise JobUsageError(f"state_backend {name!r}: {module_name} has no callable {factory_name!r}{hint}")
    try:
        candidate = factory()
    except Exception as error:
        raise JobUsageError(
            f"state_backend {name!r}: {factory_name}() raised {type(error).__name__}: {error}"
        ) from error
    _require_backend(name, candidate)
    return factory  # type: ignore[no-any-return]  # checked by what it just made


def _require_backend(name: str, candidate: Any) -> None:
    """Raise JobUsageError, naming the first thing missing, unless the value looks like a StateBackend."""
    kind = type(candidate).__name__
    if not isinstance(getattr(candidate, "name", None), str):
        raise JobUsageError(f"state_backend {name!r}: {kind} is no state backend: it has no name (a text)")
    if not callable(getattr(candidate, "open", None)):
        raise JobUsageError(f"state_backend {name!r}: {kind} is no state backend: it has no method open")
    capabilities = getattr(candidate, "capabilities", None)
    if not isinstance(capabilities, frozenset):
        raise JobUsageError(
            f"state_backend {name!r}: {kind} is no state backend: its capabilities are {capabilities!r}, "
            "not a frozenset of StateCapability"
        )
    unknown = [repr(capability) for capability in capabilities if not isinstance(capability, StateCapability)]
    if unknown:
        raise JobUsageError(
            f"state_backend {name!r}: {kind} declares {sorted(unknown)[0]}, which is no StateCapability; known: "
            f"{', '.join(capability.name for capability in StateCapability)}"
        )
