"""How the checks of a checkpoint storage look at it, while others act and afterwards."""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from barrier_tck.harness.certify.storage.candidate.bench import Broken, StorageBench, handles_of
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

SHORT_BYTES = 64 * 1024
"""How long local files may become while they are kept short."""


def read_whole(storage: CheckpointStorage, handle: StateHandle, clause: str, what: str) -> bytes:
    """Read a state file that must be there; ``what`` begins the sentence that says it is not."""
    try:
        return storage.read(handle)
    except StorageError as error:
        raise Broken(clause, f"{what} cannot be read: {error}") from error


def is_there(storage: CheckpointStorage, handle: StateHandle) -> bool:
    """Return whether a state file can be read."""
    try:
        storage.read(handle)
    except StorageError:
        return False
    return True


def require_whole(
    bench: StorageBench,
    completed: CompletedCheckpoint,
    clause: str,
    when: str,
    reader: CheckpointStorage | None = None,
) -> None:
    """Demand that a checkpoint is listed, is what was published, and has all its files."""
    storage = reader or bench.open()
    name = f"checkpoint {completed.checkpoint}"
    listed = completed.checkpoint in storage.completed()
    bench.require(clause, listed, f"{name} is not listed as complete {when}")
    try:
        loaded = storage.load(completed.checkpoint)
    except StorageError as error:
        raise Broken(clause, f"{name} cannot be loaded {when}: {error}") from error
    bench.require(clause, loaded == completed, f"{name} is loaded as something else {when}")
    for handle in handles_of(completed):
        read_whole(storage, handle, clause, f"a file of {name}, {when},")


def require_savepoint(bench: StorageBench, directory: str, clause: str, when: str) -> None:
    """Demand that a savepoint and its files can be read by another job."""
    reader = bench.open("another")
    try:
        loaded = reader.load_savepoint(directory)
    except StorageError as error:
        raise Broken(clause, f"the savepoint cannot be loaded {when}: {error}") from error
    message = f"the savepoint is loaded as {loaded.checkpoint} with {len(handles_of(loaded))} files {when}"
    bench.require(clause, loaded.checkpoint == 8 and len(handles_of(loaded)) == 1, message)
    for handle in handles_of(loaded):
        read_whole(reader, handle, clause, f"a file of the savepoint, {when},")


_SEEN_BY_OTHERS = frozenset({"unlink", "remove", "rename", "replace", "rmdir", "link", "send", "sendall"})
"""Calls of the operating system after which others find something changed."""
_LOOK_S = 1.0
"""The acting thread may hold a lock that the looking thread needs, so it waits for a look at most this many seconds."""


def look_while(act: Callable[[], None], look: Callable[[], None]) -> None:
    """Look again and again while another thread acts, and once more afterwards.

    After each call that changes something visible, the other thread waits until there was a look. Changes made in other
    ways are seen only if a look happens to come in between.
    """
    failed: list[BaseException] = []
    turns = _Turns()

    def acting() -> None:
        sys.setprofile(turns.after_call)
        try:
            act()
        except Exception as error:  # noqa: BLE001 - raised again below, on the thread that looks
            failed.append(error)
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=acting)
    interval = sys.getswitchinterval()
    # The interpreter changes threads so seldom that the other one would be through at the second look.
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        while thread.is_alive():
            look()
            turns.looked()
    finally:
        turns.end()
        thread.join()
        sys.setswitchinterval(interval)
    if failed:
        raise failed[0]
    look()


class _Turns:
    """Holds a thread up after some calls until another one has looked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._looks = 0
        self._over = False

    def after_call(self, _: FrameType, event: str, called: Any) -> None:
        """A profile function: it is called after each call of a built-in function, too."""
        if event == "c_return" and getattr(called, "__name__", "") in _SEEN_BY_OTHERS:
            with self._changed:
                # The look that is under way may have begun before.
                wanted = self._looks + 2
                self._changed.wait_for(lambda: self._over or self._looks >= wanted, _LOOK_S)

    def looked(self) -> None:
        with self._changed:
            self._looks += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let calls go on without waiting for a look."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


@contextlib.contextmanager
def short_files() -> Iterator[None]:
    """Let no file of this process become longer than the limit; Python turns the signal into EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHORT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
