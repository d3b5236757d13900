"""Campaigns that end early or continue later: --resume, --fail-fast, --only.

Grain: campaigns on a fake system and on the simulated reference runtime; commands in this process.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.campaign.chosen_clauses import judges_of
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.resuming import require_resumable
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.campaign_output import command_to_resume
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.records import CampaignRecord
from barrier_tck.harness.record.run_directory import held
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import checkers_of
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.cli.test_cli import last_json, use
from tests.harness.fake_system import TABLE, FakeSystem, interrupting

OF_THE_CLOCK = ("started_at", "wall_seconds")


def configuration(**values: Any) -> CampaignConfiguration:
    return configuration_from({"trials": 12, "seed": 3} | values, "test")


class Interrupted(ReferenceSimulated):
    """The reference runtime with a user who presses Ctrl-C in the middle of a trial."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().run(plan, nemesis, directory)


def without_times(record: CampaignRecord) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(record).items() if name not in OF_THE_CLOCK}


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (path / "trials.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in OF_THE_CLOCK} for line in found]


def kept(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


@pytest.mark.nightly
def test_a_resumed_campaign_ends_as_one_without_a_break(tmp_path: Path) -> None:
    wanted = configuration(trials=12, seed=11, faults={"per_trial": [1, 3]}, controls=2)
    whole = run_campaign(wanted, ReferenceSimulated(), tmp_path / "whole")
    broken = run_campaign(wanted, Interrupted(after=6), tmp_path / "broken")
    assert broken.interrupted and 0 < broken.trials < 12
    with (tmp_path / "broken" / "trials.jsonl").open("ab") as file:
        file.write(b'{"trial":')  # as left by a process that was killed while writing
    (tmp_path / "broken" / "trials" / "00011").mkdir()
    resumed = resume_campaign(tmp_path / "broken", ReferenceSimulated())
    assert without_times(resumed) == without_times(whole)
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    assert {line["trace_digest"] for line in lines(tmp_path / "broken")} != {None}
    assert kept(tmp_path / "broken") == kept(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("after", [*(pytest.param(one, marks=pytest.mark.long) for one in (0, 1)), 7])
def test_failures_from_before_the_break_are_counted_and_shrunk(after: int, tmp_path: Path) -> None:
    def verdict(plan: TrialPlan) -> Verdict:
        return Verdict.INVALID if len(plan.faults) >= 2 else Verdict.VALID

    whole = run_campaign(configuration(), FakeSystem(verdict), tmp_path / "whole", TABLE)
    stop = interrupting(after)

    def interrupted(plan: TrialPlan) -> Verdict:
        stop(plan)
        return verdict(plan)

    run_campaign(configuration(), FakeSystem(interrupted), tmp_path / "broken", TABLE)
    resumed = resume_campaign(tmp_path / "broken", FakeSystem(verdict), TABLE)
    assert without_times(resumed) == without_times(whole)
    assert whole.shrunk and kept(tmp_path / "broken") == kept(tmp_path / "whole")


def test_an_interrupted_resumption_can_be_resumed(tmp_path: Path) -> None:
    whole = run_campaign(configuration(), FakeSystem(), tmp_path / "whole", TABLE)
    run_campaign(configuration(), FakeSystem(interrupting(after=3)), tmp_path / "run", TABLE)
    assert resume_campaign(tmp_path / "run", FakeSystem(interrupting(after=4)), TABLE).trials == 7
    assert without_times(resume_campaign(tmp_path / "run", FakeSystem(), TABLE)) == without_times(whole)


def test_a_campaign_that_still_runs_is_not_resumed_and_nothing_of_it_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "run"
    tried: list[str] = []

    def resuming(plan: TrialPlan) -> Verdict:
        if not tried:
            files = kept(path)
            with pytest.raises(UsageProblem, match="belongs to a command that still runs") as refused:
                resume_campaign(path, FakeSystem(), TABLE)
            tried.append(str(refused.value))
            assert kept(path) == files
        return Verdict.VALID

    record = run_campaign(configuration(), FakeSystem(resuming), path, TABLE)
    assert tried and not record.interrupted


def test_of_two_that_resume_at_once_the_second_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run_campaign(configuration(), FakeSystem(interrupting(after=3)), path, TABLE)
    with held(path), pytest.raises(UsageProblem, match="still runs"):
        resume_campaign(path, FakeSystem(), TABLE)
    assert not resume_campaign(path, FakeSystem(), TABLE).interrupted


def test_a_process_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with held(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with held(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_complete_campaign_is_not_resumed(tmp_path: Path) -> None:
    run_campaign(configuration(trials=1), FakeSystem(), tmp_path / "run", TABLE)
    with pytest.raises(UsageProblem, match="is complete, nothing is left to run; see: barrier-tck report"):
        resume_campaign(tmp_path / "run", FakeSystem(), TABLE)


def test_a_campaign_whose_plans_would_be_others_is_not_resumed(tmp_path: Path) -> None:
    record = run_campaign(configuration(), FakeSystem(interrupting(after=3)), tmp_path / "run", TABLE)
    file = tmp_path / "run" / "campaign.json"

    def rewritten(**changed: Any) -> None:
        file.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **changed)))

    rewritten(environment={**record.environment, "hypothesis": "1.0"})
    with pytest.raises(UsageProblem, match=r"was begun with hypothesis 1\.0, and here is"):
        require_resumable(tmp_path / "run")
    rewritten(configuration={**record.configuration, "seed": 4})
    with pytest.raises(UsageProblem, match=r"trial \d is not the one that is drawn here"):
        resume_campaign(tmp_path / "run", FakeSystem(), TABLE)
    rewritten(configuration={**record.configuration, "trials": "many"})
    with pytest.raises(UsageProblem, match=r"campaign\.json: configuration\.trials: expected"):
        resume_campaign(tmp_path / "run", FakeSystem(), TABLE)


@pytest.mark.long
def test_the_command_resumes_what_it_was_told_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem(interrupting(after=2)))
    assert cli.run(["campaign", "--trials", "5", "--out", str(tmp_path)]) == 2
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to continue: ")]
    use(monkeypatch, FakeSystem())
    words = command.removeprefix("to continue: barrier-tck ").split()
    for option in (["--seed", "1"], ["--trials", "9"], ["--fail-fast"], ["--system", "reference-spark"]):
        assert cli.run([*words, *option]) == 3
        assert "leave " in capsys.readouterr().err
    assert cli.run([*words, "--json"]) == 0
    result = last_json(capsys)
    assert (result["trials"], result["interrupted"]) == (5, False)
    assert cli.run(words) == 3
    assert "is complete" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [0, 1])
