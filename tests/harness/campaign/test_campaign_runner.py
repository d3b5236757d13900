"""Campaigns on a fake system: what is kept, counted and shrunk, and what survives an interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.failures import shrink_failure
from barrier_tck.harness.campaign.interrupts import Interrupts
from barrier_tck.harness.campaign.replay import first_difference, replay, sources_of
from barrier_tck.harness.campaign.runner import VALID_KEPT, run_campaign
from barrier_tck.harness.campaign.tried_plans import without_unreachable_faults
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.faults_fired import FaultsFired
from barrier_tck.harness.oracle.judging import compose
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan, to_json
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import NondeterminismError, OperatingError, UsageProblem
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import TrialOverran, run_trial
from tests.harness.fake_system import TABLE, CrashingChecker, FakeSystem, TableChecker, interrupting, slowly


def configuration(**values: Any) -> CampaignConfiguration:
    return configuration_from({"trials": 12, "seed": 3} | values, "test")


def invalid_with_faults(plan: TrialPlan) -> Verdict:
    return Verdict.INVALID if len(plan.faults) >= 2 else Verdict.VALID


def test_a_valid_campaign_keeps_a_line_of_every_trial_and_the_first_valid_ones_in_full(
    tmp_path: Path,
) -> None:
    # Not drawn: the fake system cannot suffer each fault.
    kill = ScheduledFault(KillWorker("source[0]"), After(ProtocolPoint.ATTEMPT_STARTED))
    configured = configuration(trial=[{"repeat": 12, "faults": [msgspec.to_builtins(kill)]}])
    record = run_campaign(configured, FakeSystem(), tmp_path / "run", (*TABLE, FaultsFired()))
    run = open_run(tmp_path / "run")
    assert (record.verdict, record.valid, record.interrupted) == (Verdict.VALID, 12, False)
    assert [trial.trial for trial in tuple(run.rows())] == list(range(12))
    assert run.kept == tuple(range(VALID_KEPT)) and run.campaign == record
    assert record.faults_fired == sum(trial.faults_planned for trial in tuple(run.rows())) > 0


def test_failing_trials_are_kept_listed_and_shrunk_to_plans_that_fail_likewise(tmp_path: Path) -> None:
    system = FakeSystem(invalid_with_faults)
    record = run_campaign(configuration(), system, tmp_path / "run", TABLE)
    assert record.verdict is Verdict.INVALID and record.failing and len(record.shrunk) == len(record.groups)
    assert set(record.failing) <= set(open_run(tmp_path / "run").kept)
    for name in record.shrunk.values():
        plan = read_plan(tmp_path / "run" / name)
        assert len(plan.faults) == 2
        assert run_trial(plan, system, tmp_path, TABLE).verdict is Verdict.INVALID


class TooMany:
    """Calls a plan with too many of something INVALID, for a clause of its own."""

    def __init__(self, name: str, clause: str, count: Callable[[TrialPlan], int], most: int) -> None:
        self.name = name
        self.clauses = (clause,)
        self._count = count
        self._most = most

    def check(self, context: TrialContext) -> Finding:
        verdict = Verdict.INVALID if self._count(context.plan) > self._most else Verdict.VALID
        return Finding(self.name, self.clauses, verdict, "counted")


OTHERWISE = TooMany("batches", "BAR-1", lambda plan: plan.workload.batches, 0)
FAULTS_OF_PLAN = TooMany("faults", "REC-1", lambda plan: len(plan.faults), 1)
SUBTASKS_OF_PLAN = TooMany("faults", "ALN-2", lambda plan: len(plan.job.subtasks), 3)


@pytest.mark.parametrize(
    ("checkers", "clause", "left"),
    [
        ((FAULTS_OF_PLAN, OTHERWISE), None, (2, 0)),
        ((OTHERWISE, FAULTS_OF_PLAN), None, (0, 1)),
        ((OTHERWISE, FAULTS_OF_PLAN), "REC-1", (2, 0)),
        ((SUBTASKS_OF_PLAN, FAULTS_OF_PLAN), "REC-1", (2, 0)),
    ],
    ids=["the first checker", "another first checker", "a clause", "a clause of two checkers of one name"],
)
def test_a_failure_is_shrunk_to_the_smallest_plan_that_fails_in_the_same_way(
    checkers: tuple[TooMany, ...], clause: str | None, left: tuple[int, int], tmp_path: Path
) -> None:
    """Other failures, which may need less, do not count: the smallest plan must show what the trial showed."""
    kills = tuple(ScheduledFault(KillWorker("totals[0]"), At(5 + number)) for number in range(3))
    plan = TrialPlan(workload=WorkloadPlan(batches=6), faults=kills)
    system = FakeSystem()
    record = run_trial(plan, system, tmp_path, checkers)
    smallest = shrink_failure(record, system, tmp_path, checkers, clause=clause)
    assert smallest is not None
    assert (len(smallest.plan.faults), smallest.plan.workload.batches) == left


def test_a_trial_that_could_not_run_is_unknown_and_the_campaign_goes_on(tmp_path: Path) -> None:
    listed = configuration(trial=[{"repeat": 3}], trials=3)
    record = run_campaign(listed, FakeSystem(raises={4: OperatingError("no disk")}), tmp_path / "run", TABLE)
    assert (record.valid, record.unknown, record.verdict) == (2, 1, Verdict.UNKNOWN)
    assert record.failing == (1,)


class Logging(FakeSystem):
    """Has logs which, on a full disk, cannot be kept."""

    full = False

    def keep_logs(self, directory: Path) -> None:
        if self.full:
            raise OSError("no space left")
        directory.mkdir(exist_ok=True)
        (directory / "00-driver.log").write_text("it died")


def test_the_logs_of_a_system_are_kept_with_trials_that_are_not_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    verdicts = {3: Verdict.INVALID, 5: Verdict.VALID}
    listed = configuration(trial=[{"repeat": 3}], trials=3)
    system = Logging(lambda plan: verdicts[plan.seed], raises={4: OperatingError("no disk")})
    run_campaign(listed, system, tmp_path / "run", TABLE)
    kept = sorted(path.relative_to(tmp_path / "run" / "trials") for path in tmp_path.rglob("*.log"))
    assert kept == [Path("00000/logs/00-driver.log"), Path("00001/logs/00-driver.log")]
    system.full = True
    assert run_campaign(listed, system, tmp_path / "full", TABLE).trials == 3
    assert "the logs of trial 1 could not be kept: no space left" in caplog.text


def test_a_usage_error_in_a_trial_ends_the_campaign_and_keeps_what_was_finished(tmp_path: Path) -> None:
    listed = configuration(trial=[{"repeat": 3}], trials=3)
    with pytest.raises(UsageProblem, match="bad plan"):
        run_campaign(listed, FakeSystem(raises={4: UsageProblem("bad plan")}), tmp_path / "run", TABLE)
    campaign = open_run(tmp_path / "run").campaign
    assert campaign.interrupted and campaign.valid == 1


def test_ctrl_c_abandons_the_running_trial_and_keeps_the_finished_ones(tmp_path: Path) -> None:
    record = run_campaign(configuration(), FakeSystem(interrupting(after=4)), tmp_path / "run", TABLE)
    run = open_run(tmp_path / "run")
    assert record.interrupted and record.trials == 4
    assert len(tuple(run.rows())) == 4 and run.kept == (0, 1, 2, 3)


def test_a_signal_between_trials_waits_until_the_books_are_written() -> None:
    interrupts = Interrupts()
    interrupts.on_signal(15, None)
    with pytest.raises(KeyboardInterrupt), interrupts.during_trial():
        pytest.fail("no trial may begin")


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    interrupts, cleaned = Interrupts(), []

    def trial() -> None:
        with interrupts.during_trial():
            try:
                interrupts.on_signal(15, None)
            finally:
                interrupts.on_signal(15, None)  # what cleans up here is not torn
                cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        trial()
    assert cleaned


def test_a_time_budget_ends_a_campaign(tmp_path: Path) -> None:
    timed = configuration_from({"budget": "50ms"}, "test")
    record = run_campaign(timed, FakeSystem(slowly(0.02)), tmp_path / "run", TABLE)
    assert 1 <= record.trials <= 4


def test_a_campaign_in_which_no_planned_fault_fired_is_unknown(tmp_path: Path) -> None:
    record = run_campaign(configuration(), FakeSystem(passes_points=False), tmp_path / "run", TABLE)
    assert record.valid == 12 and record.verdict is Verdict.UNKNOWN


def test_a_fault_that_did_not_fire_makes_its_trial_unknown(tmp_path: Path) -> None:
    system = FakeSystem(passes_points=False)
    record = run_campaign(configuration(), system, tmp_path / "run", (*TABLE, FaultsFired()))
    assert record.unknown > 0 and record.invalid == 0


def finished(verdict: str) -> History:
    return History((), End.FINISHED, Reason.FINISHED, "", output=({"verdict": verdict},))


def test_composition_takes_the_worst_and_a_crashed_checker_is_unknown() -> None:
    valid = TrialContext(TrialPlan(), finished("valid"))
    verdict, findings = compose((TableChecker(), CrashingChecker()), valid)
    assert verdict is Verdict.UNKNOWN and "nothing to divide by" in findings[1].summary
    assert "seed" in findings[1].details["plan"]
    invalid = TrialContext(TrialPlan(), finished("invalid"))
    assert compose((CrashingChecker(), TableChecker()), invalid)[0] is Verdict.INVALID
    assert compose((), valid)[0] is Verdict.UNKNOWN


def test_a_run_directory_replays_its_failing_trials_to_the_same_verdict_and_trace(tmp_path: Path) -> None:
    system = FakeSystem(invalid_with_faults)
    record = run_campaign(configuration(), system, tmp_path / "run", TABLE)
    sources = sources_of(tmp_path / "run")
    assert len(sources) == len(record.failing)
    for source in sources:
        replayed = replay(source, system, TABLE)
        assert replayed.same_verdict and replayed.record.verdict is Verdict.INVALID


def test_replay_in_a_nondeterministic_simulator_names_the_first_differing_line(tmp_path: Path) -> None:
    run_campaign(configuration(trials=1), FakeSystem(flaky=True), tmp_path / "run", TABLE)
    (source,) = sources_of(tmp_path / "run")
    flaky = FakeSystem(flaky=True)
    flaky.runs = 5
    with pytest.raises(NondeterminismError, match="line 3 is 'run 6', there it is 'run 1'"):
        replay(source, flaky, TABLE)
    (bare,) = sources_of(tmp_path / "run" / "trials" / "00000" / "plan.json")
    with pytest.raises(NondeterminismError):
        replay(bare, flaky, TABLE)


class EndedInRun(FakeSystem):
    """A system one of whose runs is ended at its limit of wall time."""

    def __init__(self, ended: int) -> None:
        super().__init__()
        self._ended = ended

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        outcome = super().run(plan, nemesis, directory)
        if self.runs == self._ended:
            raise TrialOverran
        return outcome


@pytest.mark.parametrize("ended", [1, 2, 3])
def test_a_run_that_was_ended_at_its_limit_is_compared_with_no_other(tmp_path: Path, ended: int) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    (source,) = sources_of(plan)
    replayed = replay(source, EndedInRun(ended), TABLE)
    assert replayed.exact is (ended == 3), "each is run twice"
    assert replayed.record.verdict is (Verdict.UNKNOWN if ended == 1 else Verdict.VALID)


def test_the_first_difference_may_be_the_end_of_a_trace() -> None:
    assert "line 2 is '(end)', there it is 'b'" in first_difference(("a",), ("a", "b"))


AT_LEAST_ONCE = {
    "trials": 6,
    "profile": "at-least-once",
    "job": {"shape": "line", "widths": {"source": 2, "totals": 2}},
    "workload": {"batches": 12, "batch_records": 2, "records_per_second": 600, "start_offset": 0},
}


def of_duplicates(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings about duplicates; drawn jobs may owe other things too."""
    return [finding for finding in findings if "ALO-2" in finding.clauses]


