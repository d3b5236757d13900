"""Control trials: some plans of a campaign run again with recovery broken on purpose, and must then be INVALID.

A campaign whose trials restore nothing is VALID whatever recovery does. So it is computed from the history of each
trial which ways to break recovery would have made the trial INVALID (``harness.oracle.broken_recoveries``). A sample of
those trials runs again, broken in each of these ways in turn. If a control is not INVALID, although its own history
shows that the break had to be visible, the campaign is UNKNOWN, and the finding names the plan and the reason. If a
control runs differently from its trial, it may show nothing; the record notes this. A campaign is UNKNOWN, too, if many
of its trials recovered but none of them could have violated a clause of recovery (decision 0027).
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from barrier_tck.harness.campaign.chosen_clauses import judges_of
from barrier_tck.harness.campaign.failures import failed_checker
from barrier_tck.harness.campaign.interrupts import Interrupts
from barrier_tck.harness.campaign.tried_plans import RunOnce
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.control_records import BreakRecord, ControlRecord, ControlsRecord
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.run_directory import SCRATCH, RunDirectory
from barrier_tck.harness.record.verdict import EXERCISED, Finding, Verdict
from barrier_tck.harness.system.broken_recovery import BrokenRecovery, Vacuity
from barrier_tck.harness.system.optional_interfaces import CanBeBroken
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled

ONE_IN = 20
"""A simulated campaign has one control for this many trials."""
SIMULATED_MAX = 40
"""The largest number of controls of a simulated campaign."""
ONE_IN_REAL, REAL_MAX = 16, 2
"""The same numbers for systems on which a trial takes seconds."""

RECOVERED_MIN_DRAWN, RECOVERED_MIN_LISTED = 10, 5
"""If at least this many trials recovered and none of them used what it restored, this is not chance: in campaigns whose
plans are drawn, and in those whose plans are listed. In six of ten recoveries, the faults of plans that are drawn from
``standard`` come too early or too late; those of a listed plan come where its author aimed them.
"""

TRIES_MAX = 3
"""The most plans that are tried for one control: in real time, a control may run differently from its trial."""

CANDIDATES_MAX = 40
"""The most plans that are kept for each way to break recovery."""


def controls_by_default(trials: int, world: str) -> int:
    """Return how many controls a campaign with this many trials has by default; they add less than a tenth."""
    if world == "simulated":
        return min(SIMULATED_MAX, (trials + ONE_IN // 2) // ONE_IN)
    return min(REAL_MAX, (trials + ONE_IN_REAL // 2) // ONE_IN_REAL)


@dataclass(frozen=True, slots=True)
class _Candidate:
    trial: int
    plan: TrialPlan


class _Sample:
    """A reservoir sample of the candidates that were offered: uniform, of bounded size, and determined by the seed."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"controls/{seed}/{name}")
        self._offered = 0
        self._kept: list[_Candidate] = []

    def offer(self, candidate: _Candidate) -> None:
        self._offered += 1
        if len(self._kept) < CANDIDATES_MAX:
            self._kept.append(candidate)
        elif (place := self._random.randrange(self._offered)) < CANDIDATES_MAX:
            self._kept[place] = candidate

    def shuffled(self) -> list[_Candidate]:
        """Return the candidates in the order in which they are to be tried."""
        return self._random.sample(self._kept, len(self._kept))


