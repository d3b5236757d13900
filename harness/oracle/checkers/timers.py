"""Timers are state: what waits in a window has one, in every checkpoint, and it goes off in time (STA-1).

Whether all that waited leaves, and leaves once, is judged by ``dataflow``. But at the end of the input all windows end:
output alone does not show that timers went off before. So no record may wait in a checkpoint that was triggered long
after the end of its window. Full buffers and faults hold timers up, and so does a savepoint with which the job was to
stop, until subtasks learn that it failed: then timers go off again. How long is known in virtual time if the plan makes
nothing slow (``LATE_MS``, and what loops and fragments add); otherwise it is what the trial allows for progress
(``limits.progress_ms``) and what a stop may take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.opened_checkpoints import opened_checkpoints
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History, SnapshotView
from barrier_tck.harness.record.operations import AbortLearned, AttemptRunning, CheckpointTriggered
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.dataflow_model import windows_of
from barrier_tck.harness.workloads.input_load import held_up_ms
from barrier_tck.harness.workloads.operator_kind import TIMERS, WAITING

WAITED = "waited"
"""The count of a finding that says how many records were seen waiting in checkpoints."""

LATE_MS = 500
"""Where only full buffers, faults and stops hold a timer up, in virtual time, buffers do for less than this (ms), but
for those that fill with what goes round loops, or with fragments."""

_UNLIKE = Sign(
    "in a checkpoint timers and what waits for them do not belong together, or a timer is there twice",
    "STA-1",
)
_LATE = Sign(
    "a record still waits in a checkpoint that was triggered long after the end of its window", "STA-1"
)

_Waiting = tuple[str, str, int, int, int]
"""Operator, key, number of the input and id of a record that waits, and the end of its window."""


class TimersKept(StandardChecker):
    """In every checkpoint timers and what waits for them belong together, and no timer is forgotten."""

    name = "timers"
    requires = (
        "What waits in a window has a timer for the end of the window, no other timer is there, and "
        "nothing waits too long."
    )
    judges = "jobs with windows, if their checkpoints can be opened"
    covers = {"STA-1": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_UNLIKE, _LATE)
    rank = 280

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and bool(windows_of(trial.plan.job))

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.plan)

    def __init__(self, plan: TrialPlan) -> None:
        self._windows = windows_of(plan.job)
        lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in plan.faults)
        # A timer that was set by one clock may go off by another one, after a restore.
        clocks = (0, *plan.deployment.clock_skew_ms)
        self._held_up_ms = lasting_ms + max(clocks) - min(clocks)

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint of one trial."""
        views = opened_checkpoints(context).judged
        problems = [
            _breach(_UNLIKE, f"checkpoint {view.checkpoint}: {problem}", view, context)
            for view in views
            for problem in self._unlike(view)
        ]
        problems += [_breach(_LATE, problem, view, context) for view, problem in self._late(views, context)]
        waited = sum(len(self._waiting(view)) for view in views)
        counts = {"checkpoints": len(views), WAITED: waited, "violations": len(problems)}
        if problems:
            summary = f"timers or what waits for them went wrong {len(problems)} times"
            return self.broken(context, summary, counts, problems)
        if not waited:
            summary = "no record waited in a checkpoint, so nothing is said about timers"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        summary = f"{waited} records that waited in checkpoints had their timers, and none waited too long"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)

    def _unlike(self, view: SnapshotView) -> Iterator[str]:
        """Yield what waits without a timer, timers for which nothing waits, and those that are there twice."""
        due: dict[tuple[str, str, str, int], bool] = {}
        """Operator, subtask, key and time -> whether a timer is set."""
        for part in view.state:
            if part.operator in self._windows and part.name == WAITING:
                for key, entry in part.entries.items():
                    for *_, end_ms in entry:
                        due[part.operator, part.subtask, key, end_ms] = False
        for part in view.state:
            if part.operator not in self._windows or part.name != TIMERS:
                continue
            for key, times in part.entries.items():
                for at_ms in times:
                    place = part.operator, part.subtask, key, at_ms
                    where = f"key {key} of {part.operator} in {part.subtask}"
                    if place not in due:
                        yield f"{where} has a timer for {at_ms} ms, and nothing waits for it"
                    elif due[place]:
                        yield f"{where} has two timers for {at_ms} ms"
                    due[place] = True
        for (operator, subtask, key, end_ms), has_timer in due.items():
            if not has_timer:
                yield f"records of key {key} wait in {operator} until {end_ms} ms, and {subtask} has no timer for that"

    def _late(
        self, views: tuple[SnapshotView, ...], context: TrialContext
    ) -> Iterator[tuple[SnapshotView, str]]:
        """Yield which records wait in checkpoints that were triggered long after the end of their windows."""
        history, plan = context.history, context.plan
        slow = plan.network.slow_channel is not None or plan.deployment.slow_vertex is not None
        known = Capability.DETERMINISTIC_REPLAY.name in context.capabilities and not slow
        stops = _stops_that_failed(history) if known else ()
        if known:
            behind_queues_ms = min(held_up_ms(plan), plan.limits.progress_ms)
            allowed_ms: float = self._held_up_ms + LATE_MS + behind_queues_ms
        else:
            of_stops_ms = plan.checkpoints.timeout_ms if any(each.stop for each in plan.savepoints) else 0
            allowed_ms = self._held_up_ms + plan.limits.progress_ms + of_stops_ms
        begun = {line.operation.checkpoint: line.time_ms for line in history.of(CheckpointTriggered)}
        for view in views:
            now_ms = begun.get(view.checkpoint, 0.0) + history.epoch_ms
            for operator, key, _, identifier, end_ms in self._waiting(view):
                if now_ms - end_ms <= allowed_ms:
                    continue
                stopped_ms = sum(
                    max(
                        0.0,
                        min(until_ms + history.epoch_ms, now_ms) - max(since_ms + history.epoch_ms, end_ms),
                    )
                    for since_ms, until_ms in stops
                )
                if now_ms - end_ms - stopped_ms > allowed_ms:
                    late = f"ended {now_ms - end_ms:.0f} ms before checkpoint {view.checkpoint} was triggered"
                    stopping = f", {stopped_ms:.0f} ms of which a stop took that failed" if stopped_ms else ""
                    waits = f"record {identifier} of key {key} waits in {operator}"
                    yield view, f"{waits}, and its window {late}{stopping}"

    def _waiting(self, view: SnapshotView) -> list[_Waiting]:
        return [
            (part.operator, key, number, identifier, end_ms)
            for part in view.state
            if part.operator in self._windows and part.name == WAITING
            for key, entry in part.entries.items()
            for number, identifier, _, end_ms in entry
        ]


def _breach(sign: Sign, sentence: str, view: SnapshotView, context: TrialContext) -> Breach:
    at = completed_at(context, view.checkpoint)
    return Breach(sign, sentence, at, checkpoint=view.checkpoint, attempt=view.attempt)


def _stops_that_failed(history: History) -> Sequence[tuple[float, float]]:
    """Return from when to when each savepoint that was to stop the job held up timers: until the last subtask learned
    that it had failed or, if none did, until the next attempt ran.
    """
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    ran: list[float] = []
    for line in history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint, stops=True):
                begun[checkpoint] = line.time_ms
            case AbortLearned(checkpoint=checkpoint) if checkpoint in begun:
                ended[checkpoint] = line.time_ms
            case AttemptRunning():
                ran.append(line.time_ms)
    return [
        (since_ms, ended.get(checkpoint, next((time_ms for time_ms in ran if time_ms > since_ms), inf)))
        for checkpoint, since_ms in begun.items()
    ]
