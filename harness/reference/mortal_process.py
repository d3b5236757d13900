"""A process that may die while it uses a storage service: from then on no request of it reaches the service."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from barrier_tck.reference_impl.runtime_errors import SnapshotCancelled, StorageError


class _Died(BaseException):
    """The process is dead: a caller that gets an error from it is dead, too."""


class MortalProcess:
    """The life of one process. A client asks ``require_alive`` where a dead process would have sent nothing more."""

    def __init__(self) -> None:
        self.is_dying = False
        """Whether it dies in the middle of what it does now."""
        self._is_dead = False

    def die_in(self, task: Callable[[], Any]) -> None:
        """Run a task until ``require_alive`` ends it; it is dead then."""
        self.is_dying, self._is_dead = True, False
        try:
            with contextlib.suppress(_Died, SnapshotCancelled, StorageError):
                task()
        finally:
            self.is_dying, self._is_dead = False, True

    def require_alive(self) -> None:
        """End the task in which the process dies.

        Raises StorageError for what is tried afterwards: a simulated world closes what a dead process left open.
        """
        if self.is_dying:
            raise _Died
        self.require_not_dead()

    def require_not_dead(self) -> None:
        """Raise StorageError unless it lives, or dies in the middle of what it does now."""
        if self._is_dead:
            raise StorageError("the process that sends this request is dead")