@dataclass
class Controls:
    """The controls of one campaign: it samples the campaign's trials, runs the controls, and gives their finding."""

    system: SystemUnderTest
    seed: int
    wanted: int | None = None
    """How many controls are to run; None: as many as ``controls_by_default`` says."""
    recovered_min: int = RECOVERED_MIN_DRAWN
    """If this many trials recovered and no clause of recovery could have been violated in any of them, the campaign is
    UNKNOWN."""
    only: tuple[str, ...] = ()
    """The only clauses for which the trials and the controls of the campaign are judged; empty: all clauses."""
    trials: int = 0
    invalid: int = 0
    """Invalid trials. The campaign runs no control after one: its verdict is settled."""
    ran: list[ControlRecord] = field(default_factory=list)
    _vacuity: dict[BrokenRecovery, Counter[str]] = field(init=False)
    _could_be_violated: Counter[str] = field(default_factory=Counter)
    _samples: dict[BrokenRecovery, _Sample] = field(init=False)

    def __post_init__(self) -> None:
        self._vacuity = {how: Counter() for how in BrokenRecovery}
        self._samples = {how: _Sample(self.seed, how.value) for how in BrokenRecovery}

    def add(self, trial: TrialSummary, plan: TrialPlan) -> None:
        """Count a trial and the clauses that it could have violated; if it is VALID, offer its plan for controls."""
        self.trials += 1
        self.invalid += trial.verdict is Verdict.INVALID
        exercised = []
        for how in BrokenRecovery:
            reason = trial.vacuity_reasons.get(how.value, Vacuity.NOT_COMPARED.value)
            if not reason and not self._judges(how):
                reason = Vacuity.NOT_COMPARED.value
            self._vacuity[how][reason] += 1
            if not reason:
                exercised.append(how)
                if trial.verdict is Verdict.VALID:
                    self._samples[how].offer(_Candidate(trial.trial, plan))
        clauses = [clause for how in exercised for clause in how.clauses]
        clauses += [
            entry for finding in trial.findings if finding.counts.get(EXERCISED) for entry in finding.clauses
        ]
        for clause in dict.fromkeys(clauses):
            self._could_be_violated[clause] += 1

    def _judges(self, how: BrokenRecovery) -> bool:
        return _judges(how, self.only)

    @property
    def number(self) -> int:
        """Return how many controls are to run."""
        if not isinstance(self.system, CanBeBroken):
            return 0
        return controls_by_default(self.trials, self.system.world) if self.wanted is None else self.wanted

    def run(
        self,
        directory: RunDirectory,
        checkers: Sequence[Checker] | None,
        interrupts: Interrupts,
        begins: Callable[[str], None] = lambda _: None,
        once: RunOnce | None = None,
    ) -> None:
        """Run the controls, each kind of break in turn; raises KeyboardInterrupt if it is interrupted.

        ``begins`` is told of each run before it begins. ``once`` runs them elsewhere, and the checkers must be the
        standard ones then.
        """
        for place, tries in enumerate(self._in_turn(), start=1):
            for how, candidate, broken in tries:
                begins(f"{place} of {self.number}: trial {candidate.trial} again, in which {how.description}")
                with interrupts.during_trial():
                    control = self._run_one(how, candidate.trial, broken, directory, checkers, once)
                self.ran.append(control)
                if control.counts:
                    break

    def _in_turn(self) -> Iterator[Iterator[tuple[BrokenRecovery, _Candidate, TrialPlan]]]:
        """Yield for each control the plans to try; kinds of break without further plans drop out."""
        left = {how: self._broken(how) for how in BrokenRecovery}
        turn = [how for how in BrokenRecovery if left[how]]
        for _ in range(self.number):
            if not turn:
                return
            how = turn.pop(0)
            yield (left[how].pop(0) for _ in range(min(TRIES_MAX, len(left[how]))))
            if left[how]:
                turn.append(how)

    def _broken(self, how: BrokenRecovery) -> list[tuple[BrokenRecovery, _Candidate, TrialPlan]]:
        system = self.system
        if not isinstance(system, CanBeBroken):
            return []
        candidates = (
            (candidate, system.broken(candidate.plan, how)) for candidate in self._samples[how].shuffled()
        )
        return [(how, entry, plan) for entry, plan in candidates if plan is not None]

    def _run_one(
        self,
        how: BrokenRecovery,
        trial: int,
        plan: TrialPlan,
        directory: RunDirectory,
        checkers: Sequence[Checker] | None,
        once: RunOnce | None,
    ) -> ControlRecord:
        note = f"control: trial {trial}, in which {how.description}. {plan.note}".strip()
        plan = msgspec.structs.replace(plan, note=note)
        name = f"controls/{trial:05d}-{how.value}.json"
        directory.write_plan(name, plan)
        if self.only and checkers is None:  # only checkers that judge the trials may find a control INVALID
            checkers = judges_of(filled(plan), self.system, self.only)
        with tempfile.TemporaryDirectory(dir=directory.path, prefix=SCRATCH) as scratch:
            if once is not None:
                record = once(plan, Path(scratch), self.only)
            else:
                record = run_trial(plan, self.system, Path(scratch), checkers)
        if record.verdict is Verdict.INVALID:
            return ControlRecord(how.value, trial, name, record.verdict, failed_checker(record) or "")
        reason = record.vacuity_reasons.get(how.value, Vacuity.NOT_COMPARED.value)
        described = Vacuity(reason).description if reason else "no checker saw it"
        return ControlRecord(how.value, trial, name, record.verdict, "", described, counts=not reason)

    # --- the result -------------------------------------------------------------------------------------

    @property
    def recovered(self) -> int:
        """Return in how many trials an attempt after the first reached the state running."""
        reasons = self._vacuity[BrokenRecovery.READ_AGAIN]
        return self.trials - reasons[Vacuity.NOT_RECOVERED.value] - reasons[Vacuity.NOT_REPORTED.value]

    def record(self) -> ControlsRecord:
        """Return what the campaign's record says about its controls."""
        clauses = tuple(dict.fromkeys(clause for how in BrokenRecovery for clause in how.clauses))
        unknown = tuple(clause for clause in clauses if self._is_unknown(clause))
        return ControlsRecord(
            trials=self.trials,
            recovered=self.recovered,
            breaks=tuple(self._break_record(how) for how in BrokenRecovery),
            could_be_violated={
                clause: self._could_be_violated[clause] for clause in clauses if clause not in unknown
            },
            not_reported=unknown,
            ran=tuple(self.ran),
            note=self._note(),
            possible=isinstance(self.system, CanBeBroken),
        )

    def _is_unknown(self, clause: str) -> bool:
        """Return whether it is unknown if a clause could have been violated: no trial shows that it could, and some
        trials did not report enough to decide it."""
        reasons = [self._vacuity[how] for how in BrokenRecovery if clause in how.clauses]
        return not self._could_be_violated[clause] and any(
            found[Vacuity.NOT_REPORTED.value] for found in reasons
        )

    def _break_record(self, how: BrokenRecovery) -> BreakRecord:
        reasons = {reason: trials for reason, trials in self._vacuity[how].most_common() if reason}
        described = {Vacuity(reason).description: trials for reason, trials in reasons.items()}
        return BreakRecord(how.value, how.description, how.clauses, self._vacuity[how][""], described)

    def _note(self) -> str:
        if not isinstance(self.system, CanBeBroken):
            return f"{self.system.name} cannot be broken on purpose, so there were no controls"
        if self.wanted == 0:
            return "controls were switched off"
        if not any(map(self._judges, BrokenRecovery)):
            return f"controls break no clause that is judged, which are {', '.join(self.only)}"
        if not self.number:
            return "the campaign is too short for a control; ask for some with --controls"
        if self.invalid and not self.ran:
            return "a trial is INVALID, which settles the verdict, so no control was run"
        if len(self.ran) < self.number and not self.ran:
            return "no valid trial could have shown a broken recovery, so there was no plan for a control"
        return "; ".join(unshown(self.ran))

    def finding(self) -> Finding | None:
        """Return why the campaign cannot be VALID; None if its controls are no reason against it."""
        found = finding_of(self.record(), self.wanted, self.recovered_min, self.only)
        return found and msgspec.structs.replace(found, clauses=self._clauses())

    def missed(self) -> tuple[Finding, ...]:
        """Return the finding about controls that had to be INVALID and are not; empty if there are none."""
        record = self.record()
        found = _finding(record, [*_missed(record)]) if record.possible and self.wanted != 0 else None
        return () if found is None else (msgspec.structs.replace(found, clauses=self._clauses()),)

    def _clauses(self) -> tuple[str, ...]:
        return tuple(self._could_be_violated) or BrokenRecovery.READ_AGAIN.clauses


