"""A checkpoint that nothing disturbs does not fail: every barrier arrives, even after sources have ended (BAR-3,
BAR-6).

A lost barrier shows only as a checkpoint that expires, or that a subtask declines because a newer barrier came
instead. The next checkpoint may be fine. So each such failure must have a cause: a fault of the plan that can have
delayed the checkpoint, because it lasted, or had been healed shortly before; a fault that refused the files of a
subtask whose acknowledgement is missing; or parts and channels that are as slow as the plan made them.

Only in a world with virtual time is it known how slow a checkpoint may be. There a bound is computed: the
asynchronous part and, for each vertex, the latency of a message and the steps that may come before the barrier. If
records still flow, everything that the channels can hold may come before it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.faults.fault import CopyPlace, OnProgress
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkpoint_lives import CheckpointLife, lives_of
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import FaultFired, FaultHealed, FaultUnclear
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

FAILURES = (Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED)
NOTICED_MS = 150.0
"""After so many milliseconds of silence the simulated world takes a process for lost."""
STEP_MS = 1.0
"""A subtask of the simulated world takes up to this many milliseconds for one step."""
STEPS_BESIDE = 5
"""Number of other steps, besides reading channels, that a subtask may take before it reads a barrier."""


class FailuresExplained:
    """No checkpoint expires or is declined without a cause."""

    name = "failures-explained"
    clauses: tuple[str, ...] = ("BAR-3", "BAR-6")

    def __init__(self, overtakes: bool = False) -> None:
        """Take whether barriers may overtake: then none waits for restored records to be processed (UNA-4)."""
        if overtakes:
            self.clauses = (*self.clauses, "UNA-4")

    def check(self, context: TrialContext) -> Finding:
        """Look for the cause of each failure in one trial."""
        plan = context.plan
        disturbances = _disturbances(context)
        timeout_ms = plan.checkpoints.timeout_ms
        failed, completed, problems = 0, 0, list[str]()
        for attempt in lives_of(context):
            for life in attempt.checkpoints:
                completed += life.completed
                if life.failed not in FAILURES or life.ended_ms is None:
                    continue
                failed += 1
                slow = life.failed is Reason.EXPIRED and longest_ms(plan, life.final) >= timeout_ms
                if not slow and not any(one.explains(life) for one in disturbances):
                    problems.append(_told(life, context))
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        counts = {"failed": failed, "unexplained": len(problems)}
        if problems and repeatable:
            summary = f"{len(problems)} checkpoints failed without a cause; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{failed} checkpoints failed, {len(problems)} of them without a cause in the plan"
        return Finding(self.name, self.clauses if completed else (), Verdict.VALID, summary, counts)


@dataclass(frozen=True, slots=True)
class _Disturbance:
    """What one fault that fired can have done to checkpoints. Times in milliseconds of the trial's clock."""

    from_ms: float
    until_ms: float
    """When its last effect was over: it was healed, noticed, and what it had held up has passed."""
    refused: str | None = None
    """The subtask whose files it refused; None if it held something up."""

    def explains(self, life: CheckpointLife) -> bool:
        """Tell whether it can be why a checkpoint failed."""
        assert life.ended_ms is not None
        if self.from_ms > life.ended_ms or self.until_ms < life.triggered_ms:
            return False
        if self.refused is None:
            return True
        return life.failed is not Reason.EXPIRED and self.refused not in life.acknowledged


def _disturbances(context: TrialContext) -> list[_Disturbance]:
    """Return what can make checkpoints fail without ending their attempt: faults that last, and refused writes."""
    healed = {line.operation.fault: line.time_ms for line in context.history.of(FaultHealed)}
    found = []
    for line in context.history.operations:
        match line.operation:
            case FaultFired(fault=number) | FaultUnclear(fault=number):
                fault = context.plan.faults[number].fault
                hit = fault.copies_hit
                if fault.heals_after_ms is not None and fault.on_progress is not OnProgress.NOTHING:
                    over_ms = healed.get(number, float("inf")) + NOTICED_MS + longest_ms(context.plan, False)
                    found.append(_Disturbance(line.time_ms, over_ms))
                elif hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is None:
                    found.append(_Disturbance(line.time_ms, float("inf"), hit.subtask))
    return found


def longest_ms(plan: TrialPlan, final: bool) -> float:
    """Return how long the parts of a checkpoint may take, from its trigger to its last acknowledgement.

    ``final`` means that no record is in transit any more.
    """
    job, network = plan.job, plan.network
    slow = network.slow_factor if network.slow_channel is not None else 1
    channels = max((job.channels_into(vertex.name) for vertex in job.vertices), default=0)
    before = channels + STEPS_BESIDE
    batch_ms = STEP_MS + (plan.deployment.slow_batch_ms if plan.deployment.slow_vertex is not None else 0)
    if not final:
        before += len(job.channels) * network.channel_capacity
    ways = len(job.vertices) * (network.latency_ms_max * slow + before * batch_ms)
    if not final:
        # A full channel accepts its next batch only after one was read, and that batch has its own latency.
        ways += len(job.channels) * network.channel_capacity * network.latency_ms_max * slow
        ways *= plan.checkpoints.max_concurrent + len(plan.savepoints)
    return ways + 2 * network.latency_ms_max + plan.checkpoints.async_ms_max


def _told(life: CheckpointLife, context: TrialContext) -> str:
    missing = [name for name in context.subtasks if name not in life.acknowledged]
    how = "expired" if life.failed is Reason.EXPIRED else "was declined or could not be written"
    after = " after the end of all input" if life.final else ""
    return (
        f"checkpoint {life.number}, triggered{after} at {life.triggered_ms:g} ms, {how} at {life.ended_ms:g} ms, and "
        f"nothing had disturbed it; no acknowledgement of {', '.join(missing) or 'nobody'}"
    )
