"""Faults and plans that many tests use."""

from __future__ import annotations

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import LimitsPlan, TrialPlan

SHORT = TrialPlan(limits=LimitsPlan(virtual_ms=5_000))
"""A plan that ends early in virtual time, whatever happens."""


def kill(
    point: ProtocolPoint, subtask: str, nth: int = 1, worker: bool = False
) -> tuple[ScheduledFault, ...]:
    """Return one kill, of a subtask's executor or of its worker alone, at a protocol point."""
    fault: Fault = KillWorker(subtask) if worker else KillExecutor(subtask)
    return (ScheduledFault(fault, After(point, subtask, nth)),)
