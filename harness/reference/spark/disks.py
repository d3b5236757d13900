"""The disks of a local cluster's workers, and the storage that they share, as fault targets of one job."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from barrier_tck.faults.targets import TargetGone
from barrier_tck.harness.reference.copy_targets import LocalCopies, PrimaryCopies
from barrier_tck.harness.reference.jobs import CHECKPOINTS
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import INCOMING, LOCAL, directory_of, local_root


class JobDisks:
    """Where one job keeps its local copies on each worker's own disk."""

    def __init__(self, cluster: Path, host_of: Callable[[int], str], job: str, files_root: Path) -> None:
        """Take the cluster's directory, what names a worker's host, and what tells the job from others."""
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

    def wipe_all(self) -> None:
        """Remove what a job left: one that failed kept its copies for an attempt that never came."""
        for root in self.directories().values():
            shutil.rmtree(root, ignore_errors=True)

    def copies_of(self, subtask: str) -> LocalCopies:
        """Return the local copies of a subtask.

        No room for further ones is made by a file where a directory would have to be: the system then refuses to
        create anything below it, and copies that are whole stay readable.
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
        return LocalCopies(parsed, hosts, refuse, refuses)


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


def _obstacles(
    subtask: SubtaskId, storage: FileCheckpointStorage, files_root: Path, checkpoints: int
) -> list[Path]:
    """Return where the subtask's next checkpoints will create state files: a directory there makes that fail.

    The names are those of its latest completed checkpoint. The checkpoint whose id is reserved last counts as the
    next one as long as the subtask has written nothing for it.
    """
    completed = storage.completed()
    part = storage.load(completed[-1]).snapshot_of(subtask) if completed else None
    handles = part.handles() if part is not None else ()
    if not handles:
        raise TargetGone(f"no completed checkpoint tells the names of {subtask}'s state files")
    # The storage object of the harness would remember what was reserved when it looked first.
    fresh = FileCheckpointStorage(LocalFileSystem(files_root), _job_of(handles[0].path), CHECKPOINTS)
    first = int(fresh.reserved()[0])
    # A disk seldom fails at the first file: where there are several, that one is spared.
    paths = [files_root / CHECKPOINTS / handle.path for handle in handles[1:] or handles]

    def renumbered(path: Path, number: int) -> Path:
        return path.parent.parent / f"chk-{number}" / path.name

    if first in completed or any(renumbered(path, first).exists() for path in paths):
        first += 1
    return [renumbered(path, number) for number in range(first, first + checkpoints) for path in paths]


def _job_of(handle_path: str) -> str:
    return unquote(handle_path.partition("/")[0])


def _refuses(obstacle: Path) -> bool:
    """Ask the system itself: can the file be created?"""
    try:
        LocalFileSystem(obstacle.parent).create(obstacle.name).close()
    except StorageError:
        return True
    return False
