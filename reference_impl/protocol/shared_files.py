"""Which checkpoints use which shared files: the registry of incremental snapshots (SNP-5).

A shared file is written for one checkpoint, and later ones may use it too. Its path is its key: it carries checkpoint,
attempt and subtask, so no two files ever have the same one (IN-06). A file is *used* by

* every completed checkpoint that names it, for as long as the checkpoint is kept;
* every pending checkpoint of which a part that names it was acknowledged.

A subtask may decide to use a file long before it acknowledges. It may do so only with files of completed checkpoints
that the coordinator keeps until then (``JobCheckpoints.is_built_on``), so such a file has a user at any time.

The registry is made anew from the checkpoints in storage whenever a coordinator starts, and every count in it is a set
of users. There is nothing that could be counted twice (IN-02).
"""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle, SubtaskSnapshot


class SharedFiles:
    """The shared files of one job, and their users."""

    def __init__(self, stored: Iterable[str] = (), completed: Iterable[CompletedCheckpoint] = ()) -> None:
        self._users: dict[str, dict[CheckpointId, None]] = {path: {} for path in stored}
        self._written_for: dict[str, int] = {}
        for one in completed:
            for part in one.snapshots:
                self.use(one.checkpoint, part)

    def use(self, checkpoint: CheckpointId, part: SubtaskSnapshot) -> None:
        """Note that a checkpoint uses the shared files of a part."""
        for handle in part.handles():
            if handle.shared:
                self._users.setdefault(handle.path, {})[checkpoint] = None
                self._written_for[handle.path] = handle.shared

    def unknown(self, checkpoint: CheckpointId, part: SubtaskSnapshot) -> tuple[StateHandle, ...]:
        """Return the files that a part reuses although no checkpoint uses them: they may be deleted at any time."""
        return tuple(
            handle
            for handle in part.handles()
            if not handle.is_written_for(checkpoint) and not self._users.get(handle.path)
        )

    def unused(self, checkpoint: CheckpointId, part: SubtaskSnapshot) -> tuple[StateHandle, ...]:
        """Return the files that were written for a part of a checkpoint and that no checkpoint uses."""
        return tuple(one for one in part.written_for(checkpoint) if not self._users.get(one.path))

    def release(self, checkpoint: CheckpointId) -> tuple[str, ...]:
        """Note that a checkpoint uses nothing any more, since all that is its own is deleted now.

        Returns the paths of files that were written for it and stay, because others use them.
        """
        for users in self._users.values():
            users.pop(checkpoint, None)
        own = [path for path, written_for in self._written_for.items() if written_for == checkpoint]
        for path in own:
            if not self._users[path]:
                self._forget(path)
        return tuple(sorted(path for path in own if path in self._users))

    def take_unused(self) -> tuple[str, ...]:
        """Return the paths of files that no checkpoint uses, and forget them: they are deleted now."""
        unused = sorted(path for path, users in self._users.items() if not users)
        for path in unused:
            self._forget(path)
        return tuple(unused)

    def _forget(self, path: str) -> None:
        del self._users[path]
        self._written_for.pop(path, None)
