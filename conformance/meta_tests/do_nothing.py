"""A system that accepts every plan and does nothing: no test of the suite may pass on it."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.barrier_jobs import barrier_view


class DoNothing:
    """Claims that every job finished, with an empty history; declares all capabilities, so nothing is skipped."""

    name = "do-nothing"
    world = "simulated"
    capabilities = frozenset(Capability)

    def job(self, plan: TrialPlan) -> JobView:
        """Return the job of a barrier-based system, so that every plan is accepted."""
        return barrier_view(plan)

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Return at once."""
        history = History((), End.FINISHED, Reason.FINISHED, detail="", output=())
        return TrialOutcome(history, self.job(plan).names)

    def close(self) -> None:
        """Do nothing here either."""
