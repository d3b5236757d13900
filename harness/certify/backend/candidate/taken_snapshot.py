"""One of the candidate's snapshots, between its synchronous part and the end of its asynchronous part."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barrier_tck.harness.certify.backend.candidate.faulty_files import FaultyFiles
from barrier_tck.harness.certify.backend.candidate.second_copies import SecondCopies
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import SnapshotFuture


class _OtherThread(threading.Thread):
    """Makes one call."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__(name="another thread", daemon=True)
        self._call = call
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call; what is raised is kept."""
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits
            self._error = error

    def ended(self) -> None:
        """Wait for its end; raises what the call raised."""
        self.join()
        if self._error is not None:
            raise self._error


class TakenSnapshot:
    """A snapshot whose synchronous part is done."""

    def __init__(
        self,
        future: SnapshotFuture[tuple[StateHandle, ...]],
        files: FaultyFiles,
        second: SecondCopies | None = None,
    ) -> None:
        self.future = future
        self.files = files
        self.second = second
        self.result: tuple[StateHandle, ...] | None = None
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        """Run the asynchronous part to its end, on this thread."""
        self._run()

    def start(self) -> None:
        """Run the asynchronous part on a thread of its own."""
        self.thread = threading.Thread(target=self._run, name="asynchronous part", daemon=True)
        self.thread.start()

    def cancel(self) -> _OtherThread:
        """Begin to cancel it from a thread of its own, and return that thread."""
        thread = _OtherThread(self.future.cancel)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            self.result = self.future.run()
        except BaseException as error:  # noqa: BLE001 - carried to the thread that asks for the result
            self.error = error
        finally:
            self.ended.set()
            self.files.standing.set()

    def join(self) -> tuple[StateHandle, ...]:
        """Wait for its end and return the handles; raises what it raised."""
        if self.thread is not None:
            self.thread.join()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        assert self.result is not None or not self.error
        return self.result  # type: ignore[return-value]
