"""Searches a scope, and judges what led to every distinct state.

A state says what can follow, and what became of attempts and checkpoints. Two pasts of one state may differ in what
judges look at. So each way that leads to a state is judged at least once: with what came behind the state when it was
met first, up to the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence

import msgspec

from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import FilledPlan, to_builtins
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted
from barrier_tck.harness.reference.bugs.patched_copy import patch_of_this_process
from barrier_tck.harness.reference.exhaustive.choosing_order import ChoosingOrder
from barrier_tck.harness.reference.exhaustive.scopes import Scope
from barrier_tck.harness.reference.exhaustive.search import (
    BOTH,
    Progress,
    Reduction,
    Search,
    Step,
    Watcher,
)
from barrier_tck.harness.reference.exhaustive.searched_world import (
    CRASHED,
    HistoryLine,
    SearchedWorld,
    told_apart,
)
from barrier_tck.harness.reference.exhaustive.world_copies import forget
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated, SimulatedTrial
from barrier_tck.harness.support.errors import InternalError, UsageProblem
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.support.strict_input import convert, parse_json
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.harness.trial.trial_run import checkers_of, judged, not_run
from barrier_tck.harness.workloads.workload_names import filled

_VERSION = 1


class ScopeFinding(msgspec.Struct, frozen=True):
    """An end that is not VALID, and how to come to it."""

    verdict: Verdict
    checker: str
    clauses: tuple[str, ...]
    summary: str
    choices: tuple[str, ...]
    """The steps from the beginning on."""


class ScopeResult(msgspec.Struct, frozen=True):
    """What a search of a scope came to."""

    scope: str
    complete: bool
    """Whether everything was searched. If not, and nothing was found, nothing is known about the rest."""
    states: int
    steps: int
    ends: int
    """Distinct states in which no step is possible."""
    histories: int
    """Histories that judges tell apart, all of which were judged."""
    depth: int
    seconds: float
    """Processor time."""
    findings: tuple[ScopeFinding, ...] = ()


class ChosenPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a finding: a plan, and the choices that lead to it, one after the other."""

    version: int
    scope: str
    plan: dict[str, object]
    triggers: int
    crashes: int
    choices: tuple[str, ...]


def search_scope(
    scope: Scope,
    reduction: Reduction = BOTH,
    seconds: float | None = None,
    shown: Callable[[Progress], None] = lambda progress: None,
    stop_at_first: bool = True,
) -> ScopeResult:
    """Search a scope with the planted bug that its plan names, if it names one.

    ``seconds``: after so much processor time the search is given up. ``stop_at_first``: the search ends at the first
    end that is not VALID. Raises UsageProblem if the code of a bug holds what cannot be copied, such as a lock.
    """
    with prepared(scope) as ready:
        judging = _Judging(ready, stop_at_first)
        judging.search = search = Search(ready.model, reduction, judging, seconds, shown)
        try:
            progress = search.run()
        except (TypeError, RecursionError) as error:
            if scope.plan.mutant is None and patch_of_this_process() is None:
                raise
            raise UsageProblem(
                f"{scope.name} cannot be searched with this bug, because its code holds what cannot be copied: "
                f"{error}; let it keep plain values, without locks, and let a __getattr__ of it raise "
                "AttributeError for names that begin with an underscore"
            ) from error
    return ScopeResult(
        scope.name,
        progress.complete,
        progress.states,
        progress.steps,
        progress.ends,
        len(judging.judged),
        progress.depth,
        round(progress.seconds, 1),
        tuple(judging.findings),
    )


class _Judging(Watcher):
    """Judges every history that a search comes to, once."""

    search: Search

    def __init__(self, ready: PreparedScope, stop_at_first: bool) -> None:
        self._ready = ready
        self._model = ready.model
        self._stop_at_first = stop_at_first
        self._recorded_before = self._model.recorded
        self._begin: dict[Hashable, int] = {}
        """State -> how many lines the history had there, by the way by which it was reached last."""
        self._said: dict[Hashable, tuple[HistoryLine, ...]] = {}
        """State -> the lines of the first step that was taken there."""
        self.judged: dict[Hashable, None] = {}
        self.findings: list[ScopeFinding] = []

    def stepped(self, before: Hashable, after: Hashable) -> None:
        if before not in self._said:
            begin = self._begin.get(before, self._recorded_before)
            crash = (CRASHED,) if self._model.own_accord(self.search.path[-1]) else ()
            self._said[before] = (*crash, *self._model.lines_since(begin))
        self._begin[after] = self._model.recorded

    def met_again(self, state: Hashable) -> bool:
        model = self._model
        path, end, lines = [*self.search.path], state, model.lines()
        way = [*self.search.way_from(state)]
        for step, after in way:
            path.append(step)
            lines += self._said[end]
            end = after
        if (end, told_apart(lines)) in self.judged:
            return False
        for step, _ in way:
            if step not in model.steps():
                raise self._told_too_little(path)
            model.take(step)
        if model.digest() != end:
            raise self._told_too_little(path)
        return self._judge(end, path)

    def _told_too_little(self, path: Sequence[Step]) -> InternalError:
        """Return the error that something on which the future depends is no part of a state."""
        return InternalError(
            f"scope {self._ready.name}: two ways led to one state, and what could follow was not the same: "
            f"{', '.join(map(str, path))}"
        )

    def ended(self) -> bool:
        return self._judge(self.search.state, self.search.path)

    def _judge(self, end: Hashable, path: Sequence[Step]) -> bool:
        """Judge the end where the model stands, unless it was; return whether to stop."""
        history = (end, told_apart(self._model.lines()))
        if history in self.judged:
            return False
        self.judged[history] = None
        finding = self._ready.judge(path)
        if finding is not None:
            self.findings.append(finding)
        return finding is not None and self._stop_at_first


