"""The disks of a local cluster's workers, and their shared storage, as fault targets of one job."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from barrier_tck.faults.targets import TargetGone
from barrier_tck.harness.record.operations import CopySeen
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.jobs import CHECKPOINTS
from barrier_tck.harness.reference.seen_copies import copies_among
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import INCOMING, LOCAL, directory_of, local_root


class JobDisks:
    """Where one job keeps its local copies on each worker's own disk."""

    def __init__(self, cluster: Path, host_of: Callable[[int], str], job: str, files_root: Path) -> None:
        self._cluster = cluster
        self._host_of = host_of
        self._job = job
        self._files_root = str(files_root)

    def directories(self) -> dict[str, Path]:
        """Return the job's directory on every host that has one."""
        found = {}
        for base in sorted(self._cluster.glob(f"worker-*/local/*/*/{LOCAL}")):
            worker = int(base.relative_to(self._cluster).parts[0].removeprefix("worker-"))
            root = local_root(base.parent, self._job, self._files_root)
            if root.is_dir():
                found[self._host_of(worker)] = root
        return found

    def files(self) -> tuple[str, ...]:
        """Return all files in these directories."""
        return tuple(
            f"{host}:{path.relative_to(root)}"
            for host, root in self.directories().items()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        )

    def copies(self) -> tuple[CopySeen, ...]:
        """Return the copies in these directories, while subtasks write and delete them."""
        return copies_among(
            (host, os.path.relpath(os.path.join(directory, name), root))
            for host, root in self.directories().items()
            for directory, _, names in os.walk(root)
            for name in sorted(names)
        )

    def wipe_all(self) -> None:
        """Remove the local copies that a job left: a failed job keeps them for a next attempt that never comes."""
        for root in self.directories().values():
            shutil.rmtree(root, ignore_errors=True)

    def copies_of(self, subtask: str) -> LocalCopies:
        """Return the local copies of a subtask.

        To leave no room for further copies, a file is put where their directory would have to be: the operating
        system then refuses to create anything below it, and complete copies stay readable.
        """
        parsed = SubtaskId.parse(subtask)
        obstacles = [root / directory_of(parsed) / INCOMING for root in self.directories().values()]

        def refuse() -> None:
            if not obstacles:
                raise TargetGone("no host has local copies of the job yet")
            for obstacle in obstacles:
                shutil.rmtree(obstacle, ignore_errors=True)
                obstacle.parent.mkdir(parents=True, exist_ok=True)
                obstacle.touch()

        def refuses() -> bool:
            return all(obstacle.is_file() for obstacle in obstacles)

        hosts = {host: LocalFileSystem(root) for host, root in self.directories().items()}

        def obstruct(host: str, directory: str) -> Callable[[], bool]:
            return unreadable(hosts[host].path_of(directory))

        return LocalCopies(parsed, hosts, refuse, refuses, obstruct)


def unreadable(directory: Path) -> Callable[[], bool]:
    """Make a directory unreadable, for root as well: a link to itself takes its place, which cannot be followed."""
    try:
        shutil.rmtree(directory)
        directory.symlink_to(directory.name)
    except OSError as error:
        raise StorageError(f"cannot make {directory} unreadable: {error}") from error

    def cannot_be_listed() -> bool:
        try:
            os.listdir(directory)
        except OSError as error:
            return error.errno == errno.ELOOP
        return False

    return cannot_be_listed


def primary_of(subtask: str, storage: FileCheckpointStorage, files_root: Path) -> PrimaryCopies:
    """Return a subtask's part of the latest completed checkpoint, in shared storage."""
    parsed = SubtaskId.parse(subtask)
    obstacles: list[Path] = []

    def refuse(checkpoints: int) -> None:
        obstacles.extend(_obstacles(parsed, storage, files_root, checkpoints))
        for obstacle in obstacles:
            obstacle.mkdir(parents=True)

    def refuses() -> bool:
        return bool(obstacles) and all(_refuses(obstacle) for obstacle in obstacles)

    files = LocalFileSystem(files_root)
    return PrimaryCopies(parsed, storage, files, CHECKPOINTS, refuse, refuses)


def metadata_of(storage: FileCheckpointStorage, files_root: Path, job: str) -> MetadataWrites:
    """Return the writes that make checkpoints complete. They go to a temporary file first; a directory there makes that
    fail, beginning with the checkpoint whose id was reserved last, if it is not complete.
    """
    obstacles: list[Path] = []

    def refuse(checkpoints: int) -> None:
        # The harness's own storage object would remember what was reserved when it first looked.
        fresh = FileCheckpointStorage(LocalFileSystem(files_root), job, CHECKPOINTS)
        first = int(fresh.reserved()[0])
        first += first in storage.completed()
        directory = files_root / CHECKPOINTS / safe_name(job)
        obstacles.extend(
            directory / f"chk-{number}" / "_metadata.tmp" for number in range(first, first + checkpoints)
        )
        for obstacle in obstacles:
            try:
                obstacle.mkdir(parents=True)
            except FileExistsError as error:
                raise TargetGone(f"{obstacle.parent.name} is becoming complete at this moment") from error

    def refuses() -> bool:
        return bool(obstacles) and all(_refuses(obstacle) for obstacle in obstacles)

    return MetadataWrites(refuse, refuses)


def _obstacles(
    subtask: SubtaskId, storage: FileCheckpointStorage, files_root: Path, checkpoints: int
) -> list[Path]:
    """Return the paths at which the subtask's next checkpoints will create state files: a directory there makes that
    fail.

    The file names are those of its latest completed checkpoint. The checkpoint whose id was reserved last counts as
    the next one as long as the subtask has written nothing for it.
    """
    completed = storage.completed()
    loaded = [storage.load(checkpoint) for checkpoint in completed]
    part = next((entry.snapshot_of(subtask) for entry in reversed(loaded) if entry.savepoint is None), None)
    handles = part.handles() if part is not None else ()
    if not handles:
        raise TargetGone(f"no completed checkpoint shows the names of {subtask}'s state files yet")
    if any(handle.shared for handle in handles):
        raise TargetGone(f"{subtask} writes increments, and the names of its next files are unknown")
    # The harness's own storage object would remember what was reserved when it first looked.
    fresh = FileCheckpointStorage(LocalFileSystem(files_root), _job_of(handles[0].path), CHECKPOINTS)
    first = int(fresh.reserved()[0])
    # A disk seldom fails at the first file, so that one is spared if there are several.
    paths = [files_root / CHECKPOINTS / handle.path for handle in handles[1:] or handles]

    def renumbered(path: Path, number: int) -> Path:
        return path.parent.parent / f"chk-{number}" / path.name

    if first in completed or any(renumbered(path, first).exists() for path in paths):
        first += 1
    return [renumbered(path, number) for number in range(first, first + checkpoints) for path in paths]


def _job_of(handle_path: str) -> str:
    return unquote(handle_path.partition("/")[0])


def _refuses(obstacle: Path) -> bool:
    """Return whether the operating system refuses to create the file."""
    try:
        LocalFileSystem(obstacle.parent).create(obstacle.name).close()
    except StorageError:
        return True
    return False
