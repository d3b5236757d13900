"""What a process does to a checkpoint storage until it is killed; ``python -m`` runs one action by its name.

What an action has written is known beforehand, so what looks at it later needs nothing from the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COUNT,
    GROUPS,
    READY,
    MakeStorage,
    complete,
    completed_of,
    content_of,
    write,
)
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.support.third_party import imported, search_working_directory
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

WRITTEN_BYTES = 100_000
LONG_BYTES = 9 * 1024 * 1024
"""Longer than a part of an upload."""
BASE = b"shared"
MANY_FILES = 30
PUBLISHED = 6
MANY_SPLITS = 20_000
"""As many splits make a megabyte of metadata."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _begin() -> None:
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()


def write_and_reserve(storage: CheckpointStorage) -> None:
    """Reserve and write a file of checkpoint 3, and die."""
    _begin()
    storage.reserve(CheckpointId(3), AttemptNumber(2))
    write(storage, 3, content_of(WRITTEN_BYTES))
    _die()


def publish(storage: CheckpointStorage) -> None:
    """Publish checkpoint 3, and die."""
    _begin()
    complete(storage, 3)
    _die()


def _chunks_until_death() -> Iterator[bytes]:
    yield content_of(LONG_BYTES)
    yield content_of(LONG_BYTES, 1)
    _die()


def write_half(storage: CheckpointStorage) -> None:
    """Reserve checkpoint 4, write one file of it, and die in the middle of another one."""
    _begin()
    storage.reserve(CheckpointId(4), ATTEMPT)
    write(storage, 4)
    storage.writer(CheckpointId(4), ATTEMPT, COUNT, "aggregate").write("half", _chunks_until_death(), GROUPS)


def write_half_shared(storage: CheckpointStorage) -> None:
    """Reserve checkpoint 5, write one shared file of it, and die in the middle of another one."""
    _begin()
    storage.reserve(CheckpointId(5), ATTEMPT)
    write_base(storage)
    writer = storage.shared_writer(CheckpointId(5), ATTEMPT, COUNT, "aggregate")
    writer.write("half", _chunks_until_death(), GROUPS)


def write_base(storage: CheckpointStorage) -> StateHandle:
    """Write that shared file."""
    return storage.shared_writer(CheckpointId(5), ATTEMPT, COUNT, "aggregate").write("base", [BASE], GROUPS)


def write_half_savepoint(storage: CheckpointStorage, directory: str) -> None:
    """Reserve savepoint 7, write one file of it, and die in the middle of another one."""
    _begin()
    storage.reserve(CheckpointId(7), ATTEMPT)
    storage.begin_savepoint(CheckpointId(7), directory)
    write(storage, 7, savepoint=directory)
    writer = storage.writer(CheckpointId(7), ATTEMPT, COUNT, "aggregate", directory)
    writer.write("half", _chunks_until_death(), GROUPS)


def publish_many(storage: CheckpointStorage, first: str) -> None:
    """Publish checkpoints with large metadata, from an id on, until it is killed."""
    number = int(first)
    storage.reserve(CheckpointId(number + PUBLISHED), ATTEMPT)
    parts = [
        (each, [write(storage, each, name=f"f{n}") for n in range(2)])
        for each in range(number, number + PUBLISHED)
    ]
    _begin()
    for each, handles in parts:
        storage.publish(completed_of(each, handles, MANY_SPLITS))
    _die()


def discard(storage: CheckpointStorage, checkpoint: str) -> None:
    """Discard a checkpoint with many files, and die."""
    _begin()
    storage.discard_checkpoint(CheckpointId(int(checkpoint)))
    _die()


ACTIONS: dict[str, Callable[..., None]] = {
    action.__name__: action
    for action in (
        write_and_reserve,
        publish,
        write_half,
        write_half_shared,
        write_half_savepoint,
        publish_many,
        discard,
    )
}


def made_by(target: str) -> MakeStorage:
    """Return the factory that a target names; raises UsageProblem if there is none."""
    search_working_directory()
    return imported(storage_target(target), "checkpoint storage")  # type: ignore[return-value]  # checked when it is used


def main(target: str, location: str, action: str, *given: str) -> None:
    """Run one action on a new instance."""
    ACTIONS[action](made_by(target)(location, "job"), *given)


if __name__ == "__main__":
    main(*sys.argv[1:])
