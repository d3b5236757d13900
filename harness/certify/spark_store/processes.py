"""The JVM in which executors run: started when it is needed, used by many examples, killed and replaced."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from barrier_tck.harness.certify.engine.ended_by_others import ended_by_others
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.spark_store.executor import StoreExecutor
from barrier_tck.harness.certify.spark_store.java_process import JavaProcess
from barrier_tck.harness.certify.spark_store.layouts import StoreLayout
from barrier_tck.harness.certify.spark_store.storage_files import FileWatch
from barrier_tck.harness.certify.spark_store.targets import StoreTarget
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites, jar_of_writes
from barrier_tck.harness.support.errors import EnvironmentProblem
from barrier_tck.harness.support.work_directories import new_work_directory

NO_DISTURBED_WRITES = "there is no javac, which compiles the class that disturbs writes; install a JDK"
_PATIENCE = 3.0
"""A call into a JVM may take this many times as long: it may have to load and compile its code first."""


class StoreProcesses:
    """A JVM at a time, and a temporary directory for checkpoints and local files."""

    def __init__(self, target: StoreTarget, call_s: float, total_s: float) -> None:
        """Start nothing yet. A call may take three times ``call_s`` seconds, and all together ``total_s``."""
        self.target = target
        self.started = 0
        self.log = ""
        self.has_commit_ids = False
        """Whether the store gives each commit an id, if it is asked to; nobody has tried yet."""
        self._call_s = call_s * _PATIENCE
        self._deadline = time.monotonic() + total_s
        self._directory = new_work_directory("stores")
        self._process: JavaProcess | None = None
        self._jar_of_writes: Path | None = None
        self._examples = 0

    @property
    def remaining_s(self) -> float:
        """Return how much of the total time is left, in seconds."""
        return self._deadline - time.monotonic()

    def executor(
        self,
        layout: StoreLayout,
        checkpoints: Path,
        settings: dict[str, str],
        storage: Mapping[str, str] = MappingProxyType({}),
    ) -> StoreExecutor:
        """Return a new executor in the present JVM; ``storage`` has settings of Hadoop's."""
        return StoreExecutor(self._running(), self.target, layout, checkpoints, settings, storage)

    def disturbed_writes(self, checkpoints: Path) -> DisturbedWrites:
        """Return what disturbs writes to a checkpoint directory, for executors with its settings.

        Raises EnvironmentProblem if there is no compiler for the class that does it.
        """
        if self._jar_of_writes is None:
            self._jar_of_writes = jar_of_writes(self._directory)
            if self._jar_of_writes is None:
                raise EnvironmentProblem(NO_DISTURBED_WRITES)
            self.replace()  # the next JVM has the class
        return DisturbedWrites(_writes_of(checkpoints), lambda path: "")

    def is_provider(self, class_name: str) -> bool:
        """Return whether a class is a provider; raises Raised if it cannot be loaded."""
        process = self._running()
        with process.calls():
            classes = process.jvm.java.lang.Class
            interface = classes.forName("org.apache.spark.sql.execution.streaming.state.StateStoreProvider")
            return bool(interface.isAssignableFrom(classes.forName(class_name)))

    def new_checkpoints(self) -> Path:
        """Return an empty checkpoint directory; the one before is removed."""
        last = self._directory / f"checkpoints-{self._examples}"
        for left in (last, _writes_of(last)):
            shutil.rmtree(left, ignore_errors=True)
        self._examples += 1
        made = self._directory / f"checkpoints-{self._examples}"
        made.mkdir()
        return made

    def kill(self) -> None:
        """Kill the JVM with SIGKILL; raises Violation if it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        code = process.kill()
        self.log = process.log()
        shutil.rmtree(process.directory, ignore_errors=True)
        if code != -signal.SIGKILL:
            message = f"the JVM had ended with exit code {code} before it was killed"
            raise Violation(message, fatal=True, from_outside=ended_by_others(code, handles_signals=True))

    def kill_after(self, delay_s: float) -> threading.Timer:
        """Kill the JVM with SIGKILL after a delay; ``kill`` then says whether this is how it ended."""
        return self._running().kill_after(delay_s)

    def kill_at_file(self, checkpoints: Path, count: int) -> FileWatch:
        """Kill the JVM with SIGKILL as soon as so many files have appeared in a checkpoint directory."""
        return self._running().kill_at_file(checkpoints, count)

    def replace(self) -> None:
        """End the JVM, whatever state it is in; the next executor gets a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self.log = process.log()
            shutil.rmtree(process.directory, ignore_errors=True)

    def close(self) -> None:
        """End the JVM and remove all files."""
        self.replace()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _running(self) -> JavaProcess:
        if self._process is None:
            self.started += 1
            ours = () if self._jar_of_writes is None else (str(self._jar_of_writes),)
            self._process = JavaProcess(
                self._directory / f"jvm-{self.started}", (*self.target.jars, *ours), self._call_s
            )
        return self._process


def _writes_of(checkpoints: Path) -> Path:
    """Return the directory that says which writes to a checkpoint directory are to be disturbed."""
    return checkpoints.with_name(f"{checkpoints.name}-writes")
