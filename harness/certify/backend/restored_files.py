"""The files of a snapshot as the certifier sees them: copies, and the key groups that their handles name."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.calls import Broken, Entries


def key_groups_wrong(handles: Sequence[wire.Handle], owned: tuple[int, int], content: Entries) -> Broken:
    """Return what is wrong with the key groups that handles name. They must be the store's, and cover all entries."""
    for handle in handles:
        if not owned[0] <= handle.start <= handle.end <= owned[1]:
            return (
                f"the handle of {Path(handle.path).name} names the key groups [{handle.start}, {handle.end}), but "
                f"the store has [{owned[0]}, {owned[1]})"
            )
    for group in sorted({place[1] for place in content}):
        if not any(handle.start <= group < handle.end for handle in handles):
            return f"key group {group} holds entries, but no handle names it"
    return None


def copied(handles: Sequence[wire.Handle], source: Path, target: Path) -> str:
    """Copy the files that handles name, and no others, into another storage directory; returns its path."""
    for handle in handles:
        copy = target / wire.CHECKPOINTS / handle.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / wire.CHECKPOINTS / handle.path, copy)
    return str(target)


FileState = tuple[int, int, int]
"""Size, time of the last change, and number of a file: if none differs, its content is the same."""


def file_states(directory: Path) -> dict[str, FileState]:
    """Return the state of each file below a directory, by its path in it."""
    states: dict[str, FileState] = {}
    for path in directory.rglob("*"):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            states[str(path.relative_to(directory))] = (found.st_size, found.st_mtime_ns, found.st_ino)
    return states


def changed_files(before: dict[str, FileState], after: dict[str, FileState]) -> str:
    """Return which files were added, removed or changed, as a text; empty if there are none."""
    changed = sorted(path for path in {**before, **after} if before.get(path) != after.get(path))
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{', '.join(changed[:3])}{more}"