def test_a_run_that_lacks_a_trial_before_its_last_one_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: int
) -> None:
    run_campaign(configuration(), FakeSystem(interrupting(after=3)), tmp_path, TABLE)
    rows = (tmp_path / "trials.jsonl").read_bytes().splitlines(keepends=True)
    assert len(rows) == 3
    (tmp_path / "trials.jsonl").write_bytes(
        b"".join(row for number, row in enumerate(rows) if number != lost)
    )
    assert cli.run(["campaign", "--resume", str(tmp_path)]) == 3
    assert "lacks trials in the middle" in capsys.readouterr().err


def test_resuming_runs_no_code_that_only_the_run_directory_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = run_campaign(configuration(), FakeSystem(interrupting(after=3)), tmp_path, TABLE)
    changed = {**record.configuration, "system": {"name": "antigravity:System", "settings": {}}}
    (tmp_path / "campaign.json").write_bytes(
        msgspec.json.encode(msgspec.structs.replace(record, configuration=changed))
    )
    assert cli.run(["campaign", "--resume", str(tmp_path)]) == 3
    assert "names code that would run: the system 'antigravity:System'" in capsys.readouterr().err


def test_fail_fast_ends_with_the_first_trial_that_is_invalid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = {3: Verdict.VALID, 4: Verdict.UNKNOWN, 5: Verdict.INVALID, 6: Verdict.INVALID}
    use(monkeypatch, FakeSystem(lambda plan: verdicts[plan.seed]))
    (tmp_path / "four.toml").write_text("seed = 3\n[[trial]]\nrepeat = 4\n")
    options = [str(tmp_path / "four.toml"), "--out", str(tmp_path / "runs")]
    assert cli.run(["campaign", *options, "--fail-fast"]) == 1
    assert "ended at the first trial that is invalid, after 3" in capsys.readouterr().out
    (path,) = (tmp_path / "runs").iterdir()
    run = open_run(path)
    assert [trial.verdict.value for trial in tuple(run.rows())] == ["valid", "unknown", "invalid"]
    assert not run.campaign.interrupted and run.campaign.shrunk


