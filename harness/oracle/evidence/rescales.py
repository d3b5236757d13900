"""How the jobs that went on after stops were rescaled: what a trial saw, for the campaign to add up (RSC-2)."""

from __future__ import annotations

from collections import Counter

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.operations import AttemptRunning

RESCALED = "rescaled"
"""The jobs that ran after a stop, and were meant to be as parallel as the one before was not."""
NARROWER = "narrower"
"""Those in which a vertex became narrower; the same job may count below ``WIDER``, too."""
WIDER = "wider"


def rescales_seen(context: TrialContext) -> Counter[str]:
    """Count the jobs of one trial that were rescaled by the plan and ran; slots that are missing do not count."""
    jobs = context.jobs
    seen = Counter({RESCALED: 0, NARROWER: 0, WIDER: 0})
    before: dict[str, int] | None = None
    for line in context.history.of(AttemptRunning):
        planned = jobs.plan_of(jobs.of.get(line.operation.attempt, 0)).job
        widths = {vertex.name: vertex.parallelism for vertex in planned.vertices}
        if before is not None and widths != before:
            seen[RESCALED] += 1
            seen[NARROWER] += any(widths[name] < before[name] for name in widths)
            seen[WIDER] += any(widths[name] > before[name] for name in widths)
        before = widths
    return seen
