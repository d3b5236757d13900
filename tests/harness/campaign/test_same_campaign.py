"""However a campaign is run, in one process, in several, or in parts, it leaves the same run directory, file by file.

Grain: simulated campaigns whose trials are valid, invalid, slow, or end in an error, by their seeds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.campaign import dropped_faults, finding_groups, runner
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.cli.exit_codes import exit_code_of
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import NemesisHooks, SystemUnderTest, TrialOutcome

UNEVEN = "tests.harness.campaign.dying_system:UnevenSystem"
EVEN = "reference-simulated"
NOT_COMPARED = ("started_at", "wall_seconds", "traceback")

KILL = {
    "fault": {"type": "kill_worker", "subtask": "totals[0]"},
    "trigger": {"type": "after", "point": "completion_notified", "subtask": "sink[0]"},
}
LISTED = {
    "checkpoints": {"interval_ms": 40},
    "workload": {"batches": 20, "records_per_second": 200},
    "trial": [{"repeat": 16, "faults": [KILL]}],
}
"""Seed % 8: 2 is INVALID, and slow beside others, 4 is INVALID, no fault strikes in 3, 5 and 6 end in an error, others
are VALID.
"""

CAMPAIGNS: dict[str, tuple[str, dict[str, Any], Verdict]] = {
    "invalid trials and errors": (UNEVEN, {"seed": 1, **LISTED}, Verdict.INVALID),
    "the first invalid trial ends it": (UNEVEN, {"seed": 1, "fail_fast": True, **LISTED}, Verdict.INVALID),
    "few clauses": (UNEVEN, {"seed": 5, "only": ["COO-4"], **LISTED}, Verdict.UNKNOWN),
    "drawn, with faults whose moment never comes": (
        UNEVEN,
        {"seed": 13, "trials": 10, "faults": {"per_trial": [1, 3]}},
        Verdict.UNKNOWN,
    ),
    "drawn, with controls": (
        EVEN,
        {"seed": 11, "trials": 10, "faults": {"per_trial": [1, 3]}, "controls": 2},
        Verdict.VALID,
    ),
}
WHERE_THERE_IS_TIME = {
    "invalid trials and errors": pytest.mark.long,
    "the first invalid trial ends it": pytest.mark.nightly,
    "few clauses": pytest.mark.nightly,
    "drawn, with faults whose moment never comes": pytest.mark.long,
}
"""Campaigns that run in several processes only in longer sessions."""


def timeless(value: Any) -> Any:
    """Return a JSON value without times, and without the lines of code that led to an error."""
    if isinstance(value, dict):
        return {key: timeless(member) for key, member in value.items() if key not in NOT_COMPARED}
    return [timeless(member) for member in value] if isinstance(value, list) else value


def left_by(run: Path) -> dict[str, Any]:
    """Return everything below a run directory, with the empty directories, but only what can be the same."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        text: Any = path.read_text() if path.is_file() else ""
        if path.suffix == ".json":
            text = timeless(json.loads(text))
        elif path.suffix == ".jsonl":
            text = [timeless(json.loads(line)) for line in text.splitlines()]
        found[path.relative_to(run).as_posix()] = text
    return found


def watched(system: SystemUnderTest, before: Callable[[Path], None]) -> SystemUnderTest:
    """Return the system, which calls ``before`` with the directory of each run, be it of a trial or of something else.

    It is still the system that was opened by its name.
    """
    run = system.run

    def run_watched(plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        before(directory)
        return run(plan, nemesis, directory)

    system.run = run_watched  # type: ignore[method-assign]
    return system


def interrupted_at(number: int, system: SystemUnderTest) -> SystemUnderTest:
    """Return the system with a user who presses Ctrl-C in the nth run, from 0."""
    runs = itertools.count()

    def press(_: Path) -> None:
        if next(runs) == number:
            raise KeyboardInterrupt

    return watched(system, press)


def assert_same(path: Path, wanted: dict[str, Any]) -> None:
    found = left_by(path)
    assert list(found) == list(wanted)
    for file, content in wanted.items():
        assert found[file] == content, file


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink with few runs, keep few valid trials in full, so that most trials are begun when these are there already,
    and let any number of faults be dropped.
    """
    monkeypatch.setattr(runner, "VALID_KEPT", 2)
    monkeypatch.setattr(dropped_faults, "DROPPED_ONE_IN", 1)
    monkeypatch.setattr(finding_groups, "SHRUNK_MAX", 1)
    monkeypatch.setattr(finding_groups, "RUNS_OF_ONE_MAX", 6)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=WHERE_THERE_IS_TIME.get(name, ())) for name in CAMPAIGNS],
)
def test_in_several_processes_and_resumed_in_several(name: str, tmp_path: Path) -> None:
    system, values, verdict = CAMPAIGNS[name]
    wanted = configuration_from(values, "test")
    assert run_campaign(wanted, open_system(system), tmp_path / "whole").verdict is verdict
    whole = left_by(tmp_path / "whole")
    run_campaign(wanted, open_system(system), tmp_path / "two", jobs=2)
    assert_same(tmp_path / "two", whole)
    assert run_campaign(wanted, interrupted_at(1, open_system(system)), tmp_path / "parts").interrupted
    resume_campaign(tmp_path / "parts", open_system(system), jobs=2)
    assert_same(tmp_path / "parts", whole)


@pytest.mark.long
@pytest.mark.parametrize("name", ["the first invalid trial ends it", "drawn, with controls"])
def test_interrupted_in_whatever_it_does_and_resumed(name: str, tmp_path: Path) -> None:
    """In its last trial, or in the first or last run after that: controls, or those that shrink a failure."""
    system, values, _ = CAMPAIGNS[name]
    wanted = configuration_from(values, "test")
    runs: list[str] = []
    seen = watched(open_system(system), lambda directory: runs.append(directory.parent.name))
    run_campaign(wanted, seen, tmp_path / "whole")
    whole, trials = left_by(tmp_path / "whole"), runs.count("trials")
    assert trials < len(runs) - 1, "it does something after its trials"
    for number in (trials - 1, trials, len(runs) - 1):
        path = tmp_path / f"interrupted-{number}"
        record = run_campaign(wanted, interrupted_at(number, open_system(system)), path)
        assert record.interrupted and open_run(path).campaign.interrupted, runs[number]
        assert exit_code_of(record.verdict, record.interrupted) != 0
        resume_campaign(path, open_system(system))
        assert_same(path, whole)


def test_resumed_after_trials_that_ended_in_errors_before_any_of_their_faults_struck(tmp_path: Path) -> None:
    """None of these faults was dropped, so later trials may drop theirs."""
    system, values, _ = CAMPAIGNS["drawn, with faults whose moment never comes"]
    wanted = configuration_from(values, "test")
    run_campaign(wanted, open_system(system), tmp_path / "whole")
    run_campaign(wanted, interrupted_at(5, open_system(system)), tmp_path / "parts")
    resume_campaign(tmp_path / "parts", open_system(system))
    assert_same(tmp_path / "parts", left_by(tmp_path / "whole"))
