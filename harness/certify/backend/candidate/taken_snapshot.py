"""One of the candidate's snapshots, between its synchronous part and the end of its asynchronous part."""

from __future__ import annotations

import threading

from barrier_tck.harness.certify.backend.candidate.faulty_files import FaultyFiles
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import SnapshotFuture


class TakenSnapshot:
    """A snapshot whose synchronous part is done."""

    def __init__(self, future: SnapshotFuture[tuple[StateHandle, ...]], files: FaultyFiles) -> None:
        self.future = future
        self.files = files
        self.result: tuple[StateHandle, ...] | None = None
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.ended = threading.Event()

    def start(self) -> None:
        """Run the asynchronous part on a thread of its own."""
        self.thread = threading.Thread(target=self._run, name="asynchronous part", daemon=True)
        self.thread.start()

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
        assert self.thread is not None
        self.thread.join()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        assert self.result is not None or not self.error
        return self.result  # type: ignore[return-value]
