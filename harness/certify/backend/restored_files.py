"""The files of a snapshot as the certifier sees them: copies, and the key groups that their handles name."""

from __future__ import annotations

import shutil
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
