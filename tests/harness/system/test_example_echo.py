"""The example system and its guide; grain: whole trials of a system in one file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from barrier_tck import harness
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.draw import plug_in_profiles
from barrier_tck.harness.oracle import plug_in_checkers
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system import optional_interfaces, scale
from examples.echo_system.echo import CALM, WITH_KILL, EchoSystem, LossyEchoSystem, judge, main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "echo_system" / "echo.py"
CHAPTERS = sorted((ROOT / "docs" / "guide").glob("0*.md"))


def verdicts(record: TrialRecord) -> dict[str, Verdict]:
    return {finding.checker: finding.verdict for finding in record.findings}


def test_echo_survives_the_kill_of_its_worker() -> None:
    for plan in (CALM, WITH_KILL):
        record = judge(plan, EchoSystem())
        assert record.verdict is Verdict.VALID
        assert record.faults_fired == len(plan.faults)


def test_echo_that_moves_its_position_first_loses_a_batch_only_when_it_is_killed() -> None:
    assert judge(CALM, LossyEchoSystem()).verdict is Verdict.VALID
    record = judge(WITH_KILL, LossyEchoSystem())
    assert verdicts(record)["exactly-once-output"] is Verdict.INVALID
    counts = next(f.counts for f in record.findings if f.checker == "exactly-once-output")
    assert counts["lost"] == WITH_KILL.workload.batch_records


def test_kill_that_never_comes_makes_the_trial_unknown() -> None:
    class PassesNoPoint(EchoSystem):
        def echo(self, batch, disk, worker, nemesis):  # type: ignore[no-untyped-def]
            disk.output.extend(batch)
            disk.position += len(batch)

    assert judge(WITH_KILL, PassesNoPoint()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_code_in_the_guide_is_code_of_the_example(chapter: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", chapter.read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert block in EXAMPLE.read_text(), (
            f"{chapter.name} shows code that the example does not have:\n{block}"
        )


@pytest.mark.parametrize(
    ("chapter", "arguments", "exit_code"), [("01-echo.md", [], 0), ("02-lose-one.md", ["--lossy"], 1)]
)
def test_output_in_the_guide_is_what_the_example_prints(
    chapter: str, arguments: list[str], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == exit_code
    printed = capsys.readouterr().out
    block = re.search(
        r"```console\n\$ ([^\n]*)\n(.*?)```", (CHAPTERS[0].parent / chapter).read_text(), re.DOTALL
    )
    assert block is not None
    assert block[1] == " ".join(["python -m examples.echo_system.echo", *arguments])
    assert block[2] == printed


@pytest.mark.long
@pytest.mark.parametrize(("system", "exit_code"), [("EchoSystem", 0), ("LossyEchoSystem", 1)])
def test_drawn_plans_tell_the_honest_echo_from_the_lossy_one(
    system: str, exit_code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = f"barrier-tck campaign --system examples.echo_system.echo:{system} --trials 50 --seed 1"
    assert shown in CHAPTERS[2].read_text().splitlines()
    assert cli.run([*shown.split()[1:], "--out", str(tmp_path), "--json"]) == exit_code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["trials"] == 50
    if not exit_code:
        assert (result["valid"], result["unknown"]) == (50, 0)


def _headline(system: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a campaign of a system prints, on one line."""
    capsys.readouterr()
    words = f"campaign --system {system} --trials 20 --seed 1 --no-store --out {directory}".split()
    assert cli.run(words) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.long
def test_the_headline_of_echo_says_what_its_kills_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = _headline("examples.echo_system.echo:EchoSystem", tmp_path, capsys)
    recovered = re.search(r"(\d+) of \1 faults fired; recoveries: (\d+)", printed)
    assert recovered is not None and recovered[1] == recovered[2] != "0", printed
    chances = re.search(r"would have shown: SRC-1 (\d+), REC-1 \1, SNK-1 \1, of 20 trials", printed)
    assert chances is not None and int(chances[1]) > 0, printed


OPERATIONS = ("AttemptStarted", "AttemptRunning", "Committed")
NOTED = (
    "What `run` notes decides what a report can say. `AttemptStarted` and `AttemptRunning` are the recoveries, "
    "`Committed` shows that the job went on after a kill. Without them the harness knows only its kills and the points "
    'that it saw, and the report says "not reported".'
)


def test_the_guide_says_what_echo_notes() -> None:
    assert NOTED in " ".join(CHAPTERS[0].read_text().split())
    noted = re.findall(r"note\((\w+)\(", EXAMPLE.read_text())
    assert [operation for operation in OPERATIONS if operation not in noted] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("Attempt", "recoveries: not reported; batches committed: "),
        ("Committed", "faults fired; recoveries: 23; checkpoints completed: "),
        ("(?:Attempt|Committed)", "recoveries: not reported; checkpoints completed: not reported"),
    ],
    ids=["no attempts", "no commits", "neither"],
)
def test_what_the_guide_says_of_an_echo_that_notes_less_is_true(
    left_out: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its kills and the points that were seen still tell that the clauses of recovery could be violated."""
    text = re.sub(rf"(?m)^( *)note\({left_out}.*$", r"\1pass", EXAMPLE.read_text())
    (tmp_path / "quieter.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        printed = _headline("quieter:EchoSystem", tmp_path / "runs", capsys)
    finally:
        sys.modules.pop("quieter", None)
    assert said in printed
    assert re.search(r"would have shown: .*SRC-1 [1-9]", printed), printed


def test_the_guide_lists_what_a_system_may_add() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", CHAPTERS[2].read_text(), re.MULTILINE)
    protocols = [
        name
        for module in (optional_interfaces, plug_in_profiles, plug_in_checkers, scale)
        for name, value in vars(module).items()
        if getattr(value, "_is_runtime_protocol", False) and value.__module__ == module.__name__
    ]
    assert sorted(rows) == sorted(protocols)
    assert set(rows) <= set(harness.__all__)
