"""What a campaign takes from a store of plans and gives to it.

Plans that failed are its first trials, and behind them a few that reached what no others had. They are written into the
run directory before the first of them runs, so that the campaign can be resumed whatever becomes of the store. A plan
that fails is stored as soon as its trial is over, and is replaced by the smallest plan of its finding in the end; one
that reached something new is stored a little later.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from barrier_tck.harness.campaign.finding_groups import Group
from barrier_tck.harness.campaign.novelty import reached_by
from barrier_tck.harness.campaign.plan_shape import in_words, shape_of
from barrier_tck.harness.campaign.plan_store.store import (
    NEW_FIRST_IN_TIME,
    NEW_FIRST_MAX,
    NEW_FIRST_SHARE,
    FoundPlan,
    PlanStore,
)
from barrier_tck.harness.campaign.plan_store.stored_plan import (
    KeptBecause,
    Shown,
    StoredPlan,
    failed_plan,
    new_plan,
    stored_plan_of,
)
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.records import (
    NOT_SMALLER,
    PassingNow,
    StoreRecord,
    TrialRecord,
    TrialSummary,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.role_aims import resolved
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.workloads.workload_names import filled

TRIED_FIRST = "tried_first.jsonl"
"""The file of a run directory with the stored plans that are its first trials."""

FAILED_AT_ONCE_MAX = 20
"""How many plans of failing trials are stored as they are, before those of a campaign are grouped."""

NEW_TOGETHER = 50
"""How many plans that reached something new are written together."""

NEW_MAX = 5_000
"""How many of these one campaign stores at the most."""


class _Line(msgspec.Struct, frozen=True):
    """One line of ``tried_first.jsonl``."""

    name: str
    entry: StoredPlan


class CampaignMemory:
    """The store, as one campaign uses it; without a store nothing is kept, and nothing is tried first."""

    def __init__(self, store: PlanStore | None, system: SystemUnderTest, only: tuple[str, ...] = ()) -> None:
        """``only``: the clauses for which trials are judged; plans that broke others would seem to pass."""
        self._store = store
        self._system = system
        self._name = reference_of(system)
        self._only = only
        self._first: tuple[FoundPlan, ...] = ()
        self._known: dict[str, None] | None = None
        self._new: list[StoredPlan] = []
        self._failed: dict[int, StoredPlan] = {}
        """Trial -> its plan, stored as it is."""
        self._stored_failed: dict[str, None] = {}
        self._stored_new = 0
        self._passing: list[PassingNow] = []
        self._resumed = False

    @property
    def tried_first(self) -> int:
        """Return how many trials of the campaign come from the store: the first ones."""
        return len(self._first)

    def begin(self, run_directory: Path, trials: int | None) -> None:
        """Choose the plans that are tried first, and write them down.

        ``trials``: how many the campaign is to have besides; None if it has a time instead.
        """
        if self._store is None:
            return
        first = [one for one in self._store.failed(self._name) if self._is_judged(one)]
        if not self._only:
            wanted = NEW_FIRST_IN_TIME if trials is None else min(NEW_FIRST_MAX, trials // NEW_FIRST_SHARE)
            first += self._store.reaching_most(self._name, wanted)
        self._first = tuple(one for one in first if self._can_run(one))
        if self._first:
            lines = [msgspec.json.encode(_Line(one.name, one.entry)) + b"\n" for one in self._first]
            write_atomically(run_directory / TRIED_FIRST, b"".join(lines))

    def take_over(self, run_directory: Path, before: StoreRecord | None) -> None:
        """Go on as an interrupted campaign would have gone on. Raises UsageProblem if its file cannot be read."""
        path = run_directory / TRIED_FIRST
        if path.is_file():
            found = []
            for number, line in enumerate(path.read_bytes().splitlines(), start=1):
                source = f"{path}, line {number}"
                try:
                    raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                    name = msgspec.json.decode(raw["name"], type=str)
                except (msgspec.MsgspecError, KeyError) as error:
                    raise UsageProblem(f"{source} is no stored plan: {error}") from error
                entry = stored_plan_of(bytes(raw["entry"]), source)
                found.append(FoundPlan(name, entry, entry.trial_plan(source)))
            self._first = tuple(found)
        self._resumed = True
        if before is not None:
            self._passing = list(before.passing_now)

    def plans(self) -> tuple[FilledPlan, ...]:
        """Return the plans that are tried first."""
        return tuple(
            filled(resolved(one.plan, self._system.job(one.plan), self._system.name)) for one in self._first
        )

    def take(self, record: TrialRecord, summary: TrialSummary) -> None:
        """Learn from a finished trial."""
        if self._store is None:
            return
        if self._failed_before(record.trial):
            self._again(self._first[record.trial], record)
        elif record.verdict is Verdict.INVALID:
            self._keep_at_once(record)
        if record.verdict is Verdict.VALID:
            self._keep_if_new(record, summary)

    def remember(self, trial: TrialSummary, plan: TrialPlan) -> None:
        """Know a trial of an interrupted campaign: one that fails, whose plan may be stored as it is, or one of a
        stored plan that passes, of which a process that was killed could say nothing.
        """
        if self._store is None:
            return
        if self._failed_before(trial.trial):
            if trial.verdict is Verdict.VALID and self._certain:
                self._note_passing(self._first[trial.trial], trial.trial)
        elif trial.verdict is Verdict.INVALID and len(self._failed) < FAILED_AT_ONCE_MAX:
            entry = failed_plan(plan, self._name, Shown("", "", ""))
            self._failed[trial.trial] = entry
            self._stored_failed[entry.name] = None

    def finish(self, groups: Iterable[Group]) -> None:
        """Store the smallest plan of each finding, and remove the plans that it stands for."""
        if self._store is None:
            return
        for group in groups:
            if group.smallest is None:
                continue
            shown = Shown(group.clause, group.checker, group.shape_in_words)
            entry = failed_plan(group.smallest, self._name, shown, group.failed_runs, group.runs)
            if not self._store.keep(entry):
                continue
            self._stored_failed[entry.name] = None
            if group.shape_in_words == NOT_SMALLER:
                continue
            for number in group.numbers:
                name = self._first[number].name if self._failed_before(number) else None
                name = self._failed[number].name if number in self._failed else name
                if name not in (None, entry.name):
                    self._store.remove(KeptBecause.FAILED, str(name))
                    self._stored_failed.pop(str(name), None)

    def flush(self) -> None:
        """Write what waits to be stored."""
        waiting, self._new = self._new, []
        if self._store is not None:
            self._stored_new += sum(self._store.keep(entry) for entry in waiting)

    def record(self) -> StoreRecord | None:
        """Return what the campaign's record says of the store."""
        if self._store is None:
            return None
        failed = sum(one.entry.because is KeptBecause.FAILED for one in self._first)
        return StoreRecord(
            location=self._store.location,
            tried_first=failed,
            passing_now=tuple(self._passing),
            failed=len(self._stored_failed),
            new=self._stored_new,
            new_tried=len(self._first) - failed,
            notices=tuple(self._store.notices),
        )

    def _failed_before(self, trial: int) -> bool:
        """Return whether a trial is of a stored plan that failed."""
        return trial < len(self._first) and self._first[trial].entry.because is KeptBecause.FAILED

    def _is_judged(self, one: FoundPlan) -> bool:
        shown = one.entry.shown
        return not self._only or (shown is not None and shown.clause in self._only)

    def _can_run(self, one: FoundPlan) -> bool:
        assert self._store is not None
        try:
            check_plan(one.plan, self._system, one.name)
        except UsageProblem as problem:
            self._store.notices.append(f"a stored plan does not fit {self._system.name}: {problem}")
            return False
        return True

    def _again(self, found: FoundPlan, record: TrialRecord) -> None:
        assert self._store is not None
        if record.verdict is not Verdict.VALID:
            return
        moved = self._store.passes(found, self._certain)
        # The process that was killed may have moved it in the store already.
        if moved or (self._resumed and self._certain):
            self._note_passing(found, record.trial)

    @property
    def _certain(self) -> bool:
        """Whether runs of a plan do not differ, so that one that passes is enough."""
        return Capability.DETERMINISTIC_REPLAY in self._system.capabilities

    def _note_passing(self, found: FoundPlan, trial: int) -> None:
        shown = found.entry.shown or Shown("", "", "")
        noted = PassingNow(
            found.name, trial, shown.clause, shown.checker, shown.shape, found.entry.on_version
        )
        self._passing += [] if noted in self._passing else [noted]

    def _keep_at_once(self, record: TrialRecord) -> None:
        assert self._store is not None
        invalid = [finding for finding in record.findings if finding.verdict is Verdict.INVALID]
        if not invalid or len(self._failed) >= FAILED_AT_ONCE_MAX:
            return
        shown = Shown(invalid[0].broken, invalid[0].checker, in_words(shape_of(record.plan)))
        entry = failed_plan(record.plan, self._name, shown)
        if self._store.keep(entry):
            self._failed[record.trial] = entry
            self._stored_failed[entry.name] = None

    def _keep_if_new(self, record: TrialRecord, summary: TrialSummary) -> None:
        assert self._store is not None
        if self._known is None:
            self._known = self._store.reached(self._name)
        known = self._known
        fresh = tuple(name for name in reached_by(record, summary) if name not in known)
        if not fresh or self._stored_new + len(self._new) >= NEW_MAX:
            return
        known |= dict.fromkeys(fresh)
        self._new.append(new_plan(record.plan, self._name, fresh))
        if len(self._new) >= NEW_TOGETHER:
            self.flush()
