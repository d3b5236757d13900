"""Files in a checkpoint directory that are damaged for a while."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

HOW = ("remove", "empty", "cut", "unreadable")
"""Ways to damage a file."""


def storage_files(directory: Path) -> dict[str, int]:
    """Return the sizes of all files below a directory by their names, without the hidden ones.

    Hidden are the checksums of Hadoop's local file system, which other file systems do not have.
    """
    return {
        str(path.relative_to(directory)): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


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
        # Permissions do not stop root; nobody can read a directory as a file.
        path.mkdir()
    try:
        yield
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)
        if kept is not None:
            checksum.write_bytes(kept)
