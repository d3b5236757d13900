"""Injects process faults: kills what a deployment exposes, and proves that it is dead.

Knows nothing of the system but ``faults.targets``: the same code kills a simulated executor and a real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from faults.targets import ProcessTarget, TargetGone, Targets
from faults.vocabulary import CrashCoordinator, Fault, KillExecutor, KillWorker

PROOF_POLLS_MAX = 500
"""How often a victim is asked whether it is dead before the kill counts as failed."""
PROOF_POLL_SECONDS = 0.01
"""Pause between two questions; a simulated victim is dead at the first, so virtual time never waits here."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What became of one attempt to inject a fault."""

    outcome: str
    """``fired``, ``not_fired`` or ``skipped``, as in the fault record."""
    target: str = ""
    """What was hit."""
    reason: str = ""
    """Why it did not fire or was skipped."""

    @property
    def fired(self) -> bool:
        """Tell whether the fault was proved to have fired."""
        return self.outcome == "fired"


class Injector(Protocol):
    """Carries out one kind of fault."""

    def __call__(self, fault: Fault, targets: Targets) -> Injection:
        """Inject the fault once; never raises for a missing or dead target, which is an outcome."""


def kill_process(fault: Fault, targets: Targets, pause: Callable[[float], None] = time.sleep) -> Injection:
    """Carry out KillExecutor, KillWorker or CrashCoordinator; ``pause`` waits (seconds) between proofs."""
    target, role = _find(fault, targets)
    if target is None:
        return Injection("skipped", reason=f"the system exposes no {role} now")
    description = target.description
    try:
        if isinstance(fault, KillWorker):
            target.kill()
        else:
            target.kill(lose_unsynced=fault.lose_unsynced)
    except TargetGone as gone:
        return Injection("not_fired", description, f"the target was already dead: {gone}")
    if not _proved_dead(target, pause):
        bound = PROOF_POLLS_MAX * PROOF_POLL_SECONDS
        return Injection("not_fired", description, f"the target was still alive {bound:.0f} s after the kill")
    return Injection("fired", description)


def _find(fault: Fault, targets: Targets) -> tuple[ProcessTarget | None, str]:
    match fault:
        case KillExecutor(subtask=subtask):
            return targets.executor_of(subtask), f"executor of {subtask}"
        case KillWorker(subtask=subtask):
            return targets.worker_of(subtask), f"worker of {subtask}"
        case CrashCoordinator():
            return targets.coordinator(), "coordinator"


def _proved_dead(target: ProcessTarget, pause: Callable[[float], None]) -> bool:
    for _ in range(PROOF_POLLS_MAX):
        if target.is_dead():
            return True
        pause(PROOF_POLL_SECONDS)
    return target.is_dead()
