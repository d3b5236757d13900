"""State backends as the harness's user names them: in a plan, a campaign file, or on the command line."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import look_where_run
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.state.backend_names import SHIPPED, backend_named

SHIPPED_BACKENDS = tuple(SHIPPED)
"""Short names of the backends that come with the project."""


def require_state_backend(name: str) -> Callable[[], StateBackend]:
    """Return what makes the backend; raises UsageProblem, with what to change, if there is none of this name.

    The module of a ``package.module:Factory`` is imported, so a campaign asks before it starts or writes anything.
    """
    look_where_run()
    try:
        return backend_named(name)
    except JobUsageError as error:
        raise UsageProblem(str(error)) from error