def test_a_campaign_in_at_least_once_mode_counts_its_duplicates(tmp_path: Path) -> None:
    record = run_campaign(configuration(**AT_LEAST_ONCE), ReferenceSimulated(), tmp_path / "run")
    [finding] = of_duplicates(record.findings)
    assert (record.verdict, finding.verdict, finding.clauses) == (Verdict.VALID, Verdict.VALID, ("ALO-2",))
    assert finding.counts["duplicates"] > 0


def test_a_campaign_in_at_least_once_mode_that_saw_no_duplicate_is_unknown(tmp_path: Path) -> None:
    calm = AT_LEAST_ONCE | {
        "job": {"shape": "line", "widths": {"source": 2, "totals": 1, "sink": 1}},
        "faults": {"per_trial": [0, 0]},
    }
    record = run_campaign(configuration(**calm), ReferenceSimulated(), tmp_path / "run")
    assert (record.valid, record.verdict) == (6, Verdict.UNKNOWN)
    [finding] = of_duplicates(open_run(tmp_path / "run").campaign.findings)
    assert (finding.verdict, finding.counts["duplicates"]) == (Verdict.UNKNOWN, 0)
    assert "no duplicate was seen in the 6 trials in at-least-once mode" in finding.summary


def test_a_campaign_in_exactly_once_mode_owes_no_duplicates(tmp_path: Path) -> None:
    record = run_campaign(configuration(trials=2), ReferenceSimulated(), tmp_path / "run")
    assert record.findings == ()


