"""The job may not be started again, and one fault ends its only attempt (REC-3).

The strategy is ``none``. The job must be given up with that failure, and whoever asks must be given the reason. Nothing
else of such a plan is shown, so few plans are like this, and only those in which nothing is planned behind the failure.
"""

from __future__ import annotations

import msgspec

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan


def _last(_: Drawing, plan: TrialPlan) -> TrialPlan:
    """Take the restarts away if just one fault is planned, and it kills."""
    if len(plan.faults) != 1 or plan.savepoints:
        return plan
    (planned,) = plan.faults
    if planned.fault.ends is not Ends.SUBTASKS or planned.fault.needs not in _KILLED:
        return plan
    return msgspec.structs.replace(plan, restart=RestartPlan(strategy="none"))


_KILLED = (TargetKind.WORKER, TargetKind.EXECUTOR, TargetKind.HOST)

SCENARIO = Scenario(per_mille=120, last=_last)