def finding_of(
    record: ControlsRecord, wanted: int | None, recovered_min: int, only: tuple[str, ...]
) -> Finding | None:
    """Return why a campaign with these controls cannot be VALID; the other arguments are those of ``Controls``."""
    if not record.possible or wanted == 0:
        return None
    return _finding(record, [*_missed(record), *_vacuous(record, recovered_min, only)])


def _finding(record: ControlsRecord, problems: list[str]) -> Finding | None:
    if not problems:
        return None
    counts = {
        "controls": len(record.ran),
        "invalid": sum(control.verdict is Verdict.INVALID for control in record.ran),
        "recovered": record.recovered,
    }
    clauses = tuple(clause for clause, trials in record.could_be_violated.items() if trials)
    return Finding(
        "controls",
        clauses or BrokenRecovery.READ_AGAIN.clauses,
        Verdict.UNKNOWN,
        "; ".join(problems[:3]),
        counts,
        tuple(problems[:10]),
    )


def _missed(record: ControlsRecord) -> Iterator[str]:
    """Name the controls that had to be INVALID and are not."""
    for control in record.ran:
        if control.verdict is not Verdict.INVALID and control.counts:
            yield (
                f"the plan of trial {control.trial} is {control.verdict.value} although "
                f"{BrokenRecovery(control.broken).description} ({control.reason}); replay {control.plan}"
            )


