"""Notes which files of a snapshot are written, so that one that fails can remove those that came before (SNP-2)."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import StateWriter


class NotingWriter:
    """Writes as another writer does; implements ``StateWriter``.

    A backend gives the handles of its files when all are written. If it fails before, nobody else knows of them.
    """

    def __init__(self, writer: StateWriter, written: list[StateHandle]) -> None:
        """Take the writer, and where to note the handle of each file."""
        self._writer = writer
        self._written = written

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write one durable file and return its handle."""
        handle = self._writer.write(name, chunks, key_groups)
        self._written.append(handle)
        return handle
