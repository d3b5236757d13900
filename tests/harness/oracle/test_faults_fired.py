"""Every planned fault must be shown to have fired and, if it lasts, to have been healed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.faults_fired import FaultsFired
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Verdict
from tests.harness.oracle.oracle_histories import KILL, a_context, a_plan

PAUSE = ScheduledFault(PauseWorker("totals[0]", 20), At(10))
FIRED = FaultRecord(0, "a fault", "", "", None, "fired", fired_at_ms=10.0)


@pytest.mark.parametrize(
    ("planned", "record", "verdict"),
    [
        (KILL, FIRED, Verdict.VALID),
        (PAUSE, msgspec.structs.replace(FIRED, healed_at_ms=30.0), Verdict.VALID),
        (PAUSE, FIRED, Verdict.UNKNOWN),
        (PAUSE, msgspec.structs.replace(FIRED, outcome="skipped"), Verdict.UNKNOWN),
    ],
)
def test_a_lasting_fault_must_have_been_healed_too(
    planned: ScheduledFault, record: FaultRecord, verdict: Verdict
) -> None:
    context = replace(a_context(a_plan(faults=(planned,))), faults=(record,))
    assert FaultsFired().check(context).verdict is verdict
