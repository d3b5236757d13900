"""Damaging local copies while their owner, which keeps running, removes the older ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.faults.targets import Damage, TargetGone
from barrier_tck.harness.reference.copy_targets import LocalCopies, is_intact
from barrier_tck.harness.reference.spark.disks import primary_of, unreadable
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import LocalCopy
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import (
    MANIFEST,
    CopiedFile,
    CopyManifest,
    copy_directory,
    encode_manifest,
    read_manifest,
)

SUBTASK, ATTEMPT = SubtaskId("totals", 0), AttemptNumber(1)
OLD, NEW = (LocalCopy(SUBTASK, CheckpointId(number), ATTEMPT) for number in (1, 2))
CONTENT = b"some state"


class Disk(LocalFileSystem):
    """A host's local files. The owner removes a copy just before the first of its state files is read."""

    def __init__(self, root: Path, names: tuple[str, ...] = ("state",)) -> None:
        super().__init__(root)
        self.removed_on_reading: tuple[LocalCopy, ...] = ()
        self.broken = False
        self.manifests: dict[LocalCopy, CopyManifest] = {}
        for copy in (OLD, NEW):
            directory = copy_directory(copy)
            files = tuple(
                CopiedFile(f"keyed/1/{name}", name, len(CONTENT), metadata.checksum_of(CONTENT))
                for name in names
            )
            for name in names:
                self._write(f"{directory}/{name}", CONTENT)
            manifest = CopyManifest("job", str(SUBTASK), copy.attempt, copy.checkpoint, (0, 8), files)
            self._write(f"{directory}/{MANIFEST}", encode_manifest(manifest))
            self.manifests[copy] = manifest

    def _write(self, path: str, content: bytes) -> None:
        stream = self.create(path)
        stream.write(content)
        stream.close()

    def read(self, path: str) -> bytes:
        for copy in self.removed_on_reading:
            directory = copy_directory(copy)
            if path.startswith(f"{directory}/state"):
                self.delete_tree(directory)
        return super().read(path)

    def delete(self, path: str) -> None:
        if self.broken:
            raise StorageError(f"cannot delete {path}")
        super().delete(path)


def copies_on(disk: Disk) -> LocalCopies:
    assert intact(disk, OLD) and intact(disk, NEW), "an incomplete copy would show nothing"
    return LocalCopies(SUBTASK, {"a": disk}, lambda: None, lambda: False, lambda _host, _place: lambda: False)


def intact(disk: Disk, copy: LocalCopy) -> bool:
    return is_intact(disk, copy, disk.manifests[copy])


ANY_HOST = [damage for damage in Damage if damage not in (Damage.PARTIAL, Damage.UNREADABLE)]


@pytest.mark.parametrize("damage", ANY_HOST)
def test_every_damage_is_proved_by_what_is_on_the_disk(tmp_path: Path, damage: Damage) -> None:
    disk = Disk(tmp_path)
    copies = copies_on(disk)
    assert not copies.is_damaged()
    copies.damage(damage)
    assert copies.is_damaged() and not intact(disk, NEW) and not intact(disk, OLD)


def test_a_partial_copy_lacks_one_file_and_that_of_the_next_checkpoint_another_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path, ("state-a", "state-b"))
    copies_on(disk).damage(Damage.PARTIAL)
    lacking = {
        copy: [file.local for file in disk.manifests[copy].files if not disk.exists(_path(copy, file.local))]
        for copy in (OLD, NEW)
    }
    assert lacking == {OLD: ["state-b"], NEW: ["state-a"]}


def _path(copy: LocalCopy, name: str) -> str:
    return f"{copy_directory(copy)}/{name}"


def test_the_copy_of_another_run_vouches_for_its_own_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    copies_on(disk).damage(Damage.OTHER_LINEAGE)
    (directory, manifest), name = (copy_directory(NEW), disk.manifests[NEW]), f"{copy_directory(NEW)}/state"
    found = read_manifest(disk, directory)
    assert found.files[0].checksum == metadata.checksum_of(disk.read(name)) != manifest.files[0].checksum
    assert (found.job, found.subtask, found.attempt, found.checkpoint, found.key_groups) == (
        *(manifest.job, manifest.subtask, manifest.attempt),
        *(manifest.checkpoint, manifest.key_groups),
    )


def test_a_directory_on_a_real_disk_becomes_unreadable_for_everybody_and_can_be_removed(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    place = tmp_path / copy_directory(NEW)
    proof = unreadable(place)
    assert proof()
    with pytest.raises(StorageError, match="symbolic links"):
        disk.read(f"{copy_directory(NEW)}/{MANIFEST}")
    assert copy_directory(NEW) not in "".join(name for name in disk.list_files("") if MANIFEST in name)
    disk.delete_tree("")
    assert not tmp_path.exists() and not proof()


def test_a_copy_that_its_owner_removes_meanwhile_is_skipped(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    copies = copies_on(disk)
    disk.removed_on_reading = (OLD,)
    copies.damage(Damage.BIT_FLIPPED)
    assert copies.is_damaged() and not intact(disk, NEW)
    assert "checkpoint 2" in copies.description and "checkpoint 1" not in copies.description


def test_if_every_copy_is_removed_meanwhile_nothing_was_hit(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    copies = copies_on(disk)
    disk.removed_on_reading = (OLD, NEW)
    with pytest.raises(TargetGone, match="before it could be damaged"):
        copies.damage(Damage.BIT_FLIPPED)
    assert not copies.is_damaged()


def test_a_disk_that_refuses_the_damage_is_an_error(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    copies = copies_on(disk)
    disk.broken = True
    with pytest.raises(StorageError, match="cannot delete"):
        copies.damage(Damage.BIT_FLIPPED)


@pytest.mark.parametrize("shared", [False, True])
def test_writes_of_increments_are_not_said_to_fail_because_their_names_are_not_known(
    tmp_path: Path, shared: bool
) -> None:
    handle = SimpleNamespace(path="job/chk-3/totals-0-a1-state", shared=shared)
    part = SimpleNamespace(handles=lambda: [handle])
    completed = SimpleNamespace(snapshot_of=lambda _subtask: part, savepoint=None)
    storage: Any = SimpleNamespace(completed=lambda: (CheckpointId(3),), load=lambda _checkpoint: completed)
    primary = primary_of(str(SUBTASK), storage, tmp_path)
    if shared:
        with pytest.raises(TargetGone, match="writes increments"):
            primary.refuse_writes(1)
    else:
        primary.refuse_writes(1)
    assert primary.refuses_writes() is not shared
