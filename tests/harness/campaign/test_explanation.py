"""Following one record through a trial: when it was lost or doubled, and what happened before. Grain: whole trials."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.explanation import Explanation, explained, what_happened
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.history import End, History, OutputComparison, OutputCounts
from barrier_tck.harness.record.operations import AttemptEnded
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.run_directory import write_trial
from barrier_tck.harness.record.run_reader import read_history, read_record
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import execute


class Planted(ReferenceSimulated):
    """The simulator with a source that reads the last record before its restored position again."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        return super().run(msgspec.structs.replace(plan, mutant="SO-02"), nemesis, directory)


def explanation_of(bug: str, directory: Path) -> Explanation:
    """Explain the first trial that shows a planted bug, from what its directory holds."""
    for number, plan in enumerate(planted_bugs()[bug].plans("simulated")):
        trial = directory / str(number)
        result = execute(msgspec.structs.replace(plan, mutant=bug), ReferenceSimulated(), directory)
        if result.record.verdict is Verdict.INVALID:
            trial.mkdir()
            write_trial(trial, result)
            return explained(read_record(trial), read_history(trial))
    raise AssertionError(f"no plan showed {bug}")


def test_without_output_that_was_read_no_record_can_be_followed(tmp_path: Path) -> None:
    compared = OutputComparison(OutputCounts(5, 6, 0, 1, 0, 0, 0, 0), ("2 times: id=3",))
    history = History((), End.FINISHED, Reason.FINISHED, "", None, output_query=compared)
    record = execute(TrialPlan(), ReferenceSimulated(), tmp_path).record
    with pytest.raises(UsageProblem, match="no record can be followed; look at its findings"):
        explained(record, history)


def test_a_doubled_record_is_followed_by_the_total_of_its_key(tmp_path: Path) -> None:
    found = explanation_of("SO-02", tmp_path)
    assert found.place is not None
    assert found.in_output == 2
    assert found.wrong is not None
    assert f"under the record's key {found.place.key}" in found.wrong.places[0]
    happened = [step.what for step in found.between]
    assert any(what.startswith("fault: ") for what in happened)
    assert any(" starts from checkpoint " in what for what in happened), "and then it was restored"


def test_a_record_that_a_checkpoint_lacks_is_followed_by_its_way(tmp_path: Path) -> None:
    found = explanation_of("UC-01", tmp_path)
    assert found.followed.way
    assert found.wrong is not None
    assert (found.wrong.before_the_cut, found.wrong.places) == (True, ())
    assert "and not in the output" in found.sentence


@pytest.fixture(scope="module", name="runs")
def _runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the directories of a campaign with a planted bug, and of one without."""
    plan = next(iter(planted_bugs()["SO-02"].plans("simulated")))
    parts = ("workload", "job", "deployment", "checkpoints", "restart", "network", "limits")
    campaign = {part: msgspec.to_builtins(getattr(plan, part)) for part in parts}
    campaign |= {"name": "t", "seed": 4, "controls": 0}
    campaign["trial"] = [{"repeat": 4, "faults": msgspec.to_builtins(plan.faults)}]
    configuration = configuration_from(campaign, "t")
    directory = tmp_path_factory.mktemp("runs")
    for name, system in (("wrong", Planted()), ("right", ReferenceSimulated())):
        run_campaign(configuration, system, directory / name)
    return directory / "wrong", directory / "right"


@pytest.mark.long
def test_the_command_explains_the_first_trial_that_failed(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(runs[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("is 2 times in the output")
    marked = [line for line in lines if line.startswith(">")]
    assert len(marked) == 1
    assert "completes, the record before the cut: totals" in marked[0]
    assert any(line.startswith("between checkpoint ") for line in lines)


def test_what_ends_an_attempt_is_a_phrase() -> None:
    lost = AttemptEnded(2, Reason.PROCESS_LOST)
    assert what_happened(lost, {}) == "attempt 2 ends: process lost"


@pytest.mark.long
def test_another_record_was_all_the_time_where_it_belongs(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(runs[0]), "--record", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["in_output"], found["wrong"]) == (1, None)
    assert found["place"]["offset"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("side", "arguments", "said"),
    [
        (1, (), "no trial of"),
        (1, ("0",), "no finding of this trial names a record; choose one with --record ID"),
        (0, ("99",), "trial 99 of"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_what_to_do(
    runs: tuple[Path, Path],
    side: int,
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", str(runs[side]), *arguments]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_a_record_that_nobody_sent_is_not_in_the_input(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(runs[1]), "0", "--record", "987654321"]) == 0
    assert capsys.readouterr().out.startswith(
        "record 987654321 is not in the input, and no times in the output"
    )


@pytest.mark.parametrize("name", ["history.jsonl", "outcome.json"])
def test_a_corrupt_file_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = tmp_path / "trial"
    trial.mkdir()
    write_trial(trial, execute(TrialPlan(), ReferenceSimulated(), tmp_path))
    (trial / name).write_text('{"end": 3}\n')
    assert run(["explain", str(trial), "--record", "0"]) == 3
    assert name in capsys.readouterr().err


def test_a_workload_of_the_user_is_looked_for_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = tmp_path / "trial"
    trial.mkdir()
    (tmp_path / "own_records.py").write_text(
        "from barrier_tck.harness.workloads.keyed_totals import KeyedTotals\n\n"
        "class Own(KeyedTotals):\n    name = 'own'\n"
    )
    result = execute(TrialPlan(), ReferenceSimulated(), tmp_path / "run")
    own = msgspec.structs.replace(result.record.plan.workload, name="own_records:Own")
    plan = msgspec.structs.replace(result.record.plan, workload=own)
    write_trial(trial, replace(result, record=msgspec.structs.replace(result.record, plan=plan)))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    assert run(["explain", str(trial), "--record", "0"]) == 0, capsys.readouterr().err
