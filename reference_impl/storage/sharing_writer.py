"""The writer of incremental snapshots: some files belong to one checkpoint alone, others to later ones too (SNP-5)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.backend import StateWriter


class SharingWriter:
    """Writes one operator's files for one checkpoint; implements ``SharingStateWriter``."""

    def __init__(self, private: StateWriter, shared: StateWriter, reuse_from: int) -> None:
        self._private = private
        self._shared = shared
        self._reuse_from = reuse_from

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write a file that belongs to this checkpoint alone."""
        return self._private.write(name, chunks, key_groups)

    def write_shared(
        self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange, file: Path | None = None
    ) -> StateHandle:
        """Write a file that later checkpoints may use too."""
        return self._shared.write(name, chunks, key_groups)

    def may_reuse(self, checkpoint: CheckpointId) -> bool:
        """Return whether the coordinator keeps a completed checkpoint until this one has ended."""
        return checkpoint >= self._reuse_from

    def reuse(self, handle: StateHandle) -> StateHandle:
        """Return the handle of a shared file of an earlier checkpoint, as it is."""
        if not handle.shared:
            raise JobUsageError(
                f"{handle.name} belongs to one checkpoint alone; write it with write_shared to use it again (SNP-5)"
            )
        return handle
