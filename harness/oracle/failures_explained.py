"""A checkpoint that nothing disturbs does not fail: every barrier arrives, even after sources have ended (BAR-3,
BAR-6).

A lost barrier shows only as a checkpoint that expires, or that a subtask declines because a newer barrier came
instead. The next checkpoint may be fine. So each such failure must have a cause: a fault of the plan that can have
delayed the checkpoint or refused its files, or parts and channels that are as slow as the plan made them.

Only in a world with virtual time is it known how slow a checkpoint may be. There a bound is computed: the
asynchronous part and, for each vertex, the latency of a message and the steps that may come before the barrier. If
records still flow, everything that the channels can hold may come before it, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkpoint_lives import CheckpointLife, lives_of
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import FaultFired, FaultUnclear
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

FAILURES = (Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED)
STEP_MS = 1.0
"""A subtask of the simulated world takes up to this many milliseconds for one step."""
STEPS_BESIDE = 5
"""Number of other steps, besides reading channels, that a subtask may take before it reads a barrier."""


class FailuresExplained:
    """No checkpoint expires or is declined without a cause."""

    name = "failures-explained"
    clauses = ("BAR-3", "BAR-6")

    def check(self, context: TrialContext) -> Finding:
        """Look for the cause of each failure in one trial."""
        plan = context.plan
        disturbed_ms = min(_disturbances(context), default=float("inf"))
        timeout_ms = plan.checkpoints.timeout_ms
        failed, completed, problems = 0, 0, list[str]()
        for attempt in lives_of(context):
            for life in attempt.checkpoints:
                completed += life.completed
                if life.failed not in FAILURES or life.ended_ms is None:
                    continue
                failed += 1
                slow = life.failed is Reason.EXPIRED and longest_ms(plan, life.final) >= timeout_ms
                if disturbed_ms > life.ended_ms and not slow:
                    problems.append(_told(life, context))
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        counts = {"failed": failed, "unexplained": len(problems)}
        if problems and repeatable:
            summary = f"{len(problems)} checkpoints failed without a cause; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{failed} checkpoints failed, {len(problems)} of them without a cause in the plan"
        return Finding(self.name, self.clauses if completed else (), Verdict.VALID, summary, counts)


def _disturbances(context: TrialContext) -> Iterator[float]:
    """Yield the times of faults that can make a checkpoint fail, then or later, without ending its attempt."""
    for line in context.history.operations:
        match line.operation:
            case FaultFired(fault=number) | FaultUnclear(fault=number):
                fault = context.plan.faults[number].fault
                if fault.heals_after_ms is not None or fault.copies_hit is not None:
                    yield line.time_ms


def longest_ms(plan: TrialPlan, final: bool) -> float:
    """Return how long the parts of a checkpoint may take, from its trigger to its last acknowledgement.

    ``final`` means that no record is in transit any more.
    """
    job, network = plan.job, plan.network
    slow = network.slow_factor if network.slow_channel is not None else 1
    channels = max((job.channels_into(vertex.name) for vertex in job.vertices), default=0)
    before = channels + STEPS_BESIDE
    if not final:
        before += len(job.channels) * network.channel_capacity
    ways = len(job.vertices) * (network.latency_ms_max * slow + before * STEP_MS)
    if not final:
        # A full channel accepts its next batch only after one was read, and that batch has its own latency.
        ways += len(job.channels) * network.channel_capacity * network.latency_ms_max * slow
        ways *= plan.checkpoints.max_concurrent
    return ways + 2 * network.latency_ms_max + plan.checkpoints.async_ms_max


def _told(life: CheckpointLife, context: TrialContext) -> str:
    missing = [name for name in context.subtasks if name not in life.acknowledged]
    how = "expired" if life.failed is Reason.EXPIRED else "was declined or could not be written"
    after = " after the end of all input" if life.final else ""
    return (
        f"checkpoint {life.number}, triggered{after} at {life.triggered_ms:g} ms, {how} at {life.ended_ms:g} ms, and "
        f"nothing had disturbed it; no acknowledgement of {', '.join(missing) or 'nobody'}"
    )
