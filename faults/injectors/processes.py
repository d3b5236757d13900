"""Injects process faults: kills what a deployment exposes, and proves that it is dead.

Knows nothing of the system but ``barrier_tck.faults.targets``: the same code kills a simulated executor and a real one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import ProcessTarget, StorageUser, TargetGone, Targets
from barrier_tck.faults.vocabulary import CrashCoordinator, Fault, KillExecutor, KillWorker, LoseHost


def kill_process(fault: Fault, targets: Targets, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Carry out KillExecutor, KillWorker, CrashCoordinator or LoseHost; ``wait`` waits (seconds) between proofs."""
    target, role = _find(fault, targets)
    if target is None:
        return skipped(role)
    description = target.description
    if isinstance(fault, CrashCoordinator) and fault.unreadable_ms:
        if not isinstance(target, StorageUser):
            return Injection("skipped", description, f"the system's {role} always finds its storage readable")
        target.hide_storage(fault.unreadable_ms)
    try:
        if isinstance(fault, KillExecutor | CrashCoordinator):
            target.kill(lose_unsynced=fault.lose_unsynced)
        else:
            target.kill()
    except TargetGone as gone:
        return Injection("not_fired", description, f"the target was already dead: {gone}")
    if not proved(target.is_dead, wait):
        return unproved(description, "the target was still alive")
    return Injection("fired", description)


def _find(fault: Fault, targets: Targets) -> tuple[ProcessTarget | None, str]:
    match fault:
        case KillExecutor(subtask=subtask):
            return targets.executor_of(subtask), f"executor of {subtask}"
        case KillWorker(subtask=subtask):
            return targets.worker_of(subtask), f"worker of {subtask}"
        case LoseHost(subtask=subtask):
            return targets.host_of(subtask), f"host of {subtask}"
        case CrashCoordinator():
            return targets.coordinator(), "coordinator"
    raise TypeError(f"{type(fault).__name__} kills no process")
