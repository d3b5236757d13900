"""Prepared transactions of two-phase-commit sinks, and which subtask each one belongs to (SNK-1, RSC-3).

The subtask that prepares a transaction is its *writer*. While it waits for its commit, the job may become wider and
narrower any number of times. Its owner follows from the writer and from the present parallelism alone, never from who
owned it in between. Two parties ask who that is: the redistribution, which gives the owner the transaction, and a sink
that looks for leftovers and sees nothing but the name of a file. Both get the answer of ``owner_of``: if they differed,
one subtask would delete what another one is to commit.
"""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId


class TransactionFile(msgspec.Struct, frozen=True):
    """One file of a prepared transaction of a file sink: where it waits and where a commit moves it."""

    pending: str
    committed: str
    size: int
    records: int


class TransactionHandle(msgspec.Struct, frozen=True):
    """A prepared (pre-committed) transaction of a two-phase-commit sink (SNK-1)."""

    transaction: str
    checkpoint: CheckpointId
    files: tuple[TransactionFile, ...]
    writer: int | None = None
    """Index of the subtask that prepared it. None in metadata before version 6: then its holder counts as it."""


def owner_of(writer: int, parallelism: int) -> int:
    """Return the subtask that decides on what the subtask ``writer`` prepared: that one, if the job still has it."""
    return writer % parallelism
