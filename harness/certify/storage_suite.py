"""Runs the certification of a checkpoint storage: levels and properties in order, in processes of the candidate."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import msgspec

from barrier_tck.harness.certify.certificate import Certificate, PropertyOutcome
from barrier_tck.harness.certify.certification import (
    INTERRUPTED,
    Certification,
    Keep,
    Progress,
    Subject,
    drop_certificate,
)
from barrier_tck.harness.certify.storage_lines import Loaded, Refused, ShownLine, read_line
from barrier_tck.harness.certify.storage_properties import (
    STORAGE_LEVELS,
    STORAGE_PROPERTIES,
    StorageProperty,
)
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

WORKER = "barrier_tck.harness.certify.candidate.storage_worker"
PROPERTY_S = 120.0
"""How long a property may take, in seconds; starting the process counts for the first one."""
_LOG_BYTES = 16 * 1024


def require_storage_level(level: str) -> None:
    """Raise UsageProblem for a level that a storage cannot have."""
    if level not in STORAGE_LEVELS:
        raise UsageProblem(f"--level is {level!r}{nearest(level, STORAGE_LEVELS)}")


class StorageProcess:
    """One process with the candidate in it, which checks properties in order. ``kill`` ends it with all it started."""

    def __init__(self, target: str, location: str, names: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        ours, theirs = os.pipe()
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(theirs), target, location, _names(names)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                start_new_session=True,
                env=environ,
            )
        finally:
            os.close(theirs)
        self._ours = ours
        self._waiting = b""

    def line(self, timeout_s: float) -> Loaded | Refused | ShownLine | str:
        """Return the next line, or, if none comes, why."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._waiting:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return f"it took longer than {timeout_s:g} s"
            received = os.read(self._ours, 65536)
            if not received:
                return f"its process ended with exit code {self._process.wait()}"
            self._waiting += received
        line, _, self._waiting = self._waiting.partition(b"\n")
        try:
            return read_line(line)
        except msgspec.MsgspecError as error:
            return f"its process said something else: {error}"

    def kill(self) -> str:
        """End the process with all that it started in its session; return the end of what it printed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)
        with self._log as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
            return log.read().decode(errors="replace")


def certify_storage(
    target: str,
    location: str,
    level: str = "crash",
    only: Sequence[str] = (),
    property_s: float = PROPERTY_S,
    progress: Progress = lambda outcome: None,
    keep: Keep = drop_certificate,
) -> Certificate:
    """Certify a checkpoint storage up to a level.

    ``location`` is a directory, or the beginning of a URL, below which nothing is; ``only`` names the properties that
    are checked, instead of all. After each property ``keep`` is given what has been shown so far.

    Raises UsageProblem if the target makes no checkpoint storage.
    """
    require_storage_level(level)
    wanted = [
        one
        for one in STORAGE_PROPERTIES
        if STORAGE_LEVELS.index(one.level) <= STORAGE_LEVELS.index(level) and (not only or one.name in only)
    ]
    run = _Run(target, location, level, wanted, property_s, progress, keep)
    run.check_all()
    return run.certification.certificate()


class _Run:
    """The processes of a certification. One that ends or hangs fails its property, and the others get a new one."""

    def __init__(
        self,
        target: str,
        location: str,
        level: str,
        wanted: Sequence[StorageProperty],
        property_s: float,
        progress: Progress,
        keep: Keep,
    ) -> None:
        self._target = target
        self._location = location
        self._wanted = wanted
        self._property_s = property_s
        self._processes = 0
        self._name = ""
        self._outlives = False
        self._log = ""
        planned = [_outcome(one, "skipped", INTERRUPTED) for one in wanted]
        self.certification = Certification(level, planned, self._subject, progress=progress, keep=keep)

    def _subject(self) -> Subject:
        return Subject(
            kind="checkpoint storage",
            target=self._target,
            backend=self._name,
            capabilities=("outlives-its-process",) if self._outlives else (),
            log=self._log,
        )

    def check_all(self) -> None:
        for level in STORAGE_LEVELS:
            own = [one for one in self._wanted if one.level == level]
            reason = self.certification.why_not(level)
            for one in own if reason else ():
                self.certification.add(_outcome(one, "skipped", reason))
            self._check(() if reason else own)

    def _check(self, left: Sequence[StorageProperty]) -> None:
        while left:
            done = self._check_in_one_process(left)
            left = left[done:]

    def _check_in_one_process(self, left: Sequence[StorageProperty]) -> int:
        """Check properties until one ends the process; return how many of them are decided."""
        self._processes += 1
        # A place of its own: another process may have been killed in the middle of something.
        place = f"{self._location}/{self._processes}"
        process = StorageProcess(storage_target(self._target), place, [one.name for one in left])
        try:
            first = process.line(self._property_s)
            if isinstance(first, Refused):
                raise UsageProblem(first.message)
            if not isinstance(first, Loaded):
                self.certification.add(_outcome(left[0], "failed", f"the storage could not be made: {first}"))
                return 1
            self._name, self._outlives = first.name, first.outlives_its_process
            if left[0].level == "crash" and not self._outlives:
                for one in left:
                    self.certification.add(
                        _outcome(one, "skipped", "it says that it does not outlive its process")
                    )
                return len(left)
            for number, one in enumerate(left, 1):
                began = time.monotonic()
                line = process.line(self._property_s)
                outcome = _judged(one, line)
                self.certification.add(
                    msgspec.structs.replace(outcome, seconds=round(time.monotonic() - began, 2))
                )
                if not isinstance(line, ShownLine):
                    return number
            return len(left)
        finally:
            self._log = (self._log + process.kill())[-_LOG_BYTES:]


def _judged(one: StorageProperty, line: Loaded | Refused | ShownLine | str) -> PropertyOutcome:
    """Return what a line says of a property; a passed one must have shown each of its clauses."""
    if not isinstance(line, ShownLine) or line.name != one.name:
        return _outcome(one, "failed", line if isinstance(line, str) else "its process answered out of turn")
    unshown = [clause for clause in one.clauses if not line.shown.get(clause)]
    status, reason = ("passed", "") if line.passed else ("failed", line.reason)
    if line.passed and unshown:
        status, reason = "unknown", f"nothing was compared that could break {', '.join(unshown)}"
    found = _outcome(one, status, reason)
    return msgspec.structs.replace(
        found,
        shown=line.shown,
        violated="" if line.passed else line.violated or one.clauses[0],
        examples=sum(line.shown.values()),
        processes=line.processes,
    )


def _outcome(one: StorageProperty, status: str, reason: str) -> PropertyOutcome:
    return PropertyOutcome(one.name, one.level, one.clauses, one.text, status, reason)


def _names(names: Sequence[str]) -> str:
    return msgspec.json.encode(list(names)).decode()
