"""Runs the suite's trials: fits a plan to the system, runs it, and says all that helps when it went wrong."""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from barrier_tck.conformance.fitting import CannotBeShown, fitted
from barrier_tck.conformance.plans import profile_for
from barrier_tck.harness.campaign.tried_plans import without_unreachable_faults
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.strategies import draw_plan, trial_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json, write
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.unknown_trials import why_unknown
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.third_party import is_target
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.system.role_aims import subtask_named
from barrier_tck.harness.system.scale import scale_of
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import execute

_T = TypeVar("_T")

FEW = 5
"""If a property has at most this many generated plans, each is drawn by itself."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: its judged record, its history, and the file that repeats it."""

    record: TrialRecord
    history: History
    plan_file: Path
    job: JobView
    """What the system says of the plan's job."""
    trace: tuple[str, ...] = ()
    """Its steps, one line each, if the system has a trace (``docs/trace.md``)."""

    def subtask(self, aim: str) -> str:
        """Return what the system calls the subtask that a plan of the suite names by its role."""
        return subtask_named(aim, self.job, self.record.system)

    def finding(self, checker: str) -> Finding:
        """Return what one checker found; fails the test if it was not asked."""
        for found in self.record.findings:
            if found.checker == checker:
                return found
        raise AssertionError(f"{checker} did not judge the trial\n{explain(self)}")


def _end(record: TrialRecord) -> str:
    """Return how the job ended, and why if it says so."""
    sentence = End(record.end).sentence
    return f"{sentence}: {record.end_reason}" if record.end_reason else sentence


def explain(trial: Trial) -> str:
    """Return findings, plan and the line that repeats a trial."""
    record = trial.record
    lines = [f"verdict {record.verdict.value}: {_end(record)}"]
    for found in sorted(record.findings, key=lambda finding: -finding.verdict.severity):
        lines.append(f"  {found.verdict.value:<8}{found.checker} ({found.named_clauses}): {found.summary}")
        lines += [f"           {example}" for example in found.examples if found.verdict is not Verdict.VALID]
    lines += [
        f"  fault   {fault.label}, {fault.trigger}: {fault.outcome} {fault.reason}" for fault in record.faults
    ]
    lines += ["plan:", to_json(record.plan).rstrip()]
    plan = record.plan
    of_plan = {
        "--state-backend": plan.state_backend,
        "--checkpoint-storage": plan.checkpoints.storage,
        "--workload": plan.workload.name,
    }
    # Code that only a plan names is not run.
    named = "".join(f" {option} {name}" for option, name in of_plan.items() if is_target(name))
    lines.append(f"replay: barrier-tck replay {trial.plan_file} --system {record.opened_as}{named}")
    return "\n".join(lines)


class NothingShown(AssertionError):
    """What a test is about did not happen in its trials, and nothing wrong was seen in them.

    The test fails. On a system whose trials differ from run to run it is run again before (`Scale.tries_max`).
    """

    shows_nothing = True
    """So that ``barrier-tck conformance`` tells it from a failure."""


class NotJudged(AssertionError):
    """A checker crashed, so a trial was not judged. The test is never run again: that might hide what is wrong here."""

    shows_nothing = True


class ClausesBroken(AssertionError):
    """Checkers found that a trial broke clauses: those that their evidence breaks first."""

    def __init__(self, message: str, broken_clauses: tuple[str, ...]) -> None:
        """Fail with all that is known about the trial; ``barrier-tck conformance`` blames these clauses alone."""
        super().__init__(message)
        self.broken_clauses = broken_clauses


def assert_valid(trial: Trial) -> None:
    """Fail unless every checker reported VALID and every planned fault is shown to have fired (CAM-3)."""
    why = why_unknown(trial.record.verdict, trial.record.findings)
    if why is not None:
        raise (NothingShown if why.of_the_schedule else NotJudged)(explain(trial))
    if trial.record.verdict is Verdict.INVALID:
        wrong = [found for found in trial.record.findings if found.verdict is Verdict.INVALID]
        broken = dict.fromkeys(found.clauses[0] for found in wrong if found.clauses)
        raise ClausesBroken(explain(trial), tuple(broken))
    fired = trial.record.faults_fired
    happened(fired == len(trial.record.plan.faults), f"all faults fired, and not {fired}", trial)


def happened(condition: object, claim: str, *trials: Trial) -> None:
    """Fail with `NothingShown` unless what the test is about happened in the trials: timing may decide that.

    What must hold whatever the timing is asked with `require`, which is never asked again.
    """
    if not condition:
        raise NothingShown("\n".join([f"this did not happen: {claim}", *map(explain, trials)]))


def exactly_one(found: Sequence[_T], claim: str, trial: Trial) -> _T:
    """Return the only one of what a test is about; fail with `NothingShown` if there are more, or none."""
    happened(len(found) == 1, f"{claim}, and not {len(found)}", trial)
    return found[0]


def require(condition: object, claim: str, trial: Trial) -> None:
    """Fail with the claim and all that is known about the trial unless the condition holds."""
    if not condition:
        raise AssertionError(f"{claim}\n{explain(trial)}")


