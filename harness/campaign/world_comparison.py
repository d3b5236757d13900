"""Compares two trials of one plan in two systems, for instance the simulator and Spark: do they agree where they must?

A plan determines, whatever the schedule, how the job ends, which records its output holds, what a checkpoint holds
given its positions, and which faults strike. What depends on time (the numbers of attempts and of checkpoints, and
totals in between) is not compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from barrier_tck.harness.oracle.evidence.exactness import is_exact
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.history import End, History, Row, SnapshotView
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.operator_kind import TIMERS, WAITING
from barrier_tck.harness.workloads.record_forms import LINEAGE, form_of
from barrier_tck.harness.workloads.workload_names import filled, workload_named

EXAMPLES_MAX = 3
"""How many records or keys a difference names."""


class Difference(msgspec.Struct, frozen=True):
    """Something that must be the same in both systems, and is not."""

    what: str
    """``verdict``, ``end``, ``output``, ``checkpoint`` or ``fault``."""
    sentence: str


class Comparison(msgspec.Struct, frozen=True):
    """What two trials of one plan have in common, and what not."""

    systems: tuple[str, str]
    differences: tuple[Difference, ...]
    rows: int
    """Records of the output that were compared; 0 if they have no identities that are the same under every schedule."""
    checkpoints: int
    """Checkpoints of the first trial for which the second has one at the same positions."""
    faults: int
    """Faults of the plan."""
    notes: tuple[str, ...] = ()
    """Differences that are allowed: a job that gave up in one of the systems, as its plan permits."""
    unknown: tuple[str, ...] = ()
    """Why a trial shows nothing: it could not be run or judged."""

    @property
    def verdict(self) -> Verdict:
        """INVALID if they differ; UNKNOWN if one of them shows nothing."""
        if self.differences:
            return Verdict.INVALID
        return Verdict.UNKNOWN if self.unknown else Verdict.VALID


def compared(plan: TrialPlan, one: SystemUnderTest, other: SystemUnderTest, where: str) -> Comparison:
    """Run a plan in two systems, and compare; ``where`` names the plan in errors.

    Raises UsageError if one of them cannot run the plan.
    """
    for system in (one, other):
        check_plan(plan, system, where)
    results = []
    for system in (one, other):
        with temporary_work_directory("compare") as scratch:
            results.append(execute(plan, system, Path(scratch)))
    return compare(*results)


def compare(one: TrialResult, other: TrialResult) -> Comparison:
    """Compare two trials of the same plan, each judged in its own system."""
    results = (one, other)
    names = (one.record.system, other.record.system)
    unknown = tuple(
        f"{result.record.system}: {_why_unknown(result)}"
        for result in results
        if result.history is None or result.record.verdict is Verdict.UNKNOWN
    )
    if one.history is None or other.history is None:
        return Comparison(names, (), 0, 0, len(one.record.plan.faults), unknown=unknown)
    plan = filled(one.record.plan)
    rows, of_output = _output(plan, names, one.history, other.history)
    checkpoints, of_checkpoints = _checkpoints(plan, names, one.history, other.history)
    # Whether a job may give up depends on when faults struck. The VALID verdict of its own trial says that it might.
    gave_up = tuple(
        f"the job gave up in {result.record.system}, as its plan allows: {history.explanation}"
        for result, history in ((one, one.history), (other, other.history))
        if history.end is End.FAILED and result.record.verdict is Verdict.VALID
    )
    differences = (
        *_unequal("verdict", names, *(result.record.verdict.value for result in results)),
        *(() if gave_up else _unequal("end", names, one.history.end.value, other.history.end.value)),
        *of_output,
        *of_checkpoints,
        *_faults(names, one, other),
    )
    return Comparison(names, differences, rows, checkpoints, len(plan.faults), gave_up, unknown)


def _why_unknown(result: TrialResult) -> str:
    unknown = (finding.summary for finding in result.record.findings if finding.verdict is Verdict.UNKNOWN)
    return next(unknown, "nothing was judged")


def _unequal(what: str, names: Sequence[str], one: str, other: str) -> Iterator[Difference]:
    """Yield a difference if two values are unequal; an UNKNOWN verdict counts as equal to any other."""
    if one != other and Verdict.UNKNOWN.value not in (one, other):
        yield Difference(what, f"{one} in {names[0]}, {other} in {names[1]}")


def _output(
    plan: FilledPlan, names: Sequence[str], one: History, other: History
) -> tuple[int, tuple[Difference, ...]]:
    """Return how many records were compared, and how the outputs differ: as multisets if each record must come exactly
    once, otherwise as sets.
    """
    identity = _identities(plan)
    finished = one.end is End.FINISHED and other.end is End.FINISHED
    if identity is None or not finished or one.output is None or other.output is None:
        return 0, ()
    mine, theirs = (Counter(map(identity, history.output or ())) for history in (one, other))
    if not is_exact(plan):
        mine, theirs = Counter(mine.keys()), Counter(theirs.keys())
    sides = ((names[0], mine - theirs), (names[1], theirs - mine))
    return mine.total(), tuple(
        Difference("output", f"{surplus.total()} records only in {name}: {_examples(surplus)}")
        for name, surplus in sides
        if surplus
    )


def _identities(plan: FilledPlan) -> Callable[[Row], Hashable] | None:
    """Return the function that gives the identity of a row, whatever the schedule; None if rows have none."""
    workload = workload_named(plan.workload.name)
    if workload.spec is not None:
        return partial(_value, workload.spec.output_columns[0])
    return LINEAGE.read if form_of(workload) is LINEAGE else None


def _value(column: str, row: Row) -> Hashable:
    return cast("Hashable", row.get(column))


def _examples(found: Iterable[Hashable]) -> str:
    texts = sorted(str(one) for one in found)
    return ", ".join(texts[:EXAMPLES_MAX]) + (", ..." if len(texts) > EXAMPLES_MAX else "")


def _checkpoints(
    plan: FilledPlan, names: Sequence[str], one: History, other: History
) -> tuple[int, tuple[Difference, ...]]:
    """Return how many checkpoints have the same positions in both, and those of them whose state differs.

    In aligned exactly-once mode the positions say what the state is; otherwise some of it is in channels, or counted
    twice.
    """
    if plan.checkpoints.mode != "exactly_once":
        return 0, ()
    there = {_place(view): view for view in other.checkpoints if view.problem is None}
    pairs = [
        (view, there[_place(view)])
        for view in one.checkpoints
        if view.problem is None and _place(view) in there
    ]
    differences = []
    for mine, theirs in pairs:
        keys = _differing(_contents(mine), _contents(theirs))
        if keys:
            differences.append(
                Difference(
                    "checkpoint",
                    f"checkpoint {mine.checkpoint} of {names[0]} and {theirs.checkpoint} of {names[1]} stand at the "
                    f"same positions and hold different state: {_examples(keys)}",
                )
            )
    return len(pairs), tuple(differences)


def _place(view: SnapshotView) -> tuple[Hashable, ...]:
    """Return the positions of a checkpoint, and the finished subtasks, whose state it leaves out."""
    return (tuple(sorted(view.positions.items())), tuple(sorted(view.finished)))


def _contents(view: SnapshotView) -> Mapping[tuple[str, str, str], str]:
    """Return (operator, state, key) -> what is kept, in an order that does not depend on the schedule."""
    return {
        (part.operator, part.name, key): json.dumps(_sorted(kept), sort_keys=True, default=str)
        for part in view.state
        if part.name not in (TIMERS, WAITING) and part.keyed
        for key, kept in part.entries.items()
    }


def _sorted(kept: Sequence[Any]) -> list[Any]:
    return sorted(kept, key=lambda one: json.dumps(one, sort_keys=True, default=str))


def _differing(
    mine: Mapping[tuple[str, str, str], str], theirs: Mapping[tuple[str, str, str], str]
) -> list[str]:
    return [
        f"{operator} {name} {key}: {mine.get(place, 'nothing')} and {theirs.get(place, 'nothing')}"
        for place in sorted({*mine, *theirs})
        for operator, name, key in (place,)
        if mine.get(place) != theirs.get(place)
    ]


def _faults(names: Sequence[str], one: TrialResult, other: TrialResult) -> Iterator[Difference]:
    """Yield the faults that struck in one system only."""
    outcomes = [{fault.index: fault.outcome for fault in result.record.faults} for result in (one, other)]
    for fault in one.record.faults:
        mine, theirs = (outcome.get(fault.index, "not planned") for outcome in outcomes)
        if mine != theirs:
            yield Difference("fault", f"{fault.label} {mine} in {names[0]}, {theirs} in {names[1]}")
