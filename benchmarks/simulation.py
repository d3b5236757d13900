"""How many schedules per second the simulator runs and judges, and how many trials of profiles per processor minute.

All oracles are on, and one core is used.

The standard scenario has 2 sources of 24 batches of 3 records, 2 keyed subtasks, 1 sink, about 3 checkpoints and 1
executor that is killed between the synchronous and the asynchronous part of a snapshot. Every schedule has a seed of
its own. All must be VALID, because a fast simulator that is wrong is worth nothing. An event is one step of the
simulator's scheduler. Times are the process's own processor time, so that a busy machine matters little. The rate of
each hundred schedules is reported as well, as a shared core is not always equally fast. The interpreter is reported
too: one built without profile-guided optimisation takes a third longer.

The trials are those that people run: plans that a profile draws from the same seed each time, drawn, run and judged. A
few of them take as long as all others, so rates can be compared only between runs of the same plans.
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
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.records import TrialRecord
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
PROFILES, TRIALS, SEED = ("graphs", "modes", "rescale", "incremental"), 100, 1


def run(progress: Callable[[str, float], None]) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if a schedule or a trial was not VALID.
    """
    system = ReferenceSimulated()
    return _schedules(system, progress) | {
        "trials_per_processor_minute": {name: _trials(system, name, progress) for name in PROFILES},
        "all_valid": True,
        "python": " ".join(sys.version.split()),
    }


def _trials(system: ReferenceSimulated, name: str, progress: Callable[[str, float], None]) -> float:
    """Draw, run and judge the trials of a profile; returns how many a processor does in a minute."""
    what = f"trials of the profile {name}"
    progress(what, 0.0)
    begun = time.process_time()
    plans = draw_plans(SEED, TRIALS, profile_named(name), Constraints(system.job, system.capabilities))
    with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
        for number, plan in enumerate(plans, 1):
            record = run_trial(plan, system, Path(directory), checkers_for(plan, system.capabilities))
            _require_valid(record, f"trial {number} of {name}")
            if number % 10 == 0:
                progress(what, number / len(plans))
    return round(60 * len(plans) / (time.process_time() - begun), 1)


def _require_valid(record: TrialRecord, what: str) -> None:
    if record.verdict is not Verdict.VALID:
        raise RuntimeError(f"{what} is {record.verdict.value}: {record.findings}")


def _schedules(system: ReferenceSimulated, progress: Callable[[str, float], None]) -> dict[str, Any]:
    checkpoints = events = recoveries = 0
    clock: list[float] = []
    with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
        for seed in range(-WARM_UP, SCHEDULES):
            if seed >= 0 and seed % CHUNK == 0:
                clock.append(time.process_time())
            plan = msgspec.structs.replace(STANDARD, seed=abs(seed))  # the schedules before 0 are the warm-up
            record = run_trial(plan, system, Path(directory), checkers_for(filled(plan), system.capabilities))
            _require_valid(record, f"seed {seed}")
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
    }
