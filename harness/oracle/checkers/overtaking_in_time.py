"""A barrier that may overtake waits for no data: how long its checkpoint takes does not depend on what is queued.

In unaligned mode it overtakes at once, and after the alignment timeout in the mode with one; so does it in the output
buffers of its sources (UNA-2, UNA-3). One that waits for its turn stores less than it may, and no result is wrong: the
checkpoint only comes later, or expires. In virtual time it is known how long messages take if nothing is ahead of them.

A barrier does wait for data at the end of a channel, which overtakes nothing, on a broadcast edge, and in a loop. So
only checkpoints count in which every source had something left to read.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import CheckpointLife, lives_of
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import Backlog, longest_ms, obstacles
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import InputRead
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_PATIENT = "aligned_timeout"
_BROADCAST = "broadcast"
_WAITED = Sign("a barrier waits for the data ahead of it although it may overtake", "UNA-3")
_WAITED_LONGER = Sign("a barrier waits for the data ahead of it longer than the alignment timeout", "UNA-2")


class OvertakingInTime(StandardChecker):
    """A checkpoint whose barriers may overtake takes no longer than its messages and its parts do."""

    name = "overtaking-in-time"
    requires = (
        "Where barriers may overtake, at once or after a timeout, a checkpoint takes as long as its barriers travel "
        "and its parts are stored, whatever waits in the channels."
    )
    judges = (
        "systems with barriers in virtual time whose checkpoints can be opened, in the modes that overtake"
    )
    covers = {"UNA-2": ALWAYS, "UNA-3": ALWAYS}
    needs = frozenset(
        {
            Capability.CHECKPOINTS,
            Capability.BARRIERS,
            Capability.DETERMINISTIC_REPLAY,
            Capability.SNAPSHOT_INSPECTION,
        }
    )
    signs = (_WAITED_LONGER, _WAITED)
    directness = Directness.OPERATIONS
    rank = 176

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.checkpoints.overtakes

    def check(self, context: TrialContext) -> Finding:
        """Compare how long each checkpoint of one trial took with how long it may take."""
        sign = _WAITED_LONGER if context.plan.checkpoints.mode == _PATIENT else _WAITED
        overtook = {view.checkpoint for view in context.history.checkpoints if view.in_flight}
        judged = ahead = 0
        problems: list[Breach] = []
        for life, took_ms, most_ms in _undisturbed(context):
            judged += 1
            ahead += life.number in overtook
            if took_ms > most_ms:
                sentence = (
                    f"checkpoint {life.number} of attempt {life.attempt} took {took_ms:g} ms, and needs {most_ms:g} ms "
                    f"at most if its barriers overtake what is queued ({sign.clause})"
                )
                problems.append(Breach(sign, sentence, life.ended_at, "", life.number, attempt=life.attempt))
        counts = {"judged": judged, "ahead": ahead, "violations": len(problems)}
        if problems:
            first = problems[0].sentence
            summary = (
                f"{len(problems)} checkpoints waited for data that they may overtake; the first: {first}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"{judged} checkpoints took no longer than their barriers and parts, {ahead} of them ahead of records"
        return Finding(self.name, (sign.clause,) if ahead else (), Verdict.VALID, summary, counts)


def _undisturbed(context: TrialContext) -> Iterator[tuple[CheckpointLife, float, float]]:
    """Yield each checkpoint that nothing held up, how long it took, and how long it may take at most."""
    held_up = obstacles(context)
    going_on = _with_input_left(context)
    for attempt in lives_of(context):
        plan = context.plan_of(attempt.number)
        if plan.job.loops or any(edge.by == _BROADCAST for edge in plan.job.edges):
            continue
        backlog, most_ms = Backlog(plan, attempt), _most_ms(plan)
        for life in attempt.checkpoints:
            if not life.completed or life.ended_ms is None or life.number not in going_on:
                continue
            if not any(obstacle.overlaps(life.triggered_ms, life.ended_ms) for obstacle in held_up):
                # What follows is the writing of its metadata, which has nothing to do with barriers.
                last_ms = max(life.acknowledged.values(), default=life.ended_ms)
                yield life, last_ms - life.triggered_ms, most_ms + backlog.at(life.triggered_ms)


def _most_ms(plan: TrialPlan) -> float:
    """Return how long a checkpoint may take if barriers overtake, after a timeout at each vertex on their way."""
    patient = plan.checkpoints.mode == _PATIENT
    waits_ms = plan.checkpoints.alignment_timeout_ms if patient else 0
    return longest_ms(plan, final=True) + len(plan.job.vertices) * waits_ms


def _with_input_left(context: TrialContext) -> frozenset[int]:
    """Return the checkpoints after which each source read on: no channel had ended."""
    splits: dict[int, dict[str, list[str]]] = {}
    for line in context.history.of(InputRead):
        read = line.operation
        splits.setdefault(read.attempt, {}).setdefault(read.subtask, []).append(read.split)
    furthest: dict[str, int] = {}
    for view in context.history.checkpoints:
        for split, position in view.positions.items():
            furthest[split] = max(position, furthest.get(split, 0))
    return frozenset(
        view.checkpoint
        for view in context.history.checkpoints
        if view.problem is None and view.attempt is not None and not view.finished
        if all(
            any(
                view.positions.get(split, 0) < furthest.get(split, 0)
                for split in splits.get(view.attempt, {}).get(source, ())
            )
            for vertex in context.plan_of(view.attempt).job.sources
            for source in vertex.subtasks
        )
    )
