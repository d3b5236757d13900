"""The interface of a checker: what it may look at, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.system.job_view import JobView


@dataclass(frozen=True, slots=True)
class TrialContext:
    """Everything that a checker may look at: the plan, and what the trial left. Times in milliseconds."""

    plan: TrialPlan
    history: History
    faults: tuple[FaultRecord, ...] = ()
    """What became of each planned fault, in the order of the plan."""
    subtasks: tuple[str, ...] = ()
    """Every subtask, upstream first."""
    job: JobView | None = None
    """What the system says about the job: roles and links; None if it says nothing."""
    capabilities: frozenset[str] = frozenset()
    """Names of ``harness.system.system_under_test.Capability`` that the system declares, e.g. SNAPSHOT_INSPECTION."""

    @property
    def planned_faults(self) -> tuple[ScheduledFault, ...]:
        """Return the plan's fault schedule."""
        return self.plan.faults


class Checker(Protocol):
    """Judges one property in one trial. One checker per file, named for its property."""

    @property
    def name(self) -> str:
        """Return the property's name, for instance ``exactly-once-output``."""

    @property
    def clauses(self) -> tuple[str, ...]:
        """Return the ids of the clauses that the property speaks for."""

    def check(self, context: TrialContext) -> Finding:
        """Judge the trial. If it raises, the checker could not judge, and the finding becomes UNKNOWN."""