class Trials:
    """The trials of a session on one system. A plan that several tests look at is run once."""

    def __init__(
        self,
        system: SystemUnderTest,
        directory: Path,
        seed: int = 0,
        state_backend: str | None = None,
        *,
        every_fallback: bool = False,
    ) -> None:
        """Keep plans and logs below ``directory``; ``seed`` is that of generated plans.

        ``state_backend`` keeps the state of every trial, where the system uses this field; None: as the plans say.
        ``every_fallback``: the whole matrix of fallbacks of local recovery is wanted, however long trials take.
        """
        self.system = system
        self.every_fallback = every_fallback or Capability.DETERMINISTIC_REPLAY in system.capabilities
        """Whether every cell of the matrix of fallbacks is tried: asked for, or trials take no time."""
        self._state_backend = None if "state_backend" in unused_by(system) else state_backend
        self._directory = directory
        self._seed = seed
        self._scale = scale_of(system)
        self._known: dict[str, Trial] = {}
        self._runs = 0

    def run(self, plan: TrialPlan) -> Trial:
        """Run a plan as it fits the system, unless this session has; the trial may have any verdict.

        Skips the test if the system cannot run it.
        """
        try:
            own = fitted(plan, self.system)
        except CannotBeShown as reason:
            pytest.skip(str(reason))
        key = to_json(own)
        if key not in self._known:
            self._known[key] = self._run(own)
        return self._known[key]

    @property
    def tries_max(self) -> int:
        """How often a test is run at most until what it is about has happened."""
        return self._scale.tries_max

    def forget(self) -> None:
        """Run every plan anew from now on, also those that this session has run."""
        self._known.clear()

    def can(self, capability: Capability) -> bool:
        """Return whether the system declares a capability."""
        return capability in self.system.capabilities

    def several(self, plan: TrialPlan) -> tuple[Trial, ...]:
        """Run a plan under several seeds; on a real cluster, where the seed decides nothing, once."""
        seeds = range(plan.seed, plan.seed + self._scale.seeds_max)
        return tuple(self.run(msgspec.structs.replace(plan, seed=seed)) for seed in seeds)

    def valid_until(self, plan: TrialPlan, shown: Callable[[Trial], object], claim: str) -> Trial:
        """Run a plan under one seed after the other until a trial shows something, and return that trial; all of them
        must be valid. Fails with the claim if none shows it.
        """
        for seed in range(plan.seed, plan.seed + self._scale.seeds_max):
            trial = self.valid(msgspec.structs.replace(plan, seed=seed))
            if shown(trial):
                return trial
        raise NothingShown(f"in no trial {claim}\n{explain(trial)}")

    def valid(self, plan: TrialPlan) -> Trial:
        """Run a plan once and assert that the trial is valid and that its faults fired."""
        trial = self.run(plan)
        assert_valid(trial)
        return trial

    def valid_and_forgotten(self, plan: TrialPlan) -> Trial:
        """Run a plan as ``valid`` does, and keep nothing of it: for a test that runs a plan at hundreds of places."""
        trial = self.valid(plan)
        self._known = {key: known for key, known in self._known.items() if known is not trial}
        shutil.rmtree(trial.plan_file.parent)
        return trial

    def all_valid(self, plan: TrialPlan) -> tuple[Trial, ...]:
        """Run a plan under several seeds and assert that every trial is valid and that its faults fired.

        The first one that is not ends it, because what is wrong often takes long: a job that never ends, for instance.
        """
        seeds = range(plan.seed, plan.seed + self._scale.seeds_max)
        return tuple(self.valid(msgspec.structs.replace(plan, seed=seed)) for seed in seeds)

    def generated(self, profile: str, check: Callable[[Trial], None] = assert_valid) -> None:
        """Draw plans from a profile, run each and check it. The same seed draws the same plans.

        Hypothesis makes a failing plan smaller. Where each trial takes long, this would take too long. There a few
        plans are drawn one by one, because Hypothesis would first try the simplest plan.
        """
        drawn_from = profile_for(profile, self.system)
        unused = unused_by(self.system)
        if profile == "at-least-once" and "checkpoints.mode" in unused:
            pytest.skip(f"{self.system.name} does not use: checkpoints.mode")
        if drawn_from.faults.number != (0, 0) and not targets_of(self.system):
            pytest.skip(f"{self.system.name} exposes nothing that a fault could hit")
        constraints = Constraints(
            view=self.system.job,
            capabilities=self.system.capabilities,
            fit=lambda plan: without(plan, unused),
        )
        # Two profiles may lead to the same one in this world; they must not draw the same plans.
        seed = zlib.crc32(f"{self._seed} {profile}".encode())
        if self._scale.examples_max <= FEW:
            for number in range(self._scale.examples_max):
                check(self._run_drawn(draw_plan(seed + number, drawn_from, constraints)))
            return

        @hypothesis_seed(seed)
        @settings(
            max_examples=self._scale.examples_max,
            phases=(Phase.generate, Phase.shrink),
            database=None,
            deadline=None,
            suppress_health_check=tuple(HealthCheck),
        )
        @given(trial_plans(drawn_from, constraints))
        def holds(plan: TrialPlan) -> None:
            check(self._run_drawn(plan))

        holds()

    def _run_drawn(self, plan: TrialPlan) -> Trial:
        """Run a drawn plan; if a fault found its target dead already, or its moment never came, again without it.

        At least one fault must have struck: a system that nothing strikes shows nothing.
        """
        trial = self._run(plan)
        smaller = without_unreachable_faults(plan, trial.record)
        return self._run(smaller) if smaller is not None and smaller.faults else trial

    def _run(self, plan: TrialPlan) -> Trial:
        if self._state_backend is not None:
            plan = msgspec.structs.replace(plan, state_backend=self._state_backend)
        check_plan(plan, self.system)
        name = hashlib.sha256(to_json(plan).encode()).hexdigest()[:12]
        self._runs += 1
        # A drawn plan may be run again, and the directory of a trial belongs to it alone.
        directory = self._directory / f"{name}-{self._runs}"
        directory.mkdir()
        plan_file = directory / "plan.json"
        write(plan, plan_file)
        result = execute(plan, self.system, directory)
        if result.history is None:
            raise AssertionError(f"the system could not run the plan {plan_file}: {result.record.end_reason}")
        job = self.system.job(result.record.plan)
        return Trial(result.record, result.history, plan_file, job, result.trace)
