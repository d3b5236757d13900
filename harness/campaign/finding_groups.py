"""Groups the failing trials of a campaign: those of one bug are one finding, with the smallest plan that shows it.

Two trials belong together if the same checker says that the same clause was broken first, and the smallest plans that
show this have the same shape. To make the plan of every trial smaller would take too long. So a trial is first reduced
to the shape of a finding that is known, and its faults to plain failures: if it fails likewise, it belongs there. Only
otherwise is its plan made smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from barrier_tck.harness.campaign.failures import failed_keys, fails_as
from barrier_tck.harness.campaign.plain_faults import all_plain
from barrier_tck.harness.campaign.plan_shape import Shape, in_words, reduced_to, shape_of
from barrier_tck.harness.campaign.repeated_trials import Effort, Repeated
from barrier_tck.harness.campaign.shrinking import RUNS_MAX, StillFails, shrink, sort_key
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import NOT_SMALLER, FindingGroup, TrialRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.workloads.workload_names import filled

SHRUNK_MAX = 8
"""How many plans of failing trials are made smaller at the end of a campaign."""

RUNS_OF_ONE_MAX = RUNS_MAX
"""How many candidates are run for each of them."""

EXAMINED_MAX = 500
"""How many failing trials are run again to find out where they belong; further ones are sorted by what is known."""

NUMBERS_MAX = 100
"""How many numbers of trials the record of a finding has."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that was INVALID."""

    number: int
    keys: tuple[tuple[str, str], ...]
    """The broken clause and the checker of each INVALID finding, in the order in which things broke."""
    summary: str
    shape: Shape
    """Of its own plan."""
    faults: int
    plan: TrialPlan | None
    """None: not kept, as there are too many."""


def failure_of(number: int, findings: Iterable[Finding], plan: TrialPlan, keep_plan: bool) -> Failure | None:
    """Return what grouping needs of a finished trial; None if no checker says INVALID."""
    invalid = [finding for finding in findings if finding.verdict is Verdict.INVALID]
    if not invalid:
        return None
    first = invalid[0].first
    return Failure(
        number,
        failed_keys(invalid),
        first.description if first is not None else invalid[0].summary,
        shape_of(plan),
        len(plan.faults),
        plan if keep_plan else None,
    )


@dataclass(slots=True)
class Group:
    """Trials of one finding."""

    clause: str
    checker: str
    shape: Shape | None
    """None: no plan of it was made smaller."""
    smallest: TrialPlan | None
    smallest_of: Failure
    numbers: list[int]
    presumed: int = 0
    shrunk: bool = False
    failed_runs: int = 1
    runs: int = 1

    @property
    def shape_in_words(self) -> str:
        return NOT_SMALLER if self.shape is None else in_words(self.shape)

    def record(self) -> FindingGroup:
        """Return the group as records have it."""
        plan = self.smallest
        return FindingGroup(
            clause=self.clause,
            checker=self.checker,
            shape=self.shape_in_words,
            trials=len(self.numbers),
            numbers=tuple(sorted(self.numbers)[:NUMBERS_MAX]),
            smallest_trial=self.smallest_of.number,
            plan=plan_name(self.smallest_of.number) if self.shrunk else "",
            faults=len(plan.faults) if plan is not None else self.smallest_of.faults,
            summary=self.smallest_of.summary,
            failed_runs=self.failed_runs,
            runs=self.runs,
            presumed=self.presumed,
        )


def plan_name(trial: int) -> str:
    """Return where the smallest plan of a trial is, relative to the run directory."""
    return f"shrunk/{trial:05d}.json"


