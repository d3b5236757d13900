"""State that an operator holds in a form of its own, and of which a store asks for bytes only when it writes them.

An operator on whole batches has its state in arrays. Stores and snapshots are made of bytes by key, and to make them of
all that changed takes longer than the synchronous part of a snapshot may. So the operator *freezes* its state, which is
a matter of references, and the asynchronous part asks what was frozen for its entries.

A store that can do this is a ``HoldingStore``. To one that cannot, the operator writes its entries before a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class HeldEntries:
    """Entries of one state in one key group."""

    name: str
    group: int
    keys: Sequence[bytes]
    values: Sequence[bytes]
    """In step with ``keys``."""
    removed: Sequence[bytes] = ()
    """Keys that have no entry any more."""


class FrozenState(Protocol):
    """All that an operator holds, as it was when a snapshot was taken. Used by one thread at a time."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry."""

    def entries(self, since: int | None) -> Iterator[HeldEntries]:
        """Yield the entries that changed since the snapshot of a version, and the keys removed since; None: all.

        No entry comes twice; those of one key group may come in several parts.
        """

    def count(self, since: int | None) -> int:
        """Return how many entries that are, with the keys removed."""

    def release(self) -> None:
        """Read nothing any more; harmless at any time, by any thread, and twice."""


class HeldState(Protocol):
    """What an operator holds; its entries are those of states that it does not use in the store otherwise."""

    def freeze(self, version: int) -> FrozenState:
        """Freeze it for the snapshot of a version; versions count up. What changes from now on belongs to the next."""


@runtime_checkable
class HoldingStore(Protocol):
    """A store whose snapshots take in what an operator holds."""

    def hold(self, held: HeldState, names: Sequence[str]) -> None:
        """Take in the states with these names with each snapshot, and have them in no other way from now on.

        What was restored has the version 0: the operator has read it by now.
        """

    @property
    def changes_since(self) -> int | None:
        """The oldest version since which ``entries`` may be asked for; None: only for all."""


class _NothingHeld:
    """``FrozenState`` of an operator that holds nothing."""

    is_empty = True

    def entries(self, since: int | None) -> Iterator[HeldEntries]:
        return iter(())

    def count(self, since: int | None) -> int:
        return 0

    def release(self) -> None:
        """Do nothing."""


NOTHING_HELD: FrozenState = _NothingHeld()
