"""Finds, makes once and checks the state backends that a plan, a campaign file or the command line names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barrier_tck.harness.plan.backend_targets import backend_target
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import imported, make, search_working_directory, shown
from barrier_tck.reference_impl.state.backend import StateBackend, StateCapability

_WHAT = "state backend"


def require_state_backend(name: str) -> Callable[[], StateBackend]:
    """Return the backend's factory; raises UsageProblem, which says what to change, if no backend has this name.

    For ``package.module:Factory`` the module is imported and the factory is called once, to see that it returns a
    backend. So a campaign asks before it starts or writes anything.
    """
    search_working_directory()
    target = backend_target(name)
    _require_capabilities(name, make(target, _WHAT, StateBackend))
    return imported(target, _WHAT)  # type: ignore[return-value]  # the backend that it just made was checked


def _require_capabilities(name: str, candidate: Any) -> None:
    """Raise UsageProblem, naming the first mistake, unless the backend declares only capabilities that exist."""
    kind, capabilities = type(candidate).__name__, candidate.capabilities
    if not isinstance(capabilities, frozenset):
        raise UsageProblem(
            f"{shown(name)}: {kind} is no {_WHAT}: its capabilities are {capabilities!r}, not a frozenset of "
            "StateCapability"
        )
    unknown = [repr(capability) for capability in capabilities if not isinstance(capability, StateCapability)]
    if unknown:
        raise UsageProblem(
            f"{shown(name)}: {kind} declares {sorted(unknown)[0]}, which is no StateCapability; known: "
            f"{', '.join(capability.name for capability in StateCapability)}"
        )
