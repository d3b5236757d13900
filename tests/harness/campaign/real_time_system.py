"""A system in real time that is quick: the simulator, called another world, with a process and files beside it that
take the place of a cluster.

It writes notes about its trials into the directory that a variable names, which executors inherit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, SystemBroke
from barrier_tck.harness.support.work_directories import new_work_directory
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome

REAL = "tests.harness.campaign.real_time_system:RealTime"
LACKING = "tests.harness.campaign.real_time_system:Lacking"
NOTES = "BARRIER_TCK_TEST_NOTES"
"""Names the directory of notes."""
BUGGY, PLAIN, DIES, SLEEPS = 2_000, 2_001, 2_005, 2_006
"""Seeds of trials: one that is INVALID; four as any, from this on; one that kills its process, one that never ends."""
TAKES_S = 0.3
"""How long a trial takes at least, so that two would meet if nothing kept them apart."""


class Note(msgspec.Struct, frozen=True):
    """What a trial did."""

    what: str
    at: float
    """On the clock that all processes of this machine share, in seconds."""
    process: int
    beside: int = 0
    """The process that takes the place of a cluster."""
    seed: int = 0
    environment: dict[str, str] = {}
    path: tuple[str, ...] = ()


def notes_in(directory: Path, what: str = "") -> list[Note]:
    """Return the notes so far, in order; all, or those of one kind."""
    found = [msgspec.json.decode(file.read_bytes(), type=Note) for file in directory.glob("*.json")]
    return sorted((note for note in found if what in ("", note.what)), key=lambda note: note.at)


class RealTime(ReferenceSimulated):
    """The reference runtime in the simulator, as if it ran in real time."""

    name = "real-time"
    world = "real"
    capabilities = ReferenceSimulated.capabilities - {Capability.DETERMINISTIC_REPLAY}

    def __init__(self) -> None:
        super().__init__()
        self._beside: subprocess.Popen[bytes] | None = None
        self._files: Path | None = None

    def prepare(self) -> None:
        """Start the process, and make the files."""
        if self._beside is None:
            self._files = new_work_directory("beside")
            self._beside = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            self._note("started")

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan in the simulator, unless its seed is special."""
        self.prepare()
        self._note("runs", plan.seed)
        time.sleep(TAKES_S)
        if plan.seed == SLEEPS:
            threading.Event().wait()
        if plan.seed == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        if plan.seed == BUGGY:
            raise SystemBroke("its books do not balance")
        return super().run(plan, nemesis, directory)

    def broken(self, plan: Any, how: BrokenRecovery) -> None:
        """Return nothing: it is never broken."""

    def keep_logs(self, directory: Path) -> None:
        """Write a log."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "00-beside.log").write_text("what was said beside the trial\n")

    def close(self) -> None:
        """End the process, and remove the files."""
        super().close()
        if self._beside is not None and self._files is not None:
            self._note("stops")
            self._beside.kill()
            self._beside.wait()
            self._files.rmdir()
            self._beside = self._files = None

    def _note(self, what: str, seed: int = 0) -> None:
        beside = self._beside.pid if self._beside is not None else 0
        at = time.monotonic()
        note = Note(what, at, os.getpid(), beside, seed, dict(os.environ), tuple(sys.path))
        file = Path(os.environ[NOTES]) / f"{at}-{os.getpid()}.json"
        write_atomically(file, msgspec.json.encode(note))


class Lacking(RealTime):
    """The same on a machine that lacks something."""

    def prepare(self) -> None:
        """Fail."""
        raise EnvironmentProblem("there is no Java; install one")
