"""Copies of the reference runtime's state as fault targets: local copies on any host, and primaries (both worlds).

It works through the runtime's file systems, so the same code damages a simulated disk and a real one. A file is never
changed in place, because a local copy may be a hard link to a file that a state backend has open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from barrier_tck.faults.targets import Damage, TargetGone
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import LocalCopy, StateHandle
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.local_copies import (
    MANIFEST,
    CopiedFile,
    CopyManifest,
    copies_on,
    copy_directory,
    encode_manifest,
    read_manifest,
)

FileT = TypeVar("FileT")


@dataclass(frozen=True)
class _HitCopy:
    """A copy that was damaged."""

    host: str
    copy: LocalCopy
    is_damaged: Callable[[], bool]


@dataclass
class LocalCopies:
    """The local copies of one subtask, on all hosts; implements ``barrier_tck.faults.targets.CopiesTarget``."""

    subtask: SubtaskId
    hosts: Mapping[str, FileSystem]
    """Host -> its own directory for the job."""
    refuse: Callable[[], None]
    """Called to leave no room for further copies."""
    refuses: Callable[[], bool]
    obstruct: Callable[[str, str], Callable[[], bool]]
    """Called with a host and a directory there, to make it unreadable; returns a function that says whether it is."""
    refuse_some: Callable[[int], Callable[[], bool]] | None = None
    """Called to refuse so many files; returns a function that says whether any was. None: this world cannot."""
    _hit: list[_HitCopy] = field(default_factory=list)

    @property
    def description(self) -> str:
        """Return whose copies these are, and where they were hit."""
        where = ", ".join(
            f"checkpoint {hit.copy.checkpoint} by attempt {hit.copy.attempt} on {hit.host}"
            for hit in self._hit
        )
        return f"local copies of {self.subtask}" + (f": {where}" if where else "")

    @property
    def files(self) -> tuple[str, ...]:
        """Return no file, because durable storage is not touched."""
        return ()

    def damage(self, damage: Damage) -> None:
        """Damage every sealed copy on every host."""
        found = [
            (host, copy)
            for host, files in sorted(self.hosts.items())
            for copy in copies_on(files, [self.subtask])
        ]
        if not found:
            raise TargetGone(f"no host has a local copy of {self.subtask}")
        hit = [self._damage_if_there(host, copy, damage) for host, copy in found]
        self._hit = [entry for entry in hit if entry is not None]
        if not self._hit:
            raise TargetGone(f"every local copy of {self.subtask} was removed before it could be damaged")

    def is_damaged(self) -> bool:
        """Return whether none of the copies is intact any more."""
        return bool(self._hit) and all(hit.is_damaged() for hit in self._hit)

    def _damage_if_there(self, host: str, copy: LocalCopy, damage: Damage) -> _HitCopy | None:
        """Damage a copy; None if its owner, which keeps running, removed it first because a newer copy is complete."""
        files, directory = self.hosts[host], copy_directory(copy)
        original = _manifest_of(files, directory)
        try:
            if damage is Damage.UNREADABLE:
                return _HitCopy(host, copy, self.obstruct(host, directory))
            _damage_copy(files, copy, damage)
        except RuntimeFailure:
            if is_intact(files, copy, original):
                raise
            return None
        return _HitCopy(host, copy, lambda: not is_intact(files, copy, original))

    def refuse_writes(self, checkpoints: int) -> None:
        """Leave no room for further copies until the end of the trial."""
        self.refuse()

    def refuse_files(self, files: int) -> Callable[[], bool] | None:
        """Refuse the next files, so many; None if this world cannot."""
        return self.refuse_some(files) if self.refuse_some is not None else None

    def refuses_writes(self) -> bool:
        """Return whether there is no room for further copies."""
        return self.refuses()


@dataclass
class MetadataWrites:
    """The writes that make checkpoints complete; implements ``barrier_tck.faults.targets.WritesTarget``."""

    refuse: Callable[[int], None]
    refuses: Callable[[], bool]
    description: str = "metadata of further checkpoints"
    files: tuple[str, ...] = ()

    def refuse_writes(self, checkpoints: int) -> None:
        """Make the next checkpoints, this many, fail when they are to become complete."""
        self.refuse(checkpoints)

    def refuses_writes(self) -> bool:
        """Return whether such a write would fail now."""
        return self.refuses()


@dataclass
class PrimaryCopies:
    """A subtask's part of the latest completed checkpoint; implements ``barrier_tck.faults.targets.CopiesTarget``."""

    subtask: SubtaskId
    storage: FileCheckpointStorage
    disk: FileSystem
    root: str
    """Directory of checkpoint storage."""
    refuse: Callable[[int], None]
    refuses: Callable[[], bool]
    _hit: list[StateHandle] = field(default_factory=list)

    @property
    def description(self) -> str:
        """Return whose copy this is, and which files were hit."""
        where = ", ".join(handle.name for handle in self._hit)
        return f"durable copy of {self.subtask}" + (f": {where}" if where else "")

    @property
    def files(self) -> tuple[str, ...]:
        """Return the state files that were hit."""
        return tuple(handle.name for handle in self._hit)

    def damage(self, damage: Damage) -> None:
        """Damage the state files of the latest completed checkpoint."""
        completed = self.storage.completed()
        part = self.storage.load(completed[-1]).snapshot_of(self.subtask) if completed else None
        handles = list(part.handles()) if part is not None else []
        if not handles:
            raise TargetGone(f"no completed checkpoint has state files of {self.subtask}")
        self._hit = [_one_of(handles, completed[-1])] if damage is Damage.PARTIAL else handles
        for handle in self._hit:
            _damage_file(self.disk, join(handle.savepoint or self.root, handle.path), damage)

    def is_damaged(self) -> bool:
        """Return whether none of the files can be read any more."""
        return bool(self._hit) and not any(self._is_readable(handle) for handle in self._hit)

    def refuse_writes(self, checkpoints: int) -> None:
        """Make the subtask's writes fail for this number of its next checkpoints."""
        self.refuse(checkpoints)

    def refuses_writes(self) -> bool:
        """Return whether a write of the subtask would fail now."""
        return self.refuses()

    def _is_readable(self, handle: StateHandle) -> bool:
        try:
            self.storage.read(handle)
        except RuntimeFailure:
            return False
        return True


