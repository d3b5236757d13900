"""Files in a checkpoint directory: those that are there, that appear, and that are damaged for a while."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

HOW = ("remove", "empty", "cut", "unreadable")
"""Ways to damage a file."""
_WATCHED_EVERY_S = 0.0005


def storage_files(directory: Path) -> dict[str, int]:
    """Return the sizes of all files below a directory by their names, without the hidden ones.

    Hidden are the checksums of Hadoop's local file system, which other file systems do not have.
    """
    return {
        str(path.relative_to(directory)): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


class FileWatch(threading.Thread):
    """Calls ``act`` once, as soon as so many files have been made or replaced below a directory since it was made."""

    def __init__(self, directory: Path, count: int, act: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._directory, self._count, self._act = directory, count, act
        self._before = self._files()
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(_WATCHED_EVERY_S):
            if len(self._files() - self._before) >= self._count:
                self._act()
                return

    def join(self, timeout: float | None = None) -> None:
        """Watch no longer."""
        self._ends.set()
        super().join(timeout)

    def _files(self) -> set[tuple[str, int]]:
        """Return name and inode of each file: one that is replaced is another file."""
        found = set()
        for directory, _, names in os.walk(self._directory):
            for name in names:
                path = os.path.join(directory, name)
                if not name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                        found.add((path, os.stat(path).st_ino))
        return found


@contextlib.contextmanager
def damaged(path: Path, how: str, permille: int) -> Iterator[None]:
    """Damage a file, and undo it at the end. Hadoop's checksum of it is away meanwhile, so that it cannot help."""
    content = path.read_bytes()
    checksum = path.with_name(f".{path.name}.crc")
    kept = checksum.read_bytes() if checksum.is_file() else None
    checksum.unlink(missing_ok=True)
    path.unlink()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(content[: len(content) * permille // 1000])
    elif how == "unreadable":
        # Permissions do not stop root; a directory cannot be read as a file.
        path.mkdir()
    try:
        yield
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)
        if kept is not None:
            checksum.write_bytes(kept)