def replay_path(scope: Scope, choices: Sequence[str]) -> ScopeFinding | None:
    """Take the steps of a finding again; return what is found, None if the end is VALID.

    Raises UsageProblem if a step is not possible: the code is not that of the finding.
    """
    with prepared(scope) as ready:
        path: list[Step] = []
        for number, choice in enumerate(choices, start=1):
            steps = {str(step): step for step in ready.model.steps()}
            if choice not in steps:
                possible = ", ".join(steps) or "none: the run is over"
                raise UsageProblem(
                    f"choice {number}, {choice!r}, is not possible; possible steps: {possible}"
                )
            path.append(steps[choice])
            ready.model.take(steps[choice])
        return ready.judge(path)


def path_file(scope: Scope, finding: ScopeFinding) -> bytes:
    """Return the file with which a finding is replayed."""
    path = ChosenPath(
        _VERSION, scope.name, to_builtins(scope.plan), scope.triggers, scope.crashes, finding.choices
    )
    return msgspec.json.format(msgspec.json.encode(path), indent=2) + b"\n"


def read_path(text: str, source: str) -> tuple[Scope, tuple[str, ...]]:
    """Read the file of a finding; raises UsageProblem with what is wrong."""
    path = convert(parse_json(text, source), ChosenPath, source)
    if path.version != _VERSION:
        raise UsageProblem(f"{source}: version is {path.version}, and only {_VERSION} can be read")
    plan = filled(plan_from(path.plan, source, "plan"))
    return Scope(path.scope, "a finding", plan, path.triggers, path.crashes), path.choices


@contextlib.contextmanager
def prepared(scope: Scope) -> Iterator[PreparedScope]:
    """Make a scope's world, ready to be searched or walked; it is released at the end."""
    views = temporary_work_directory("views", in_memory=True)
    with planted(scope.plan), no_collection(), views as working_root:
        order = ChoosingOrder()
        trial = SimulatedTrial(scope.plan, Nemesis(()), None, working_root, order=order)
        model = SearchedWorld(trial, order, scope.triggers, scope.crashes)
        try:
            yield PreparedScope(scope, model)
        finally:
            model.release()
            forget()


class PreparedScope:
    """A scope's world, ready to be searched, with the judges of its ends."""

    def __init__(self, scope: Scope, model: SearchedWorld) -> None:
        self.name = scope.name
        self._scope = scope
        self._system = ReferenceSimulated()
        self._checkers: dict[FilledPlan, tuple[Checker, ...]] = {}
        self.model = model

    def judge(self, path: Sequence[Step]) -> ScopeFinding | None:
        """Judge the end to which a path has brought the model; None: it is VALID."""
        root = self.model.root
        faults = () if root.fault is None else (ScheduledFault(root.fault, At(0)),)
        plan: FilledPlan = msgspec.structs.replace(self._scope.plan, faults=faults)
        choices = tuple(map(str, path))
        if root.broken is not None:
            return _finding(not_run(root.broken, plan), choices)
        if plan not in self._checkers:
            self._checkers[plan] = checkers_of(plan, self._system)
        in_time = self.model.world.scheduler.stopped and not self.model.world.scheduler.timed_out
        outcome = root.trial.outcome(in_time)
        nemesis = root.crash if root.crash is not None else Nemesis(())
        lines = outcome.history.operations
        before, after = lines[: root.lines_before], lines[root.lines_before :]
        merged = (*before, *nemesis.operations(), *after)
        numbered = tuple(msgspec.structs.replace(line, index=index) for index, line in enumerate(merged))
        history = msgspec.structs.replace(outcome.history, operations=numbered)
        checkers = self._checkers[plan]
        verdict, findings, _ = judged(plan, self._system, nemesis, outcome, history, checkers)
        return None if verdict is Verdict.VALID else _finding(findings[0], choices, verdict)


def _finding(finding: Finding, choices: tuple[str, ...], verdict: Verdict | None = None) -> ScopeFinding:
    worst = finding.verdict if verdict is None else verdict
    return ScopeFinding(worst, finding.checker, finding.clauses, finding.summary, choices)


def planted_in(scope: Scope, bug: str) -> Scope:
    """Return a scope with a planted bug."""
    return Scope(
        scope.name,
        scope.about,
        msgspec.structs.replace(scope.plan, mutant=bug),
        scope.triggers,
        scope.crashes,
    )
