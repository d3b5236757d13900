"""No oracle reads words: with every text for people removed or replaced, each trial gets the same verdicts."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.judging import compose
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.translated_reasons import reason_of
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.runtime_errors import StorageCause

WORDS = frozenset({"detail", "target", "label", "trigger"})
"""Fields that hold text for people; in fault records ``reason`` does too."""

VICTIM = "totals[0]"
KILL = ScheduledFault(KillWorker(VICTIM), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 2))


def local(*faults: ScheduledFault, **changes: Any) -> TrialPlan:
    plan = TrialPlan(
        workload=WorkloadPlan(batches=30, keys=20, records_per_second=600), local_recovery=True, faults=faults
    )
    return msgspec.structs.replace(plan, **changes)


def on_failure(fault: Fault) -> ScheduledFault:
    return ScheduledFault(fault, After(ProtocolPoint.ATTEMPT_FAILED))


BOTH = (on_failure(DamageLocalCopy(VICTIM, Damage.MISSING)), on_failure(DamagePrimary(VICTIM)))
PLANS = {
    "a damaged copy": local(KILL, BOTH[0]),
    "both copies damaged": local(KILL, *BOTH),
    "both copies damaged, an older one restored": local(KILL, *BOTH, on_unreadable="older"),
    "a lost host": local(ScheduledFault(LoseHost(VICTIM), KILL.trigger)),
    "primaries that cannot be written": local(
        ScheduledFault(FailPrimaryWrites(VICTIM), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)), KILL
    ),
    "no restart": local(KILL, restart=RestartPlan("none", attempts_max=0)),
    **{
        name: next(planted_bugs()[name].plans("simulated"))
        for name in ("CO-03", "RT-01", "SI-02", "LO-05", "MD-03", "HB-01")
    },
}


def without_words(value: Any, text: str) -> Any:
    """Return a value with every text for people replaced."""
    if isinstance(value, tuple):
        return tuple(without_words(item, text) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changes = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        words = name in WORDS or (name == "reason" and not isinstance(old, Enum) and old is not None)
        changes[name] = text if words and isinstance(old, str) else without_words(old, text)
    return msgspec.structs.replace(value, **changes)


def said(findings: tuple[Finding, ...]) -> list[tuple[object, ...]]:
    return [(f.checker, f.verdict, f.clauses, f.counts) for f in findings]


@pytest.mark.parametrize("name", PLANS)
def test_words_change_nothing(name: str, tmp_path: Path) -> None:
    plan, system = filled(PLANS[name]), ReferenceSimulated()
    result = execute(plan, system, tmp_path)
    assert result.history is not None
    for text in ("", "no checkpoint can be restored; all restarts are used up; totals[0] declined: chk-1"):
        context = TrialContext(
            plan,
            without_words(result.history, text),
            without_words(result.record.faults, text),
            result.record.subtasks,
            system.job(plan),
            frozenset(capability.name for capability in system.capabilities),
        )
        _, findings = compose(checkers_for(plan, system.capabilities), context)
        assert said(findings) == said(result.record.findings), text


def test_the_plans_are_worth_their_words(tmp_path: Path) -> None:
    """Each reason that an oracle asks for occurs in one of them, with words beside it."""
    history = execute(PLANS["both copies damaged"], ReferenceSimulated(), tmp_path).history
    assert history is not None and history.reason is Reason.CHECKPOINT_UNREADABLE and history.detail
    blanked = without_words(history, "")
    assert not blanked.detail and blanked.reason is Reason.CHECKPOINT_UNREADABLE
    assert b'"detail":"' not in msgspec.json.encode(blanked.operations)


@pytest.mark.parametrize("cause", [*Cause, *StorageCause])
def test_every_cause_of_the_runtime_has_its_reason(cause: Cause | StorageCause) -> None:
    assert reason_of(cause) in Reason
    assert len({*map(str, Cause), *map(str, StorageCause)}) == len(Cause) + len(StorageCause)
