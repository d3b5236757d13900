"""Snapshot futures of operators: one that is done already, and one that wraps a store's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from reference_impl.state.backend import SnapshotFuture

ResultT = TypeVar("ResultT")
PartT = TypeVar("PartT")


@dataclass(frozen=True, slots=True)
class FinishedSnapshot(Generic[ResultT]):
    """A snapshot without an asynchronous part (SNP-1)."""

    result: ResultT

    @property
    def done(self) -> bool:
        """Return True."""
        return True

    def run(self) -> ResultT:
        """Return the result."""
        return self.result

    def cancel(self) -> None:
        """Do nothing: nothing is held."""


@dataclass(frozen=True, slots=True)
class WrappedSnapshot(Generic[PartT, ResultT]):
    """A snapshot whose asynchronous part is another's, with the result put into a wider one."""

    inner: SnapshotFuture[PartT]
    wrap: Callable[[PartT], ResultT]

    @property
    def done(self) -> bool:
        """Tell whether the inner snapshot is done."""
        return self.inner.done

    def run(self) -> ResultT:
        """Run the inner snapshot and wrap its result; raises what it raises."""
        return self.wrap(self.inner.run())

    def cancel(self) -> None:
        """Cancel the inner snapshot (SNP-2)."""
        self.inner.cancel()
