"""What one trial reached, as names: what guided drawing looks for.

To what the store of plans asks for (``novelty``) this adds where faults struck by the role of their subtasks, which
kind of fault followed on which, the conditions of chains, and what the system's protocol came through.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.campaign import reached_links
from barrier_tck.harness.campaign.novelty import reached_by
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan
from barrier_tck.harness.record.records import TrialRecord, TrialResult, summary_of


def names_reached(result: TrialResult) -> tuple[str, ...]:
    """Return all that a trial reached, each name once."""
    record = result.record
    names = dict.fromkeys(reached_by(record, summary_of(record)))
    names |= dict.fromkeys(_faults(record))
    if result.history is not None:
        conditions = reached_links.reached(record.plan, result.history)
        names |= dict.fromkeys(f"reached: {condition}" for condition in conditions)
        names |= dict.fromkeys(f"reached: {first}; then {second}" for first, second in pairwise(conditions))
    names |= dict.fromkeys(result.reached)
    return tuple(names)


def _faults(record: TrialRecord) -> Iterator[str]:
    """Yield the phase and the role for each fault that fired, and which kind followed on which."""
    fired = [
        (scheduled.fault, booked)
        for scheduled, booked in zip(record.plan.faults, record.faults, strict=True)
        if booked.outcome == "fired"
    ]
    for fault, booked in fired:
        for name in fault.subtasks or (COORDINATOR,):
            yield f"fault: {booked.kind} in {booked.phase} of {_role(name, record.plan.job)}"
    in_order = sorted(fired, key=lambda each: each[1].fired_at_ms or 0.0)
    for (_, first), (_, second) in pairwise(in_order):
        yield f"fault: {first.kind}, then {second.kind}"


def _role(subtask: str, job: JobPlan) -> str:
    """Return whether a subtask reads, writes, or does neither."""
    name = subtask.partition("[")[0]
    kinds = [vertex.kind for vertex in job.vertices if vertex.name == name]
    return {SOURCE: "a source", SINK: "a sink"}.get(kinds[0], "an operator") if kinds else "the coordinator"
