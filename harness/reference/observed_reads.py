"""Watches the file systems of a restore and logs what is read: the proof of which copy served what (LOC-4).

The runtime reports which copy it used, but that is only its own word. So every subtask that restores with local
recovery gets file systems that note the path, length and checksum of each file that it reads, until it reports that
it has its state. Then the notes are handed to a keeper: in the simulator directly, on Spark through a file that the
executor writes and the driver reads.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.operations import FileRead, ReadsObserved, ServedFrom
from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.harness.reference.state_fingerprints import fingerprint_of
from barrier_tck.reference_impl.protocol.messages import StateRestored
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import CoordinatorLink
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.local_copies import LinkingFileSystem

_log = logging.getLogger(__name__)

Keep = Callable[[ReadsObserved], None]
"""Takes what was observed of one restore."""


class ObservedFiles(DelegatingFileSystem):
    """Notes every file that is read through it."""

    def __init__(
        self,
        inner: FileSystem,
        place: ServedFrom,
        reads: list[FileRead],
        root: str = "",
        two_formats: bool = False,
    ) -> None:
        """Append each read to ``reads``; paths are logged as seen below ``root``, with ``two_formats`` the state
        too."""
        super().__init__(inner)
        self._place = place
        self._reads = reads
        self._root = f"{root}/" if root else ""
        self._two_formats = two_formats

    def note_read(self, path: str, content: bytes) -> None:
        name = path.removeprefix(self._root)
        state = fingerprint_of(content) if self._two_formats else ""
        checksum = f"crc32:{zlib.crc32(content):08x}"
        self._reads.append(FileRead(self._place, name, len(content), checksum, state))


class ObservedLinkingFiles(ObservedFiles):
    """The same for a disk whose files can be hard-linked (LOC-10)."""

    inner: LinkingFileSystem

    def link(self, source: Path, target: str) -> None:
        """Make ``target`` another name of a file."""
        self.inner.link(source, target)

    def path_of(self, path: str) -> Path:
        """Return where a file is."""
        return self.inner.path_of(path)


@dataclass(frozen=True)
class _ReportsReads:
    """A connection to the coordinator; before it reports what was restored, it hands over what was read."""

    inner: CoordinatorLink
    reads: list[FileRead]
    keep: Keep

    def send(self, message: Any) -> None:
        if isinstance(message, StateRestored):
            self.keep(ReadsObserved(str(message.subtask), message.attempt, tuple(self.reads)))
        self.inner.send(message)


def _with_observed_restore(parts: DriverParts, make: MakeDriver, keep: Keep) -> SubtaskDriver:
    """Return a driver; only one that restores with local recovery gets watched file systems."""
    if parts.deployment.restore is not None and parts.deployment.config.local_recovery:
        parts = replace(parts, ports=_observed(parts.deployment, parts.ports, parts.components, keep))
    return make(parts)


def observed(components: Components, keep: Keep) -> Components:
    """Return the components with drivers whose restores are observed."""
    return with_driver_instrument(components, partial(_with_observed_restore, keep=keep))


def _observed(
    deployment: SubtaskDeployment, ports: SubtaskPorts, components: Components, keep: Keep
) -> SubtaskPorts:
    reads: list[FileRead] = []
    root = deployment.config.storage_root
    two_formats = deployment.config.local_compression is not None
    shared = ObservedFiles(ports.files, ServedFrom.PRIMARY, reads, root)
    local = ports.local_files
    if isinstance(local, LinkingFileSystem):
        local = ObservedLinkingFiles(local, ServedFrom.SECONDARY, reads, two_formats=two_formats)
    elif local is not None:
        local = ObservedFiles(local, ServedFrom.SECONDARY, reads, two_formats=two_formats)
    return replace(
        ports,
        storage=components.checkpoint_storage(shared, deployment.job, root),
        local_files=local,
        coordinator=_ReportsReads(ports.coordinator, reads, keep),
    )


@dataclass(frozen=True)
class ReadsDirectory:
    """Passes what was observed from one process to another, in one file for each restore."""

    path: str
    """A directory that both processes reach."""

    def __call__(self, observed: ReadsObserved) -> None:
        """Write it, whole or not at all. If the disk refuses, the proof is lost, but the restore is not affected."""
        target = self._file(observed.subtask, observed.attempt)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(observed))
            os.replace(temporary, target)
        except OSError as error:
            _log.warning("could not keep what %s read: %s", observed.subtask, error)

    def take(self, subtask: str, attempt: int) -> ReadsObserved | None:
        """Return what was observed of a restore; None if it was not kept."""
        try:
            return msgspec.json.decode(self._file(subtask, attempt).read_bytes(), type=ReadsObserved)
        except FileNotFoundError:
            return None

    def _file(self, subtask: str, attempt: int) -> Path:
        return Path(self.path) / f"{quote(subtask, safe='')}-a{attempt}.json"