def test_without_shrinking_a_campaign_ends_with_its_last_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[TrialPlan] = []

    def verdict(plan: TrialPlan) -> Verdict:
        ran.append(plan)
        return Verdict.INVALID

    use(monkeypatch, FakeSystem(verdict))
    (tmp_path / "four.toml").write_text("seed = 3\ntrials = 4\nshrink = false\n")
    assert cli.run(["campaign", str(tmp_path / "four.toml"), "--out", str(tmp_path / "runs"), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(ran) == 4
    assert sum(group["trials"] for group in printed["groups"]) == 4
    assert {group["plan"] for group in printed["groups"]} == {""}
    ran.clear()
    options = [str(tmp_path / "four.toml"), "--out", str(tmp_path / "again"), "--no-store", "--shrink"]
    assert cli.run(["campaign", *options]) == 1
    assert len(ran) > 4
    (path,) = (tmp_path / "again").iterdir()
    assert cli.run(["campaign", "--resume", str(path), "--no-shrink"]) == 3
    assert "shrink" in capsys.readouterr().err


@pytest.mark.nightly
def test_with_several_processes_too(tmp_path: Path) -> None:
    listed = configuration(trial=[{"repeat": 8}], trials=8, fail_fast=True)
    plan = {"name": "keyed-totals", "batches": 1}
    wanted = msgspec.structs.replace(listed, workload=plan)
    record = run_campaign(wanted, ReferenceSimulated(), tmp_path / "run", jobs=2)
    assert record.trials == 8, "nothing fails, so nothing ends it"


@pytest.mark.parametrize("clause", ["BAR-6", "COO-2", "STA-3"])
def test_a_checker_judges_for_each_clause_that_it_says_is_broken(clause: str) -> None:
    plan = filled(TrialPlan())
    judges = judges_of(plan, ReferenceSimulated(), (clause,))
    wanted = [
        checker.name
        for checker in checkers_of(plan, ReferenceSimulated())
        if clause in {sign.clause for sign in getattr(checker, "signs", ())}
    ]
    assert wanted and set(wanted) <= {checker.name for checker in judges}


def test_only_the_checkers_of_the_clauses_asked_for_judge(tmp_path: Path) -> None:
    record = run_campaign(
        configuration(trials=8, only=["REC-1", "ALN-2"]), ReferenceSimulated(), tmp_path / "run"
    )
    checkers = {
        finding.checker for trial in tuple(open_run(tmp_path / "run").rows()) for finding in trial.findings
    }
    assert {"faults-fired", "snapshot-formula", "restorability"} <= checkers
    assert not checkers & {"no-garbage", "progress", "local-recovery", "channel-order"}
    assert record.verdict is Verdict.VALID
    assert record.controls is None or not record.controls.ran


def test_a_campaign_that_judged_a_clause_in_no_trial_is_unknown(tmp_path: Path) -> None:
    wanted = configuration(trials=3, only=["ALO-2"], checkpoints={"mode": "exactly_once"})
    with pytest.raises(UsageProblem, match="only: no checker of these trials covers 'ALO-9'; did you mean"):
        run_campaign(msgspec.structs.replace(wanted, only=("ALO-9",)), ReferenceSimulated(), tmp_path / "no")
    record = run_campaign(wanted, ReferenceSimulated(), tmp_path / "run")
    assert (record.valid, record.verdict) == (3, Verdict.UNKNOWN)
    [finding] = record.findings
    assert "no trial was judged for ALO-2" in finding.summary


def test_the_command_that_goes_on_names_code_of_the_user_again(tmp_path: Path) -> None:
    """Pasted as it was printed, it must not be refused for code that only the run directory names."""
    named = configuration(
        system={"name": "my_job.jobs:job", "settings": {}}, workload={"name": "my_job.load:Load"}
    )
    record = run_campaign(configuration(), FakeSystem(interrupting(after=3)), tmp_path, TABLE)
    changed = msgspec.structs.replace(record, configuration=msgspec.to_builtins(named))
    assert shlex.split(command_to_resume(changed, tmp_path / "a run")) == [
        *("barrier-tck", "campaign", "--resume", str(tmp_path / "a run")),
        *("--system", "my_job.jobs:job", "--workload", "my_job.load:Load"),
    ]
