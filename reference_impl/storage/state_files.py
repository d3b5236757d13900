"""Writes state files: the bytes and then the name are durable, and a failure leaves no partial file (SNP-2, SNP-3)."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.paths import join, parent, safe_name
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.directory_sync import SyncsDirectories
from barrier_tck.reference_impl.storage.whole_files import WholeFiles, remove_after


class FileStateWriter:
    """Writes the state files of one operator for one checkpoint. One thread uses it."""

    def __init__(
        self,
        files: WholeFiles,
        syncs: SyncsDirectories,
        root: str,
        prefix: str,
        savepoint: str = "",
        shared: int = 0,
    ) -> None:
        """Take the medium, the root of checkpoint storage or the savepoint, and what file names begin with.

        ``syncs`` makes names durable, those of directories too. ``shared``: the checkpoint for which files are written
        that later ones may use too.
        """
        self._files = files
        self._syncs = syncs
        self._root = root
        self._prefix = prefix
        self._savepoint = savepoint
        self._shared = shared
        self._written: list[str] = []

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write one durable file and return its handle; on failure the partial file is removed (SNP-2)."""
        handle_path = self._prefix + safe_name(name)
        if handle_path in self._written:
            raise JobUsageError(
                f"{handle_path} is written already; give each file of a snapshot its own name"
            )
        path = join(self._root, handle_path)
        size, crc = self._files.write(path, chunks)
        try:
            # The acknowledgement that follows guarantees the name as well as the bytes (SNP-3), and so that of the
            # directory, which may be new: the host can be lost before the checkpoint is published.
            self._syncs.sync_directory(parent(path))
        except Exception as error:
            remove_after(self._files, path, error)
            raise
        self._written.append(handle_path)
        return StateHandle(
            handle_path,
            size,
            metadata.checksum_text(crc),
            key_groups,
            savepoint=self._savepoint,
            shared=self._shared,
        )