def _one_of(files: Sequence[FileT], checkpoint: int) -> FileT:
    """Return the file that a partial copy lacks: with each checkpoint another one, the first as well as the last.

    Who stops at the first file that is missing, and who looks at the first only, are both found.
    """
    return files[checkpoint % len(files)]


def _manifest_of(files: FileSystem, directory: str) -> CopyManifest | None:
    """Return the manifest of a copy; None if it cannot be read."""
    try:
        return read_manifest(files, directory)
    except RuntimeFailure:
        return None


def is_intact(files: FileSystem, copy: LocalCopy, original: CopyManifest | None) -> bool:
    """Return whether a copy still has the manifest that it had once, if any, and the files that this names."""
    directory = copy_directory(copy)
    try:
        manifest = read_manifest(files, directory)
        if manifest != original:
            return False
        return all(
            metadata.checksum_of(files.read(join(directory, file.local))) == file.content[1]
            for file in manifest.files
        )
    except RuntimeFailure:
        return False


def _damage_copy(files: FileSystem, copy: LocalCopy, damage: Damage) -> None:
    directory = copy_directory(copy)
    if damage is Damage.MISSING:
        files.delete_tree(directory)
        return
    manifest = read_manifest(files, directory)
    path = join(directory, MANIFEST)
    match damage:
        case Damage.OLDER_CHECKPOINT:
            older = msgspec.structs.replace(manifest, checkpoint=manifest.checkpoint - 1)
            _rewrite(files, path, encode_manifest(older))
        case Damage.OLDER_ATTEMPT:
            older = msgspec.structs.replace(manifest, attempt=manifest.attempt - 1)
            _rewrite(files, path, encode_manifest(older))
        case Damage.OTHER_KEY_GROUPS:
            start, end = manifest.key_groups
            other = msgspec.structs.replace(manifest, key_groups=(end, 2 * end - start))
            _rewrite(files, path, encode_manifest(other))
        case Damage.OTHER_LINEAGE:
            for file in manifest.files:
                content = files.read(join(directory, file.local))
                _rewrite(
                    files,
                    join(directory, file.local),
                    content[:-1] + bytes([content[-1] ^ 1]) if content else b"?",
                )
            vouched = tuple(_vouched(files, directory, file) for file in manifest.files)
            _rewrite(files, path, encode_manifest(msgspec.structs.replace(manifest, files=vouched)))
        case Damage.CONSUMED:
            for file in manifest.files:
                files.delete(join(directory, file.local))
        case Damage.PARTIAL:
            if len(manifest.files) < 2:
                raise TargetGone(
                    f"{directory} has {len(manifest.files)} files, so it cannot lose only a part"
                )
            files.delete(join(directory, _one_of(manifest.files, manifest.checkpoint).local))
        case _:
            for file in manifest.files:
                _damage_file(files, join(directory, file.local), damage)


def _vouched(files: FileSystem, directory: str, file: CopiedFile) -> CopiedFile:
    """Return the entry of a manifest that fits the file as it is now."""
    content = files.read(join(directory, file.local))
    found = (len(content), metadata.checksum_of(content))
    # Another run has another primary too. Where the formats differ, its size and checksum say nothing.
    own = None if file.own is None else found
    return msgspec.structs.replace(file, size=found[0], checksum=found[1], own=own)


def _damage_file(files: FileSystem, path: str, damage: Damage) -> None:
    content = files.read(path)
    middle = len(content) // 2
    if not content:
        files.delete(path)  # an empty file has no end to lose and no bit to flip
    elif damage is Damage.TRUNCATED:
        _rewrite(files, path, content[:middle])
    elif damage is Damage.BIT_FLIPPED:
        _rewrite(files, path, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        files.delete(path)


def _rewrite(files: FileSystem, path: str, content: bytes) -> None:
    files.delete(path)
    stream = files.create(path)
    try:
        stream.write(content)
        stream.sync()
    finally:
        stream.close()
