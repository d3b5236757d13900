"""Control trials: a campaign is VALID only if its clauses could have been violated; grain: whole simulated
campaigns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from barrier_tck.harness.campaign import controls as controls_module
from barrier_tck.harness.campaign import finding_groups
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.controls import CANDIDATES_MAX, Controls, controls_by_default
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.reading import plan_from, read_plan
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.records import CampaignRecord, summary_of
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import EXERCISED, Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.broken_recovery import BrokenRecovery, Vacuity
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.fake_system import TABLE, FakeSystem


def campaign(tmp_path: Path, system: Any = None, checkers: Any = None, **values: Any) -> CampaignRecord:
    configuration = configuration_from({"seed": 3} | values, "test")
    return run_campaign(configuration, system or ReferenceSimulated(), tmp_path / "run", checkers)


def kill(point: str, subtask: str) -> dict[str, Any]:
    return {
        "fault": {"type": "kill_worker", "subtask": "totals[0]"},
        "trigger": {"type": "after", "point": point, "subtask": subtask},
    }


@pytest.mark.nightly
def test_each_way_to_break_recovery_shows_in_the_controls_of_a_campaign(tmp_path: Path) -> None:
    record = campaign(tmp_path, trials=24, controls=4)
    assert record.verdict is Verdict.VALID, record.findings
    controls = record.controls
    assert controls is not None
    assert len(controls.ran) == 4
    assert {control.verdict for control in controls.ran} == {Verdict.INVALID}
    assert [control.broken for control in controls.ran] == list(BrokenRecovery)
    for control in controls.ran:
        plan = read_plan(tmp_path / "run" / control.plan)
        again = run_trial(plan, ReferenceSimulated(), tmp_path)
        assert again.verdict is Verdict.INVALID, control
        assert f"trial {control.trial}" in plan.note
    assert (controls.trials, controls.note) == (24, "")
    for entry in controls.breaks:
        assert 0 < entry.exercised < controls.recovered
        assert entry.exercised + sum(entry.vacuity.values()) == 24
    assert set(controls.could_be_violated) == {"SRC-1", "REC-1", "REC-2", "SNK-1"}


KILLED_TOO_EARLY = {
    "checkpoints": {"interval_ms": 40},
    "workload": {"batches": 20, "records_per_second": 200},
    "trial": [{"repeat": 12, "faults": [kill("records_processed", "totals[0]")]}],
}
INPUT_READ_FIRST = {
    "checkpoints": {"interval_ms": 60},
    "workload": {"batches": 3, "batch_records": 2},
    "trial": [{"repeat": 12, "faults": [kill("completion_notified", "sink[0]")]}],
}


@pytest.mark.parametrize(
    ("vacuous", "why"),
    [
        (KILLED_TOO_EARLY, "nothing was restored, for the faults struck before a checkpoint"),
        (INPUT_READ_FIRST, "all input had been read before what was restored"),
    ],
    ids=["kills before the first checkpoint", "input read before the first barrier"],
)
def test_a_campaign_whose_recoveries_could_not_fail_is_unknown_for_that_reason(
    vacuous: dict[str, Any], why: str, tmp_path: Path
) -> None:
    record = campaign(tmp_path, **vacuous)
    assert (record.valid, record.verdict) == (12, Verdict.UNKNOWN)
    (finding,) = record.findings
    assert record.controls is not None
    recovered = record.controls.recovered
    assert recovered >= 5
    assert finding.summary.startswith(
        f"{recovered} trials recovered, but none could have violated a clause of recovery: in {recovered} of them {why}"
    )
    assert record.controls.could_be_violated["REC-1"] == record.controls.could_be_violated["SRC-1"] == 0


@pytest.mark.long
def test_the_same_kills_in_the_midst_of_the_input_could_have_violated_clauses(tmp_path: Path) -> None:
    aimed = [{"repeat": 12, "faults": [kill("completion_notified", "sink[0]")]}]
    record = campaign(tmp_path, **KILLED_TOO_EARLY | {"trial": aimed, "controls": 2})
    assert (record.verdict, record.findings) == (Verdict.VALID, ())
    assert record.controls is not None
    assert record.controls.could_be_violated["REC-1"] == 12
    assert [control.checker for control in record.controls.ran] == ["input-reads", "snapshot-formula"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("clause", "breaks"),
    [
        ("REC-1", {"read-again", "state-dropped"}),
        ("REC-2", {"unfenced"}),
        pytest.param("SNK-1", {"committed-early"}, marks=pytest.mark.long),
        ("COO-4", set()),
    ],
)
def test_controls_of_a_campaign_for_few_clauses_break_these_and_are_judged_as_its_trials_are(
    clause: str, breaks: set[str], tmp_path: Path
) -> None:
    record = campaign(tmp_path, trials=12, controls=2, only=[clause])
    assert record.verdict is Verdict.VALID, record.findings
    judges = {
        finding.checker for trial in tuple(open_run(tmp_path / "run").rows()) for finding in trial.findings
    }
    assert record.controls is not None
    assert {control.broken for control in record.controls.ran} == breaks
    for control in record.controls.ran:
        assert (control.verdict, control.checker in judges) == (Verdict.INVALID, True), control
    could = record.controls.could_be_violated
    assert bool(could.get(clause)) == bool(breaks)
    assert (record.controls.note == "controls break no clause that is judged, which are COO-4") == (
        not breaks
    )


class DeafChecker:
    """Names every clause that controls break, and always says VALID."""

    name = "deaf"
    clauses: tuple[str, ...] = ("REC-1", "REC-2", "SRC-1", "SNK-1")

    def check(self, context: TrialContext) -> Finding:
        return Finding(self.name, self.clauses, Verdict.VALID, "how should I know")


@pytest.mark.long
def test_a_control_that_no_checker_sees_makes_the_campaign_unknown_with_its_plan(tmp_path: Path) -> None:
    record = campaign(tmp_path, checkers=(DeafChecker(),), trials=8, controls=1)
    assert (record.valid, record.verdict) == (8, Verdict.UNKNOWN)
    (finding,) = record.findings
    assert record.controls is not None
    (control,) = record.controls.ran
    assert f"replay {control.plan}" in finding.summary
    assert "no checker saw it" in finding.summary
    assert read_plan(tmp_path / "run" / control.plan).mutant == "SO-03"


@pytest.mark.long
def test_checkers_that_do_not_compare_what_is_broken_leave_a_campaign_unknown(tmp_path: Path) -> None:
    record = campaign(tmp_path, checkers=TABLE_OF_NOTHING, trials=25)
    assert record.verdict is Verdict.UNKNOWN
    assert "nothing was compared that would have differed" in record.findings[0].summary


class SilentChecker(DeafChecker):
    """Names no clause."""

    clauses = ()


TABLE_OF_NOTHING = (SilentChecker(),)


class Unbreakable(ReferenceSimulated):
    """Claims to break its recovery, but does not."""

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        return plan


@pytest.mark.long
def test_a_break_that_breaks_nothing_is_not_taken_for_a_control(tmp_path: Path) -> None:
    record = campaign(tmp_path, system=Unbreakable(), trials=8, controls=1)
    assert record.verdict is Verdict.UNKNOWN
    said = "is valid although records before the restored position are read again"
    assert any(said in finding.summary for finding in record.findings)


def test_a_system_that_cannot_be_broken_says_so(tmp_path: Path) -> None:
    record = campaign(tmp_path, system=FakeSystem(), checkers=TABLE, trials=40)
    assert record.verdict is Verdict.VALID
    assert record.controls is not None
    assert record.controls.note == "fake cannot be broken on purpose, so there were no controls"


def test_a_checker_says_itself_in_which_trials_its_clauses_could_have_been_violated() -> None:
    controls = Controls(FakeSystem(), seed=0)
    for chances in (0, 3):
        finding = Finding("output", ("SNK-1",), Verdict.VALID, "right", {EXERCISED: chances})
        trial: Any = SimpleNamespace(trial=0, verdict=Verdict.VALID, vacuity_reasons={}, findings=(finding,))
        controls.add(trial, TrialPlan())
    assert controls.record().could_be_violated == {"SRC-1": 0, "REC-1": 0, "SNK-1": 1, "REC-2": 0}


def test_controls_can_be_switched_off(tmp_path: Path) -> None:
    record = campaign(tmp_path, **KILLED_TOO_EARLY | {"controls": 0})
    assert (record.verdict, record.findings) == (Verdict.VALID, ())
    assert record.controls is not None
    assert (record.controls.ran, record.controls.note) == ((), "controls were switched off")


@pytest.mark.long
def test_an_invalid_campaign_needs_no_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_groups, "SHRUNK_MAX", 0)
    record = campaign(tmp_path, system=Broken(), trials=8, controls=2)
    assert record.verdict is Verdict.INVALID
    assert record.controls is not None and record.controls.ran == ()
    assert "INVALID, which settles the verdict" in record.controls.note


class Broken(ReferenceSimulated):
    """Reads records before a restored position again."""

    def run(self, plan: FilledPlan, nemesis: Any, directory: Path) -> Any:
        broken = super().broken(plan, BrokenRecovery.READ_AGAIN)
        assert broken is not None
        return super().run(filled(broken), nemesis, directory)


def test_controls_cost_less_than_a_tenth_of_a_simulated_campaign_and_one_or_two_trials_of_a_real_one() -> (
    None
):
    for trials in (1, 5, 10, 29, 30, 200, 2_000, 100_000):
        assert controls_by_default(trials, "simulated") <= max(trials * 0.1, 0)
    assert controls_by_default(200, "simulated") == 10
    assert [controls_by_default(trials, "spark") for trials in (1, 7, 8, 23, 24, 200)] == [0, 0, 1, 1, 2, 2]


def test_the_plans_that_are_remembered_are_an_even_sample_of_bounded_size(tmp_path: Path) -> None:
    plan = TrialPlan()
    base = run_trial(plan, FakeSystem(), tmp_path, TABLE)
    could = dict.fromkeys(map(str, BrokenRecovery), "")
    controls = Controls(ReferenceSimulated(), seed=1)
    for trial in range(10 * CANDIDATES_MAX):
        controls.add(summary_of(msgspec.structs.replace(base, trial=trial, vacuity_reasons=could)), base.plan)
    kept = [one.trial for one in controls._samples[BrokenRecovery.UNFENCED].shuffled()]
    assert len(kept) == len(set(kept)) == CANDIDATES_MAX
    assert max(kept) > 9 * CANDIDATES_MAX and min(kept) < 2 * CANDIDATES_MAX


class OtherwiseBroken(Unbreakable):
    """Runs its controls on another course: a control has no faults, so that nothing is restored."""

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        return msgspec.structs.replace(plan, faults=())


@pytest.mark.long
def test_controls_that_take_another_course_are_noted_and_blame_nobody(tmp_path: Path) -> None:
    record = campaign(tmp_path, system=OtherwiseBroken(), trials=8, controls=1)
    assert record.verdict is Verdict.VALID
    assert all(finding.verdict is Verdict.VALID for finding in record.findings)
    assert record.controls is not None
    assert [control.counts for control in record.controls.ran] == [False] * len(record.controls.ran)
    assert "no control could show that records before" in record.controls.note


@pytest.mark.parametrize("kind", ["list", "union", "keep"])
def test_a_plan_is_a_control_of_keyed_state_only_if_its_operators_keep_some(
    tmp_path: Path, kind: str
) -> None:
    """The same job with lists and with keyed state: what lists keep stays when keyed state is dropped."""
    by = {"by": "hash", "key": ["key"]} if kind == "keep" else {"by": "rebalance"}
    job = {
        "vertices": [
            {
                "name": "read",
                "kind": "source",
                "parallelism": 1,
                "then": [{"name": "read.mark", "kind": "pass"}],
            },
            {"name": "kept", "kind": kind, "parallelism": 2},
            {"name": "out", "kind": "sink", "parallelism": 1},
        ],
        "edges": [
            {"from": "read", "to": "kept", **by},
            {"from": "kept", "to": "out", "by": "rebalance"},
        ],
    }
    kill = {
        "fault": {"type": "kill_worker", "subtask": "out[0]"},
        "trigger": {"type": "after", "point": "completion_notified", "subtask": "out[0]", "nth": 1},
    }
    raw = {
        "version": 2,
        "workload": {"name": "lineage", "batches": 20, "batch_records": 3, "records_per_second": 600},
        "job": job,
        "checkpoints": {"interval_ms": 15},
        "faults": [kill],
    }
    record = run_trial(plan_from(raw, "a plan"), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID
    assert record.vacuity_reasons["read-again"] == ""
    expected = "" if kind == "keep" else "nothing-kept"
    assert record.vacuity_reasons["state-dropped"] == expected


COUNTS = {"invalid": True, "unseen": True, "another course": False}
"""How a control may end, and whether it shows then whether the broken recovery is noticed."""


def tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plans: int, wanted: int, ends: Sequence[str]
) -> tuple[list[tuple[int, int]], Controls]:
    """Run the controls of a campaign with so many plans that could show one way to break recovery.

    Its controls end as ``ends`` says, one after the other. Returns (place of the control, trial) of each run.
    """
    how = BrokenRecovery.UNFENCED
    controls = Controls(Unbreakable(), seed=1, wanted=wanted)
    for trial in range(plans):
        summary: Any = SimpleNamespace(
            trial=trial, verdict=Verdict.VALID, vacuity_reasons={how.value: ""}, findings=()
        )
        controls.add(summary, TrialPlan(seed=trial))
    left = iter(ends)

    def ends_as_told(plan: TrialPlan, *_: Any) -> Any:
        end = next(left)
        verdict = Verdict.INVALID if end == "invalid" else Verdict.VALID
        finding = Finding("output", ("REC-2",), verdict, "so it went")
        reason = Vacuity.NOT_RECOVERED.value if end == "another course" else ""
        return SimpleNamespace(verdict=verdict, findings=(finding,), vacuity_reasons={how.value: reason})

    monkeypatch.setattr(controls_module, "run_trial", ends_as_told)
    begun: list[tuple[int, int]] = []

    def begins(what: str) -> None:
        found = re.match(rf"(\d+) of {wanted}: trial (\d+) again, ", what)
        assert found is not None
        begun.append((int(found[1]), int(found[2])))

    directory: Any = Mock(path=tmp_path)
    controls.run(directory, None, Mock(during_trial=nullcontext), begins)
    assert [control.trial for control in controls.ran] == [trial for _, trial in begun]
    assert [control.counts for control in controls.ran] == [COUNTS[end] for end in ends[: len(begun)]]
    return begun, controls


@pytest.mark.parametrize("plans", range(1, 8))
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_control_that_took_another_course_is_tried_again_with_another_plan_up_to_twice(
    wanted: int, plans: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ends in product(COUNTS, repeat=4):
        sequence = [*ends, "another course", "another course", "another course"]
        expected: list[int] = []
        for place in range(1, wanted + 1):
            for _ in range(min(3, plans - len(expected))):
                expected.append(place)
                if COUNTS[sequence[len(expected) - 1]]:
                    break
        begun, controls = tried(tmp_path, monkeypatch, plans, wanted, sequence)
        assert [place for place, _ in begun] == expected, ends
        trials = [trial for _, trial in begun]
        assert len({*trials}) == len(trials), "no plan is tried twice"
        unseen = sequence[: len(begun)].count("unseen")
        (*missed,) = controls.missed()
        assert (len(missed), len(missed and missed[0].examples)) == (min(unseen, 1), unseen)
        shown = any(COUNTS[end] for end in sequence[: len(begun)])
        assert ("no control could show" in controls.record().note) == (not shown)
