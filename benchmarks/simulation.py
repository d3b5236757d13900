"""How many schedules per second the simulator runs and judges: the standard scenario, all oracles on, one core.

The standard scenario has 2 sources of 24 batches of 3 records, 2 keyed subtasks, 1 sink, about 3 checkpoints and 1
executor that is killed between the synchronous and the asynchronous part of a snapshot. Every schedule has a seed of
its own. All must be VALID, because a fast simulator that is wrong is worth nothing. An event is one step of the
simulator's scheduler. Times are the process's own processor time, so that a busy machine matters little. The rate of
each hundred schedules is reported as well, as a shared core is not always equally fast. The interpreter is reported
too: one built without profile-guided optimisation takes a third longer.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled

STANDARD = TrialPlan(
    workload=WorkloadPlan(batches=24),
    checkpoints=CheckpointPlan(interval_ms=12, async_ms_max=6),
    faults=(ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 2)),),
    note="the standard scenario of the simulation benchmark",
)
WARM_UP, SCHEDULES, CHUNK = 50, 1_000, 100


def run(progress: Callable[[str, float], None]) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if a schedule was not VALID.
    """
    system = ReferenceSimulated()
    checkpoints = events = recoveries = 0
    clock: list[float] = []
    with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
        for seed in range(-WARM_UP, SCHEDULES):
            if seed >= 0 and seed % CHUNK == 0:
                clock.append(time.process_time())
            plan = msgspec.structs.replace(STANDARD, seed=abs(seed))  # the schedules before 0 are the warm-up
            record = run_trial(plan, system, Path(directory), checkers_for(filled(plan), system.capabilities))
            if record.verdict is not Verdict.VALID:
                raise RuntimeError(f"seed {seed} is {record.verdict.value}: {record.findings}")
            if seed >= 0:
                checkpoints += record.checkpoints_completed
                events += int(record.measurements["steps"])
                recoveries += record.recoveries
            if seed % 50 == 0:
                progress("simulated schedules", max(0, seed) / SCHEDULES)
        clock.append(time.process_time())
    seconds = clock[-1] - clock[0]
    return {
        "schedules": SCHEDULES,
        "seconds": round(seconds, 3),
        "schedules_per_second": round(SCHEDULES / seconds, 1),
        "schedules_per_second_by_hundred": [
            round(CHUNK / (end - start), 1) for start, end in itertools.pairwise(clock)
        ],
        "events_per_second": round(events / seconds),
        "events_per_schedule": round(events / SCHEDULES, 1),
        "checkpoints_per_schedule": round(checkpoints / SCHEDULES, 2),
        "recoveries_per_schedule": round(recoveries / SCHEDULES, 2),
        "all_valid": True,
        "python": " ".join(sys.version.split()),
    }
