"""Failing trials of one bug are one finding, and those of two bugs are two; grain: campaigns on a fake system."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.campaign import finding_groups
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.plan_shape import in_words, reduced_to, shape_of
from barrier_tck.harness.campaign.repeated_trials import (
    GONE_BACK_TO,
    IN_REAL_TIME,
    Effort,
    FailsAgain,
    Repeated,
)
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli.campaign_output import as_object
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import NOT_SMALLER, CampaignRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.ranking import ranked_findings
from barrier_tck.reports.write import write_reports
from tests.harness.fake_system import TABLE, FakeSystem

FAULTS = {
    "packages": {"kill": 2, "pause": 1, "delay": 1, "partition": 1, "host-loss": 1},
    "per_trial": [1, 4],
}


def ran(tmp_path: Path, system: FakeSystem, **values: Any) -> CampaignRecord:
    wanted = {"trials": 60, "seed": 3, "controls": 0, "faults": FAULTS} | values
    return run_campaign(configuration_from(wanted, "test"), system, tmp_path / "run", TABLE)


def crashes_coordinator(plan: TrialPlan) -> bool:
    return any(scheduled.fault.ends is Ends.COORDINATOR for scheduled in plan.faults)


def failing(*bugs: Callable[[TrialPlan], bool]) -> FakeSystem:
    return FakeSystem(lambda plan: Verdict.INVALID if any(bug(plan) for bug in bugs) else Verdict.VALID)


def two_faults(plan: TrialPlan) -> bool:
    return len(plan.faults) >= 2


@pytest.mark.long
def test_many_trials_of_one_bug_are_one_finding_whatever_their_faults_are(tmp_path: Path) -> None:
    record = ran(tmp_path, failing(two_faults))
    assert record.invalid >= 40
    (group,) = record.groups
    assert (group.clause, group.checker, group.trials) == ("ALN-2", "table", record.invalid)
    assert (group.shape, group.faults, group.presumed) == ("an attempt fails", 2, 0)
    assert len(read_plan(tmp_path / "run" / group.plan).faults) == 2
    assert record.shrunk == {str(group.smallest_trial): group.plan}


@pytest.mark.long
def test_they_are_one_finding_in_the_summary_in_json_and_as_the_text_of_an_issue(tmp_path: Path) -> None:
    record = ran(tmp_path, failing(two_faults))
    run = load_run(tmp_path / "run")
    (entry,) = ranked_findings(run)
    assert entry.group is not None and entry.group.trials == record.invalid
    found = as_object(run)
    (finding,) = found["findings"]
    assert (finding["trials"], finding["shape"]) == (record.invalid, "an attempt fails")
    assert found["groups"][0]["trials"] == record.invalid
    write_reports(run)
    (text,) = (tmp_path / "run" / "issues").iterdir()
    assert text.name == "01-ALN-2-table.md"
    assert f"seen in {record.invalid} trials of 60" in text.read_text()
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{record.invalid} trials fail like this" in page
    assert "Smallest plan: 2 faults; needs: an attempt fails." in page


@pytest.mark.long
def test_two_bugs_of_one_clause_and_checker_are_two_findings(tmp_path: Path) -> None:
    record = ran(tmp_path, failing(two_faults, crashes_coordinator))
    shapes = {group.shape: group.trials for group in record.groups}
    assert set(shapes) == {"an attempt fails", "a coordinator fails"}
    assert sum(shapes.values()) == record.invalid
    assert min(shapes.values()) > 1


@pytest.mark.long
def test_trials_beyond_what_is_made_smaller_are_sorted_by_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding_groups, "EXAMINED_MAX", 5)
    monkeypatch.setattr("barrier_tck.harness.campaign.runner.EXAMINED_MAX", 5)
    record = ran(tmp_path, failing(two_faults))
    smallest = record.groups[0]
    assert 0 < smallest.presumed <= smallest.trials - 5
    assert sum(group.trials for group in record.groups) == record.invalid
    assert [group.shape for group in record.groups[1:]] in ([], [NOT_SMALLER])


class Uncertain(FakeSystem):
    """Fails in every second run only, in which it would have failed."""

    world = "spark"
    capabilities = frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY}

    def __init__(self) -> None:
        self._times = 0
        super().__init__(self._verdict)

    def _verdict(self, plan: TrialPlan) -> Verdict:
        if len(plan.faults) < 2:
            return Verdict.VALID
        self._times += 1
        return Verdict.INVALID if self._times % 2 else Verdict.VALID


def test_where_runs_differ_a_plan_is_made_smaller_too_and_the_record_says_how_often_it_fails(
    tmp_path: Path,
) -> None:
    system = Uncertain()
    record = ran(tmp_path, system, trials=12)
    assert record.invalid >= 3
    (group,) = [group for group in record.groups if group.plan]
    assert (group.faults, group.shape) == (2, "an attempt fails")
    assert 1 <= group.failed_runs < group.runs == 3
    # What the shrinking may cost at most: its effort, and as many runs as the last candidate is run.
    assert system.runs <= 12 + IN_REAL_TIME.trials + 3 * len(record.groups)


def test_where_runs_differ_the_campaign_says_that_it_makes_a_plan_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barrier_tck.harness.campaign.phase_progress.LINE_EVERY_S", 0.0)
    log = io.StringIO()
    configuration = configuration_from({"trials": 4, "seed": 3, "controls": 0, "faults": FAULTS}, "test")
    run_campaign(configuration, Uncertain(), tmp_path / "run", TABLE, Console(file=log, width=200))
    lines = log.getvalue().splitlines()
    assert lines[0] == "trial 0 runs; 0 of 4 done"
    made_smaller = [line for line in lines if line.startswith("findings: the plan of trial ")]
    assert any("is made smaller, run 1 of at most 30" in line for line in made_smaller)
    assert any("run 3 of 3 of the smallest" in line for line in made_smaller)


class FailsOnceSmaller(FakeSystem):
    """A smaller plan fails when it is tried first, and never again."""

    world = "spark"
    capabilities = frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY}

    def __init__(self) -> None:
        self._seen: set[TrialPlan] = set()
        super().__init__(self._verdict)

    def _verdict(self, plan: TrialPlan) -> Verdict:
        first = plan not in self._seen
        self._seen.add(plan)
        return Verdict.INVALID if first and len(plan.faults) >= 2 else Verdict.VALID


def test_a_smaller_plan_that_does_not_fail_again_is_not_offered_as_the_smallest(tmp_path: Path) -> None:
    record = ran(tmp_path, FailsOnceSmaller(), trials=3)
    assert record.invalid
    for group in record.groups:
        assert (group.plan, group.failed_runs, group.runs) == ("", 1, 1)
        own = read_plan(tmp_path / "run" / "trials" / f"{group.smallest_trial:05d}" / "plan.json")
        assert len(own.faults) == group.faults
    assert not record.shrunk
    run = load_run(tmp_path / "run")
    assert "/trials/" in (run.replay_command(record.groups[0].smallest_trial) or "")


class FailsByChance(FakeSystem):
    """Fails with three faults or more; the first smaller plan with two fails too, once."""

    world = "spark"
    capabilities = frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY}

    def __init__(self) -> None:
        self.chance: TrialPlan | None = None
        super().__init__(self._verdict)

    def _verdict(self, plan: TrialPlan) -> Verdict:
        if len(plan.faults) >= 3:
            return Verdict.INVALID
        if len(plan.faults) == 2 and self.chance is None and self.runs > 1:
            self.chance = plan
            return Verdict.INVALID
        return Verdict.VALID


def test_if_the_smallest_plan_does_not_fail_again_a_larger_one_that_was_accepted_before_it_is_offered(
    tmp_path: Path,
) -> None:
    system = FailsByChance()
    record = ran(tmp_path, system, trials=1, seed=5, faults=FAULTS | {"per_trial": [4, 4]})
    assert record.invalid == 1
    assert system.chance is not None, "a plan with two faults was accepted"
    (group,) = record.groups
    assert (group.faults, group.failed_runs, group.runs) == (3, 3, 3)
    assert record.shrunk == {"0": group.plan}
    assert len(read_plan(tmp_path / "run" / group.plan).faults) == 3


def plans(count: int) -> list[TrialPlan]:
    """Return plans as they were accepted, the last one the smallest."""
    return [TrialPlan(seed=number) for number in range(count)]


def test_plans_that_were_accepted_are_run_again_the_newest_first() -> None:
    ran: list[int] = []

    def some(plan: TrialPlan) -> bool:
        ran.append(plan.seed)
        return plan.seed == 1 and ran.count(1) == 2

    told: list[str] = []
    found = Repeated(some, Effort(times=2, trials=100, seconds=600), told.append).newest_failing_again(
        plans(4)
    )
    assert ran == [3, 3, 2, 2, 1, 1]
    assert found == FailsAgain(plans(4)[1], 1, 2)
    assert told[0] == "run 1 of 2 of the smallest"
    assert told[2] == "run 1 of 2 of the one accepted before, as the smallest did not fail again"
    assert told[5] == "run 2 of 2 of the one accepted before, as that did not fail again"


@pytest.mark.parametrize(("trials", "plans_run"), [(100, 20), (10, 5), (0, 1 + GONE_BACK_TO)])
def test_going_back_ends_with_the_effort_but_for_a_few_plans(trials: int, plans_run: int) -> None:
    ran: list[int] = []

    def never(plan: TrialPlan) -> bool:
        ran.append(plan.seed)
        return False

    repeated = Repeated(never, Effort(times=2, trials=trials, seconds=600))
    assert repeated.newest_failing_again(plans(20)) is None
    assert len(ran) == repeated.trials == 2 * plans_run


def test_an_effort_that_is_spent_ends_the_repetitions() -> None:
    plan = TrialPlan()
    ran = 0

    def never(_: TrialPlan) -> bool:
        nonlocal ran
        ran += 1
        return False

    repeated = Repeated(never, Effort(times=3, trials=7, seconds=60))
    assert not any(repeated.fails(plan) for _ in range(10))
    assert (ran, repeated.spent) == (7, True)
    assert Repeated(never, Effort(times=3, trials=7, seconds=0)).spent
    assert Repeated(lambda _: True, Effort(3, 7, 60)).how_often(plan) == (3, 3)


@pytest.mark.long
def test_a_plan_is_reduced_to_a_shape_that_it_has(tmp_path: Path) -> None:
    record = ran(tmp_path, failing(lambda plan: len(plan.faults) >= 3), trials=40)
    plan = read_plan(tmp_path / "run" / "trials" / f"{record.failing[0]:05d}" / "plan.json")
    assert reduced_to(plan, ()) is not None
    assert shape_of(reduced_to(plan, ()) or plan) == tuple(
        name for name in shape_of(plan) if name == "a loop"
    )
    assert reduced_to(TrialPlan(), ("a coordinator fails",)) is None
    assert in_words(shape_of(TrialPlan())) == "nothing special"
