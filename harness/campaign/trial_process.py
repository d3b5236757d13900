"""A process that runs trials for ``process_of_trials``: ``python -m barrier_tck.harness.campaign.trial_process``.

It answers each line of its standard input with one line. It ends when its input ends, because the campaign is over or
was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

from barrier_tck.harness.campaign.interrupts import Interrupts
from barrier_tck.harness.campaign.started_systems import choose_cluster, prepare
from barrier_tck.harness.campaign.trial_messages import (
    Answer,
    KeptLog,
    NotDone,
    OpenSystem,
    PrepareSystem,
    Request,
    RunTrial,
    ShrinkTrial,
    SystemOpened,
    SystemPrepared,
    TrialRan,
    TrialShrunk,
    line_of,
    request_of,
)
from barrier_tck.harness.campaign.tried_plans import (
    PlannedTrial,
    TriedPlan,
    shrunk_plan,
    try_plan,
)
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import EnvironmentProblem, HarnessError, InternalError
from barrier_tck.harness.support.garbage_collection import rare_collection
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import LOGS

LOG_BYTES_MAX = 1 << 20
"""How much of each log of a trial elsewhere is sent: its end."""
LOGS_MAX = 32
"""How many logs are sent."""


class _Trials:
    """Answers requests."""

    def __init__(self) -> None:
        self._system: SystemUnderTest | None = None
        self.alone = False
        """Whether a cluster may run here, which is to be stopped even if nobody wants its trial any more."""

    def answer(self, request: Request) -> Answer:
        """Fulfil a request; if it fails, the error is the answer."""
        try:
            return self._done(request)
        except HarnessError as error:
            where = f"on {socket.gethostname()}: " if self.alone else ""
            return NotDone(type(error).__name__, f"{where}{error}")
        except Exception:  # noqa: BLE001 - the campaign raises it again
            return NotDone(InternalError.__name__, traceback.format_exc())

    def _done(self, request: Request) -> Answer:
        match request:
            case OpenSystem(system=name, path=path, version=version):
                _require_version(version)
                sys.path[:] = path
                self.alone = request.alone
                _require_services(request.services)
                self._system = open_system(name)
                choose_cluster(self._system, request.cluster)
                return SystemOpened()
            case PrepareSystem():
                assert self._system is not None, "a system is opened first"
                prepare(self._system)
                return SystemPrepared(socket.gethostname())
            case RunTrial(trial=trial, elsewhere=elsewhere):
                assert self._system is not None, "a system is opened first"
                with _place(trial.directory, elsewhere) as place:
                    tried = try_plan(replace(trial, directory=place), self._system)
                    logs = tuple(_logs_in(place)) if elsewhere else ()
                return TrialRan(_as_wanted(tried, trial), logs)
            case ShrinkTrial(failed=failed, elsewhere=elsewhere):
                assert self._system is not None, "a system is opened first"
                with _place(failed.directory, elsewhere) as place:
                    return TrialShrunk(shrunk_plan(replace(failed, directory=place), self._system))

    def close(self) -> None:
        """Close the system."""
        if self._system is not None:
            self._system.close()


def _require_version(version: str) -> None:
    here = environment()["barrier-tck"]
    if version and version != here:
        raise EnvironmentProblem(
            f"the campaign has barrier-tck {version}, but {socket.gethostname()}, where its trials should run, has "
            f"{here}; install the same version there"
        )


def _require_services(variables: Sequence[str]) -> None:
    for name in variables:
        if not os.environ.get(name):
            raise EnvironmentProblem(
                f"{name} is not set, but it is where the campaign was started; set spark.executorEnv.{name} to the "
                "service as this host reaches it, or unset the variable there"
            )


@contextlib.contextmanager
def _place(directory: Path, elsewhere: bool) -> Iterator[Path]:
    """Give the directory in which a trial runs: its own, or a temporary one."""
    if not elsewhere:
        yield directory
        return
    with temporary_work_directory("trial") as place:
        yield Path(place)


def _logs_in(directory: Path) -> Iterator[KeptLog]:
    """Yield what a system that keeps logs has kept of a trial."""
    files = sorted(path for path in (directory / LOGS).rglob("*") if path.is_file())
    for file in files[:LOGS_MAX]:
        yield KeptLog(str(file.relative_to(directory)), file.read_bytes()[-LOG_BYTES_MAX:])


def _as_wanted(tried: TriedPlan, trial: PlannedTrial) -> TriedPlan:
    """Leave out what the campaign will not keep, because history and trace are long."""
    fitted = None if tried.fitted is None else _short(tried.fitted, trial)
    return TriedPlan(_short(tried.result, trial), tried.points, fitted, tried.reached)


def _short(result: TrialResult, trial: PlannedTrial) -> TrialResult:
    if trial.wanted_whole or result.record.verdict is not Verdict.VALID:
        return result
    return TrialResult(result.record, None)


class _Requests:
    """Reads the input on a thread, so that its end is noticed even in the middle of a trial whose result is no longer
    wanted. A simulated one ends at once. A real one ends in order when ``host_keeper`` asks for it.
    """

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines
        self._interrupts = Interrupts()
        self._ends_at_once = True
        self._read: SimpleQueue[bytes] = SimpleQueue()
        self._busy = threading.Lock()
        threading.Thread(target=self._read_on, daemon=True).start()

    def serve(self, trials: _Trials, answers: BinaryIO) -> None:
        """Answer until the end of the input."""
        while line := self._read.get():
            with self._busy, self._interrupts.during_trial():
                answer = line_of(trials.answer(request_of(line)))
            if trials.alone and self._ends_at_once:
                self._end_in_order()
            answers.write(answer)
            answers.flush()

    def _end_in_order(self) -> None:
        """From now on something may have been started, which has to be stopped before this process ends."""
        self._ends_at_once = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupts.on_signal)

    def _read_on(self) -> None:
        for line in self._lines:
            self._read.put(line)
        if self._busy.locked() and self._ends_at_once:
            os._exit(1)
        self._read.put(b"")


if __name__ == "__main__":
    # Nothing that a system prints may get between the answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as _answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        _trials = _Trials()
        try:
            with contextlib.suppress(BrokenPipeError, KeyboardInterrupt), rare_collection():
                _Requests(sys.stdin.buffer).serve(_trials, _answers)
        finally:
            _trials.close()
