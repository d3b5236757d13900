"""What notes say of where plans come from."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.campaign.tried_plans import without_unreachable_faults
from barrier_tck.harness.plan.notes import MIXED, is_listed
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import FaultRecord, TrialRecord
from barrier_tck.harness.record.verdict import Verdict


@pytest.mark.parametrize(
    ("note", "listed"),
    [("", False), (f"{MIXED}heap", False), ("dealt: heap", False), ("a copy is gone", True)],
)
def test_a_drawn_plan_is_not_listed_with_or_without_its_faults(note: str, listed: bool) -> None:
    assert is_listed(note) is listed
    fault = ScheduledFault(KillWorker("totals[0]"), At(5))
    plan = TrialPlan(faults=(fault,), note="" if listed else note)
    missed = FaultRecord(0, "a kill", "kill_worker", "at 5 ms", None, "not_fired")
    record = msgspec.convert(
        {
            "version": 1,
            "trial": 0,
            "system": "s",
            "world": "simulated",
            "plan": msgspec.to_builtins(plan),
            "verdict": Verdict.UNKNOWN.value,
            "findings": [],
            "end": "finished",
            "end_reason": "",
            "started_at": "",
            "wall_seconds": 0.0,
            "duration_ms": 0.0,
            "faults": [msgspec.to_builtins(missed)],
            "attempts": [],
            "checkpoints": [],
            "snapshots": [],
            "restores": [],
            "subtasks": [],
            "trace_digest": None,
            "environment": {},
            "measurements": {},
        },
        type=TrialRecord,
    )
    left = without_unreachable_faults(plan, record)
    assert left is not None and not left.faults
    assert left.note and not is_listed(left.note)