@dataclass(slots=True)
class Grouping:
    """Sorts failing trials into groups, one after the other."""

    system: SystemUnderTest
    directory: Path
    """Where trials run."""
    checkers: Sequence[Checker] | None
    effort: Effort
    """What may be done on a system whose runs differ."""
    groups: list[Group] = field(default_factory=list)
    begins: Callable[[str], None] = lambda _: None
    """Is told what begins, before each run where runs take long."""
    once: Callable[[TrialPlan, Path], TrialRecord] | None = None
    """Runs and judges a plan elsewhere; None: here."""
    _sorted: dict[int, None] = field(default_factory=dict)
    """Numbers of the trials that are in a group."""
    _shrunk: int = 0
    _trials: int = 0
    _seconds: float = 0.0

    def copy(self) -> Grouping:
        """Return a copy to which failures can be added without changing this one."""
        groups = [replace(group, numbers=list(group.numbers)) for group in self.groups]
        return replace(self, groups=groups, _sorted=dict(self._sorted))

    def left_of(self, failures: Sequence[Failure]) -> tuple[Failure, ...]:
        """Return the failures that are in no group yet."""
        return tuple(failure for failure in failures if failure.number not in self._sorted)

    def one_of_each(self, failures: Sequence[Failure]) -> tuple[Failure, ...]:
        """Return the first trial for each clause and checker, whose plans can be made smaller before anything is known,
        several at once and where trials run; none where runs differ.
        """
        if not self._exact:
            return ()
        first: dict[tuple[str, str], Failure] = {}
        for failure in self.left_of(failures):
            if failure.plan is not None:
                first.setdefault(failure.keys[0], failure)
        return tuple(first.values())[: max(0, SHRUNK_MAX - self._shrunk)]

    def add(self, failure: Failure, smallest: TrialPlan | None) -> None:
        """Take the smallest plan of a trial; None if it could not be made smaller."""
        self._shrunk += 1
        if smallest is None:
            self.presume(failure)
        else:
            self._found(failure, smallest)

    def examine(self, failure: Failure) -> None:
        """Find out where a trial belongs, by running smaller plans as long as there are means for it."""
        if failure.plan is None or not self._may_run:
            self.presume(failure)
        elif self._joins(failure, failure.plan):
            self._sorted[failure.number] = None
        elif self._shrunk < SHRUNK_MAX:
            self._shrink(failure, failure.plan)
        else:
            self.presume(failure)

    def presume(self, failure: Failure) -> None:
        """Sort a trial by what is known of it: it belongs to a finding that it shows, and whose shape it has."""
        self._sorted[failure.number] = None
        for group in self.groups:
            known = group.shape is not None and set(group.shape) <= set(failure.shape)
            if known and (group.clause, group.checker) in failure.keys:
                group.numbers.append(failure.number)
                group.presumed += 1
                return
        clause, checker = failure.keys[0]
        for group in self.groups:
            if group.shape is None and (group.clause, group.checker) == (clause, checker):
                group.numbers.append(failure.number)
                return
        self.groups.append(Group(clause, checker, None, failure.plan, failure, [failure.number]))

    @property
    def _exact(self) -> bool:
        return Capability.DETERMINISTIC_REPLAY in self.system.capabilities

    @property
    def _may_run(self) -> bool:
        return self._exact or (self._trials < self.effort.trials and self._seconds < self.effort.seconds)

    def _joins(self, failure: Failure, plan: TrialPlan) -> bool:
        """Let a trial join the first finding whose shape is all that it needs; return whether there is one."""
        plainly = all_plain(plan, self.system.job(plan))
        for group in self.groups:
            if group.shape is None or (group.clause, group.checker) not in failure.keys:
                continue
            reduced = [reduced_to(one, group.shape) for one in dict.fromkeys((plan, plainly))]
            candidates = dict.fromkeys(one for one in reduced if one is not None)
            if plan in candidates or (self._exact and self._any_fails(candidates, group)):
                group.numbers.append(failure.number)
                return True
            if not self._exact and candidates:  # a run that passes says little, and runs are dear
                group.numbers.append(failure.number)
                group.presumed += 1
                return True
        return False

    def _any_fails(self, plans: Iterable[TrialPlan], group: Group) -> bool:
        still_fails = self._fails_as(group.clause, group.checker)
        return any(map(still_fails, plans))

    def _fails_as(self, clause: str, checker: str) -> StillFails:
        return fails_as(self.system, clause, checker, self.directory, self.checkers, self.once)

    def _shrink(self, failure: Failure, plan: TrialPlan) -> None:
        clause, checker = failure.keys[0]
        self._shrunk += 1
        still_fails = self._fails_as(clause, checker)
        what = f"the plan of trial {failure.number} is made smaller"
        self.begins(what)
        if self._exact:
            smallest = shrink(plan, still_fails, self.system.job, RUNS_OF_ONE_MAX, fit=self._fit)
            self._found(failure, smallest.plan)
            return
        repeated = Repeated(still_fails, self._left, lambda run: self.begins(f"{what}, {run}"))
        found = self._shrink_in_real_time(plan, repeated)
        self._found(failure, found.plan, found.failed_runs, found.runs, shrunk=found.smaller)

    def _found(
        self, failure: Failure, smallest: TrialPlan, failed_runs: int = 1, runs: int = 1, shrunk: bool = True
    ) -> None:
        """Let a trial join the finding of the shape of its smallest plan, or begin one; if it is not ``shrunk``, that
        is its own plan.
        """
        self._sorted[failure.number] = None
        clause, checker = failure.keys[0]
        shape = shape_of(smallest)
        for group in self.groups:
            if (group.clause, group.checker, group.shape) == (clause, checker, shape):
                group.numbers.append(failure.number)
                if group.smallest is None or sort_key(smallest) < sort_key(group.smallest):
                    group.smallest, group.smallest_of, group.shrunk = smallest, failure, shrunk
                    group.failed_runs, group.runs = failed_runs, runs
                return
        found = Group(clause, checker, shape, smallest, failure, [failure.number], shrunk=shrunk)
        found.failed_runs, found.runs = failed_runs, runs
        self.groups.append(found)

    def _fit(self, plan: TrialPlan) -> TrialPlan:
        return without(plan, unused_by(self.system))

    @property
    def _left(self) -> Effort:
        return replace(
            self.effort,
            trials=self.effort.trials - self._trials,
            seconds=self.effort.seconds - self._seconds,
        )

    def _shrink_in_real_time(self, plan: TrialPlan, repeated: Repeated) -> _Smallest:
        """Return the smallest plan that failed when it was tried and again afterwards; the plan itself if none did.

        One failure of many candidates may be chance, and a plan that shows nothing when it is run again helps nobody.
        What came after such a plan was built on it, but what came before it was not.
        """
        began = time.monotonic()
        whole = filled(plan)
        try:
            shrunk = shrink(plan, repeated.fails, self.system.job, RUNS_OF_ONE_MAX, fit=self._fit)
            if not shrunk.accepted:
                failed_runs, runs = repeated.how_often(whole)
                # The trial itself was a run of this plan, and it failed.
                return _Smallest(whole, failed_runs + 1, runs + 1, smaller=False)
            again = repeated.newest_failing_again(shrunk.accepted)
        finally:
            self._trials += repeated.trials
            self._seconds += time.monotonic() - began
        if again is None:
            return _Smallest(whole, 1, 1, smaller=False)
        return _Smallest(again.plan, again.failed_runs, again.runs, smaller=True)


@dataclass(frozen=True, slots=True)
class _Smallest:
    """The smallest plan of a finding where runs differ, and in how many of how many runs it failed."""

    plan: TrialPlan
    failed_runs: int
    runs: int
    smaller: bool
    """False: it is the plan of the trial."""


def joined_groups(groups: Iterable[FindingGroup]) -> tuple[FindingGroup, ...]:
    """Return the findings of several parts of a campaign as those of the whole, in the order of their first trials."""
    found: dict[tuple[str, str, str], FindingGroup] = {}
    for group in groups:
        key = (group.clause, group.checker, group.shape)
        known = found.get(key)
        found[key] = group if known is None else _joined(known, group)
    return tuple(sorted(found.values(), key=lambda group: min(group.numbers, default=0)))


def _joined(one: FindingGroup, other: FindingGroup) -> FindingGroup:
    smaller = min(one, other, key=lambda group: (not group.plan, group.faults, group.smallest_trial))
    return msgspec.structs.replace(
        smaller,
        trials=one.trials + other.trials,
        numbers=tuple(sorted((*one.numbers, *other.numbers))[:NUMBERS_MAX]),
        presumed=one.presumed + other.presumed,
    )