def test_a_drawn_fault_whose_moment_never_came_is_dropped_from_its_plan_but_a_written_one_is_not() -> None:
    fault = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.RESTORED, "totals[0]"))
    plan = TrialPlan(faults=(fault,))
    record = run_trial(plan, ReferenceSimulated(), Path())
    assert record.verdict is Verdict.UNKNOWN
    fitted = without_unreachable_faults(plan, record)
    assert fitted is not None
    assert fitted.faults == ()
    assert "1 drawn fault" in fitted.note
    assert without_unreachable_faults(fitted, run_trial(fitted, ReferenceSimulated(), Path())) is None


@pytest.mark.parametrize("outcome", ["fired", "skipped", "unclear"])
def test_a_drawn_fault_that_came_due_is_never_dropped_whatever_became_of_it(outcome: str) -> None:
    """What had no target or could not be proved is a finding about the system or the nemesis (CAM-3)."""
    late = After(ProtocolPoint.RESTORED, "totals[0]")
    plan = TrialPlan(faults=tuple(ScheduledFault(KillWorker("totals[0]"), late) for _ in range(2)))
    record = run_trial(plan, ReferenceSimulated(), Path())
    came = msgspec.structs.replace(record.faults[0], outcome=outcome)
    fitted = without_unreachable_faults(
        plan, msgspec.structs.replace(record, faults=(came, record.faults[1]))
    )
    assert fitted is not None and len(fitted.faults) == 1


def test_a_job_without_a_shuffle_owes_no_duplicates_in_either_mode(tmp_path: Path) -> None:
    alone = AT_LEAST_ONCE | {"job": {"widths": {"source": 1, "totals": 1, "sink": 1}}}
    record = run_campaign(configuration(**alone), ReferenceSimulated(), tmp_path / "run")
    assert (record.verdict, of_duplicates(record.findings)) == (Verdict.VALID, [])


@pytest.mark.nightly
def test_duplicates_on_drawn_graphs_are_counted_too(tmp_path: Path) -> None:
    graphs = {"trials": 40, "profile": "graphs", "checkpoints": {"mode": "at_least_once"}}
    record = run_campaign(configuration(**graphs), ReferenceSimulated(), tmp_path / "run")
    [finding] = of_duplicates(record.findings)
    assert (record.verdict, finding.verdict) == (Verdict.VALID, Verdict.VALID)
    assert finding.counts["duplicates"] > 0
