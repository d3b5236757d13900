"""Narrowed jobs: an elastic job gets narrower only if slots are missing, and then as little as is possible (RSC-2).

What the job left is judged by everybody else, as after any other rescaling. Here it is looked at which parallelism was
chosen: it must find room in the slots that are there, a vertex that is to stay as it is stays so, and no slot is left
over in which one more subtask of a vertex would have had room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.oracle.jobs_of_trial import jobs_of_trial
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import AttemptRunning, FaultStarted, Narrowed
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

NARROWED = "narrowed"
"""The attempts that were narrower than the job, and ran."""
LOST_FOR_GOOD = "lost_for_good"
"""The executors that nothing replaced."""


class NarrowedJobs:
    """The parallelism of an elastic job fits the slots that there are."""

    name = "narrowed-jobs"
    clauses = ("RSC-2",)

    def check(self, context: TrialContext) -> Finding:
        """Look at every attempt of one trial that was narrower than its job."""
        history = context.history
        jobs = jobs_of_trial(context.plan, history)
        ran = {line.operation.attempt for line in history.of(AttemptRunning)}
        # By time: of what happens at one moment, a fault may be told after all that it causes.
        kills_ms = [
            line.time_ms
            for line in history.of(FaultStarted)
            if context.planned_faults[line.operation.fault].fault.ends is not None
        ]
        problems: list[str] = []
        for line in history.of(Narrowed):
            attempt = line.operation.attempt
            there = _slots_at_first(context)
            if line.operation.slots < there and not any(kill_ms <= line.time_ms for kill_ms in kills_ms):
                problems.append(
                    f"attempt {attempt} found {line.operation.slots} of {there} slots, and no fault had taken any"
                )
            meant = jobs.meant(jobs.of.get(attempt, 0))
            problems += [f"attempt {attempt}: {what}" for what in _problems(meant, line.operation)]
        lost = [
            record
            for record in context.faults
            if record.outcome == "fired"
            and context.planned_faults[record.index].fault.needs is TargetKind.CAPACITY
        ]
        counts = {
            NARROWED: sum(line.operation.attempt in ran for line in history.of(Narrowed)),
            LOST_FOR_GOOD: len(lost),
            "violations": len(problems),
        }
        if problems:
            summary = f"{len(problems)} things are wrong with narrower jobs; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{counts[NARROWED]} attempts ran with fewer subtasks, as many as there was room for"
        return Finding(self.name, self.clauses if counts[NARROWED] else (), Verdict.VALID, summary, counts)


def _slots_at_first(context: TrialContext) -> int:
    """Return how many slots the plan's executors have; 0 if that is not known for sure."""
    planned = context.plan.deployment
    exact = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
    return planned.executors * (planned.slots_per_executor or 0) if exact else 0


def _problems(plan: TrialPlan, narrowed: Narrowed) -> Iterator[str]:
    """Yield what is wrong with the parallelism that was chosen; ``plan`` has the job as it is meant to be."""
    meant = {vertex.name: vertex.parallelism for vertex in plan.job.vertices}
    widths, slots = narrowed.widths, narrowed.slots
    if list(widths) != list(meant):
        yield f"it has the vertices {list(widths)}, and the job has {list(meant)}"
        return
    total, all_of_it = sum(widths.values()), sum(meant.values())
    if total > slots:
        yield f"it has {total} subtasks, and there were {slots} slots: it could never be deployed"
    if all_of_it <= slots:
        yield f"it is narrower, though {slots} slots are enough for {all_of_it} subtasks"
    for name, width in widths.items():
        if not 1 <= width <= meant[name]:
            yield f"{name} has {width} subtasks, and is meant to have {meant[name]}"
    for names in _together(plan.job):
        if len({widths[name] for name in names}) > 1:
            yield f"{' and '.join(names)} are not equally parallel"
        elif any(name in _fixed(plan) for name in names):
            yield from (
                f"{name} has {widths[name]} subtasks, though it must keep its {meant[name]}"
                for name in names
                if widths[name] != meant[name]
            )
        elif widths[names[0]] < meant[names[0]] and total + len(names) <= slots:
            yield f"{' and '.join(names)} could have one subtask more: {slots - total} slots are left over"


def _fixed(plan: TrialPlan) -> tuple[str, ...]:
    told = [edge.target for edge in plan.job.edges if edge.by is Spread.BROADCAST]
    return (*plan.deployment.fixed_vertices, *told, *(name for loop in plan.job.loops for name in loop))


def _together(job: JobPlan) -> list[list[str]]:
    """Return the vertices, those that are connected by forward edges together."""
    leader = {vertex.name: vertex.name for vertex in job.vertices}
    for edge in job.edges:
        if edge.by is Spread.FORWARD:
            old, new = leader[edge.target], leader[edge.source]
            leader = {name: new if of == old else of for name, of in leader.items()}
    found: Mapping[str, list[str]] = {of: [] for of in leader.values()}
    for name, of in leader.items():
        found[of].append(name)
    return list(found.values())
