"""Narrowed jobs: an elastic job gets narrower only if slots are missing for long enough, and then as little as is
possible (RSC-2).

What the job left is judged by all other checkers, as after any other rescaling. Here it is looked at which parallelism
was chosen: it must find room in the slots that are there, a vertex that is to stay as it is stays so, and no slot is
left over in which one more subtask of a vertex would have had room. Where the slots are observed, they must have been
missing without a break for as long as the job is to wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.slots import (
    Seen,
    equally_wide,
    fixed_vertices,
    slots_at_first,
    slots_seen,
)
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import AttemptRunning, FaultStarted, Narrowed
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

NARROWED = "narrowed"
"""The attempts that were narrower than the job, and ran."""
LOST_FOR_GOOD = "lost_for_good"
"""The executors that nothing replaced."""


_SEEN = 0.2
"""If slots are enough for longer than this part of the wait, a job that waits for them sees it."""
_LATE = 0.1
"""Where time is real, the process that counts slots may be held up between reading the clock and counting, for at most
this part of the wait."""


def _ran_narrower(finding: Finding, _: TrialSummary) -> Sightings | None:
    """Return how many attempts ran so, if the trial lost an executor for good."""
    return {NARROWED: finding.counts.get(NARROWED, 0)} if finding.counts.get(LOST_FOR_GOOD) else None


_NARROWER = Sign("a job goes on narrower too early, or with other parallelism than its slots allow", "RSC-2")


class NarrowedJobs(StandardChecker):
    """The parallelism of an elastic job fits the slots that there are."""

    name = "narrowed-jobs"
    requires = (
        "An elastic job gets narrower only if slots are missing, and have been for as long as it is to "
        "wait, has room in those that are left and uses them, and leaves fixed vertices as they are."
    )
    judges = "plans with an elastic job, in systems that can run one"
    covers = {"RSC-2": ALWAYS}
    needs = frozenset({Capability.ELASTIC})
    sometimes = (
        Sometimes(
            name="sometimes-narrowed",
            clauses=("RSC-2",),
            seen=_ran_narrower,
            things={NARROWED: "with_narrower"},
            shown=(
                "in {with_narrower} of {trials} trials of elastic jobs that lost an executor for good, they went on "
                "narrower, in {narrowed} attempts"
            ),
            not_shown=(
                "none of the {trials} elastic jobs that lost an executor for good went on narrower; give executors "
                "fewer slots, or the jobs more subtasks"
            ),
            # An executor that is lost shortly before the end, or whose slots nobody needs, makes no job narrower.
            trials_min=5,
        ),
    )
    signs = (_NARROWER,)
    directness = Directness.OPERATIONS
    rank = 370

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.plan.deployment.elastic_wait_ms is not None

    def check(self, context: TrialContext) -> Finding:
        """Look at every attempt of one trial that was narrower than its job."""
        history = context.history
        jobs = context.jobs
        ran = {line.operation.attempt for line in history.of(AttemptRunning)}
        # By time: of what happens at one moment, a fault may be reported after all that it causes.
        kills_ms = [
            line.time_ms
            for line in history.of(FaultStarted)
            if context.planned_faults[line.operation.fault].fault.ends is not None
        ]
        there = slots_at_first(context)
        seen = slots_seen(context)
        slack = 0.0 if there else _LATE
        problems: list[Breach] = []
        for line in history.of(Narrowed):
            attempt = line.operation.attempt
            found: list[str] = []
            if line.operation.slots < there and not any(kill_ms <= line.time_ms for kill_ms in kills_ms):
                slots = line.operation.slots
                found.append(f"attempt {attempt} found {slots} of {there} slots, and no fault had taken any")
            planned = jobs.plan_of(jobs.of.get(attempt, 0))
            wrong = (*_problems(planned, line.operation), *_too_early(planned, line, seen, slack))
            found += [f"attempt {attempt}: {what}" for what in wrong]
            problems += [Breach(_NARROWER, what, line.index, attempt=attempt) for what in found]
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
            summary = (
                f"{len(problems)} things are wrong with narrower jobs; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"{counts[NARROWED]} attempts ran with fewer subtasks, as many as there was room for"
        return Finding(self.name, self.clauses if counts[NARROWED] else (), Verdict.VALID, summary, counts)


def _too_early(
    plan: TrialPlan, line: Recorded[Narrowed], seen: Sequence[Seen], slack: float
) -> Iterator[str]:
    """Yield what is wrong with the moment at which a job goes on narrower; nothing if the slots were not observed.

    ``plan`` has the job as it is meant to be; ``slack`` is by which part a wait may seem to be too short. No process
    looks for slots all the time: if they were enough for a moment, the job may not have seen it.
    """
    needed, wait_ms = len(plan.job.subtasks), plan.deployment.elastic_wait_ms or 0
    before = [sighting for sighting in seen if sighting.index < line.index]
    if not before:
        return
    if line.operation.slots != before[-1].slots:
        yield f"it found {line.operation.slots} slots, and there were {before[-1].slots}"
    seen_ms = max(1.0, wait_ms * _SEEN)
    missing_since: float | None = None
    for entry, following in pairwise([*before, Seen(line.index, line.time_ms, 0)]):
        if entry.slots < needed:
            missing_since = entry.time_ms if missing_since is None else missing_since
        elif following.time_ms - entry.time_ms > seen_ms:
            missing_since = None
    missing_ms = 0.0 if missing_since is None else line.time_ms - missing_since
    if missing_ms < wait_ms * (1.0 - slack):
        yield (
            f"it is narrower, and of its {needed} slots some had been missing for {missing_ms:g} ms only; it is to "
            f"wait {wait_ms} ms for them"
        )


def _problems(plan: TrialPlan, narrowed: Narrowed) -> Iterator[str]:
    """Yield what is wrong with the parallelism that was chosen; ``plan`` has the job as it is meant to be."""
    planned = {vertex.name: vertex.parallelism for vertex in plan.job.vertices}
    widths, slots = narrowed.widths, narrowed.slots
    if list(widths) != list(planned):
        yield f"it has the vertices {list(widths)}, and the job has {list(planned)}"
        return
    total, all_of_it = sum(widths.values()), sum(planned.values())
    if total > slots:
        yield f"it has {total} subtasks, and there were {slots} slots: it could never be deployed"
    if all_of_it <= slots:
        yield f"it is narrower, though {slots} slots are enough for {all_of_it} subtasks"
    for name, width in widths.items():
        if not 1 <= width <= planned[name]:
            yield f"{name} has {width} subtasks, and is meant to have {planned[name]}"
    for names in equally_wide(plan.job):
        if len({widths[name] for name in names}) > 1:
            yield f"{' and '.join(names)} are not equally parallel"
        elif any(name in fixed_vertices(plan) for name in names):
            yield from (
                f"{name} has {widths[name]} subtasks, though it must keep its {planned[name]}"
                for name in names
                if widths[name] != planned[name]
            )
        elif widths[names[0]] < planned[names[0]] and total + len(names) <= slots:
            yield f"{' and '.join(names)} could have one subtask more: {slots - total} slots are left over"
