"""A simulated system whose process dies, refuses or sleeps in chosen trials, by their seeds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import OperatingError, UsageProblem
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.workload_names import filled

DIES, REFUSED, SLEEPS = 1_002, 1_003, 1_004
"""Seeds of the trials that are special."""
SLOW_S = 1.0
"""How long a slow trial takes longer than others that run beside it."""
BESIDE_OTHERS = "barrier_tck.harness.campaign.trial_process"
"""The main module of a process whose trials run beside those of other processes."""


class DyingSystem(ReferenceSimulated):
    """The reference runtime in the simulator, except for the seeds above."""

    name = "dying-system"

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan, unless its seed is special."""
        (directory / "begun").touch()
        if plan.seed == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        if plan.seed == REFUSED:
            raise UsageProblem("this plan is refused")
        if plan.seed == SLEEPS:
            (directory / f"asleep-{os.getpid()}").touch()
            threading.Event().wait()
        return super().run(plan, nemesis, directory)


class MortalSystem(ReferenceSimulated):
    """The reference runtime, but half of the trials end their process, each in another way."""

    name = "mortal-system"

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan, if its seed is even."""
        match plan.seed % 8:
            case 1:
                os.kill(os.getpid(), signal.SIGKILL)
            case 3:
                os._exit(0)
            case 5:
                os.abort()
            case 7:
                threading.Thread(target=os._exit, args=(3,)).start()
                threading.Event().wait()
        return super().run(plan, nemesis, directory)


class BuggySystem(ReferenceSimulated):
    """The reference runtime with a planted bug, whatever the plan says."""

    name = "buggy-system"

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan with the bug."""
        return super().run(msgspec.structs.replace(plan, mutant="AL-01"), nemesis, directory)


class _Deaf:
    """A nemesis that learns of nothing, as if the system passed no point and no time."""

    def __init__(self, nemesis: NemesisHooks) -> None:
        self._nemesis = nemesis

    def __getattr__(self, name: str) -> Any:
        if name in ("point_reached", "time_reached"):
            return lambda *_, **__: None
        if name == "next_time_ms":
            return lambda: None
        return getattr(self._nemesis, name)


class UnevenSystem(ReferenceSimulated):
    """The reference runtime, but by their seeds some trials are slow and invalid, invalid, or end in an error, and the
    moment of no fault comes in others.
    """

    name = "uneven-system"

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan in the way that its seed says."""
        kind = plan.seed % 8
        main = sys.modules["__main__"].__spec__
        if kind == 2 and main is not None and main.name == BESIDE_OTHERS:
            # Whoever takes results as they come takes those of later trials first. Alone, nothing overtakes it.
            time.sleep(SLOW_S)
        if kind in (2, 4):
            buggy = self.broken(plan, BrokenRecovery.READ_AGAIN)
            assert buggy is not None
            return super().run(filled(buggy), nemesis, directory)
        if kind == 3:
            return super().run(plan, _Deaf(nemesis), directory)
        if kind == 5:
            raise SystemExit(0)
        if kind == 6:
            raise OperatingError("there is no machine to run on")
        return super().run(plan, nemesis, directory)
