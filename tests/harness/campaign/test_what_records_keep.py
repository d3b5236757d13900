"""Nothing gets lost between a trial and the last page: what a system says of a trial is in its record, in its line of
``trials.jsonl``, in the campaign's record and in the summary, also if the campaign was interrupted and resumed.

Grain: campaigns on a fake system that has something to say in every field.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import (
    AttemptRecord,
    CampaignRecord,
    CheckpointRecord,
    SnapshotRecord,
    TrialRecord,
    TrialSummary,
    summary_of,
)
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.fake_system import TABLE, FakeSystem, interrupting


def names(kind: type) -> set[str]:
    """Return the names of a record's or an outcome's fields."""
    return set(kind.__annotations__)


class Talkative(FakeSystem):
    """Says something in every field of an outcome, and other numbers in every trial."""

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        number = 1 + plan.seed % 7
        return dataclasses.replace(
            super().run(plan, nemesis, directory),
            duration_ms=10.0 + number,
            attempts=tuple(AttemptRecord(n, n, n + 0.5, n + 1, "finished") for n in range(1, 2 + number)),
            checkpoints=(
                *(CheckpointRecord(n, 1, "completed", n, n + 0.5) for n in range(1, 1 + number)),
                CheckpointRecord(1 + number, 1, "aborted", 9, 9.5, "expired"),
            ),
            snapshots=(SnapshotRecord(1, 1, "totals[0]", 1, 1, 1, 1, 1, 1),),
            measurements={"kill_to_first_record_ms": float(number)},
            refused_connections={"crowded_out": 10 * number, "data_channel_not_wanted": number}
            | ({"wrong_secret": 1} if number == 3 else {}),
        )


def record_of_a_trial(tmp_path: Path) -> tuple[TrialOutcome, TrialRecord]:
    """Return what the system says of a trial, and the trial's record."""
    said: list[TrialOutcome] = []

    class Kept(Talkative):
        def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
            said.append(super().run(plan, nemesis, directory))
            return said[-1]

    record = execute(TrialPlan(seed=4), Kept(), tmp_path, TABLE, trial=7).record
    return said[0], record


def test_whatever_an_outcome_and_a_record_both_know_is_the_same(tmp_path: Path) -> None:
    outcome, record = record_of_a_trial(tmp_path)
    defaults = TrialOutcome(outcome.history)
    shared = sorted(names(TrialOutcome) & names(TrialRecord))
    assert "refused_connections" in shared and len(shared) >= 7
    for name in shared:
        assert getattr(outcome, name) != getattr(defaults, name), f"{name} says nothing here"
        assert getattr(record, name) == getattr(outcome, name), name


def test_whatever_a_record_and_its_short_form_both_know_is_the_same(tmp_path: Path) -> None:
    record = msgspec.structs.replace(
        record_of_a_trial(tmp_path)[1],
        batches_committed=5,
        end_reason="the end",
        vacuity_reasons={"unfenced": ""},
    )
    short, empty = summary_of(record), TrialSummary(0, record.verdict)
    known = names(TrialRecord) | {
        name for name, value in vars(TrialRecord).items() if isinstance(value, property)
    }
    shared = sorted(names(TrialSummary) & known - {"verdict"})
    assert "refused_connections" in shared and "recoveries" in shared and len(shared) >= 14
    for name in shared:
        assert getattr(short, name) == getattr(record, name), name
        # The plan has no faults; plans with faults are counted below. What was reported is the usual case.
        if name not in ("faults", "faults_fired", "recoveries_reported"):
            assert getattr(short, name) != getattr(empty, name), f"{name} says nothing here"


def sums(trials: tuple[TrialSummary, ...]) -> dict[str, Any]:
    """Return the sum over all trials of every count that a campaign's record has, too; a seed is no count."""
    found: dict[str, Any] = {}
    for name in sorted(names(TrialSummary) & names(CampaignRecord) - {"seed"}):
        values = [getattr(trial, name) for trial in trials]
        if isinstance(values[0], int) and not isinstance(values[0], bool):
            found[name] = sum(values)
        elif isinstance(values[0], dict):
            found[name] = dict(sum(map(Counter, values), Counter()))
    return found


@pytest.mark.parametrize("after", [None, 3], ids=["in one go", "resumed"])
def test_a_campaign_counts_every_trial_and_its_summary_has_one_line_for_each_kind(
    after: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    wanted = configuration_from({"trials": 12, "seed": 3, "faults": {"per_trial": [1, 2]}}, "test")
    if after is None:
        record = run_campaign(wanted, Talkative(), path, TABLE)
    else:
        assert run_campaign(wanted, Talkative(interrupting(after)), path, TABLE).trials == after
        record = resume_campaign(path, Talkative(), TABLE)
    counted = sums(tuple(open_run(path).rows()))
    assert set(counted) == {"checkpoints_completed", "faults_fired", "recoveries", "refused_connections"}
    assert {name: getattr(record, name) for name in counted} == counted
    assert all(counted.values()) and len(counted["refused_connections"]) == 3
    assert cli.run(["report", str(path)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("connections refused")]
    assert sorted(told) == sorted(
        f"connections refused: {count:,} ({kind.replace('_', ' ')})"
        for kind, count in counted["refused_connections"].items()
    )
