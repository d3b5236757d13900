"""A simulated system whose process dies, refuses or sleeps in chosen trials, by their seeds."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import msgspec

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome

DIES, REFUSED, SLEEPS = 1_002, 1_003, 1_004
"""Seeds of the trials that are special."""


class DyingSystem(ReferenceSimulated):
    """The reference runtime in the simulator, except for the seeds above."""

    name = "dying-system"

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
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


class BuggySystem(ReferenceSimulated):
    """The reference runtime with a planted bug, whatever the plan says."""

    name = "buggy-system"

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan with the bug."""
        return super().run(msgspec.structs.replace(plan, mutant="AL-01"), nemesis, directory)