def unshown(ran: Sequence[ControlRecord]) -> Iterator[str]:
    """Yield a sentence for each kind of break that no control could show, because every one of them ran differently
    from its trial."""
    for how in BrokenRecovery:
        of_kind = [control for control in ran if control.broken == how.value]
        if of_kind and not any(control.counts or control.verdict is Verdict.INVALID for control in of_kind):
            yield f"no control could show that {how.description}: {of_kind[-1].reason}"


def _vacuous(record: ControlsRecord, recovered_min: int, only: tuple[str, ...]) -> Iterator[str]:
    """Yield a reason if recovery was not tested at all."""
    how = BrokenRecovery.READ_AGAIN
    read_again = next((entry for entry in record.breaks if entry.broken == how.value), None)
    if (
        read_again is None
        or record.recovered < recovered_min
        or read_again.exercised
        or not _judges(how, only)
    ):
        return
    described = ", ".join(
        f"in {trials} of them {reason}"
        for reason, trials in read_again.vacuity.items()
        if reason != Vacuity.NOT_RECOVERED.description
    )
    yield f"{record.recovered} trials recovered, but none could have violated a clause of recovery: {described}"


def _judges(how: BrokenRecovery, only: tuple[str, ...]) -> bool:
    """Return whether a campaign judges a clause that this break violates; ``only``: what it judges, empty for all."""
    return not only or not set(only).isdisjoint(how.clauses)


def joined(records: Sequence[ControlsRecord]) -> ControlsRecord:
    """Return one record of the controls of all shards of a campaign."""
    ran = tuple(control for record in records for control in record.ran)
    could: Counter[str] = Counter()
    for record in records:
        could.update(record.could_be_violated)
    not_reported = tuple(
        clause
        for clause in dict.fromkeys(clause for record in records for clause in record.not_reported)
        if not could[clause]
    )
    clauses = dict.fromkeys(clause for how in BrokenRecovery for clause in how.clauses)
    notes = [*unshown(ran)] if ran else [*dict.fromkeys(record.note for record in records if record.note)]
    return ControlsRecord(
        trials=sum(record.trials for record in records),
        recovered=sum(record.recovered for record in records),
        breaks=tuple(map(_joined_break, zip(*(record.breaks for record in records), strict=True))),
        could_be_violated={clause: could[clause] for clause in clauses if clause not in not_reported},
        not_reported=not_reported,
        ran=ran,
        note="; ".join(notes),
        possible=all(record.possible for record in records),
    )


def _joined_break(shards: Sequence[BreakRecord]) -> BreakRecord:
    vacuity: Counter[str] = Counter()
    for shard in shards:
        vacuity.update(shard.vacuity)
    return msgspec.structs.replace(
        shards[0], exercised=sum(shard.exercised for shard in shards), vacuity=dict(vacuity.most_common())
    )
