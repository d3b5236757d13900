"""What commands print: the verdict decides the exit code, whoever reads the output and in whatever encoding.

Grain: commands in forked processes and one behind a real pipe, and commands called in this process.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from rich.table import Table

from barrier_tck.harness.campaign.budget import Budget
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.progress_display import CampaignProgress
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.printing import VerdictConsole, emit
from barrier_tck.harness.record.verdict import Verdict
from tests.harness.cli.forked_command import Stream, forked
from tests.harness.cli.test_cli import last_json, use
from tests.harness.fake_system import TABLE, FakeSystem, interrupting, slowly
from tests.test_tidy import ROOT, name, python_files

CAMPAIGN = ("campaign", "--trials", "2", "--seed", "1", "--out")


def nobody() -> int:
    """Return the write end of a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize(
    ("out", "err"),
    [
        (nobody, nobody),
        (lambda: None, None),
    ],
    ids=["2>&1 | true", ">&-"],
)
def test_a_reader_that_leaves_does_not_change_the_exit_code(
    out: Callable[[], Stream], err: Callable[[], Stream] | None, tmp_path: Path
) -> None:
    done = forked([*CAMPAIGN, str(tmp_path)], out=out(), err=-1 if err is None else err())
    assert done.code == 0, done.err
    assert (next(tmp_path.iterdir()) / "report.html").is_file(), "it went on to the end"


@pytest.mark.parametrize(
    "arguments",
    [("faults",), ("init",), ("init", "--json"), ("doctor", "--json"), CAMPAIGN],
    ids=["faults", "init", "init --json", "doctor --json", "campaign"],
)
def test_output_that_is_lost_on_a_full_disk_is_no_success(arguments: tuple[str, ...], tmp_path: Path) -> None:
    given = [*arguments, str(tmp_path)] if arguments == CAMPAIGN else [*arguments]
    done = forked(given, out=os.open("/dev/full", os.O_WRONLY))
    assert done.code == 3
    assert "standard output could not be written: No space left on device" in done.err
    assert not [*tmp_path.iterdir()] or (next(tmp_path.iterdir()) / "report.html").is_file(), (
        "it went on to the end"
    )


def test_a_verdict_that_is_lost_is_said_to_be_lost_whatever_it_was() -> None:
    done = forked(["scopes", "timer", "--seconds", "0.2"], out=os.open("/dev/full", os.O_WRONLY))
    assert done.code == 2, "it was cut off"
    assert done.err == "barrier-tck: standard output could not be written: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("--show-completion", "bash"),
        *((command, "--help") for command in typer.main.get_command(cli.app).commands),  # type: ignore[attr-defined]
    ],
    ids=" ".join,
)
def test_what_typer_prints_is_lost_in_the_same_way(arguments: tuple[str, ...]) -> None:
    done = forked([*arguments], out=os.open("/dev/full", os.O_WRONLY))
    assert done.code == 3
    assert done.err == "barrier-tck: standard output could not be written: No space left on device\n"


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_completion_of_a_shell_is_no_mistake(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    # It is looked for among the processes that started this one, and a scheduler may have started it without one.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    done = forked([option, "bash"])
    assert done.code == 0, done.err
    assert "barrier_tck" in done.out or any(tmp_path.rglob("*barrier*"))


@pytest.mark.nightly
def test_a_reader_that_leaves_in_a_real_pipe_does_not_change_the_exit_code(tmp_path: Path) -> None:
    line = f"{sys.executable} -m barrier_tck.harness.cli.main {shlex.join([*CAMPAIGN, str(tmp_path)])} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0


def test_help_for_nobody_is_no_mistake_of_the_user() -> None:
    assert forked(["--help"], out=nobody()).code == 141


@pytest.mark.parametrize(("encoding", "sign"), [("ascii", "+"), ("utf-8", "✓")])
def test_a_verdict_is_printed_in_whatever_encoding(encoding: str, sign: str, tmp_path: Path) -> None:
    done = forked([*CAMPAIGN, str(tmp_path), "--json"], encoding=encoding)
    assert done.code == 0, done.err
    assert f"{sign} VALID  standard on reference-simulated" in done.err
    assert json.loads(done.out.splitlines()[-1])["verdict"] == "valid"


def test_the_object_for_machines_is_ascii_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "name": "Zürich → 東京 ✓ …",
        "path": "/tmp/\U0001f600/\x85\u2028",
        "details": ["“×”", {"é": "\x1b[1m"}],
    }
    emit(True, value)
    (line, end) = capsys.readouterr().out.split("\n")
    assert line.isascii() and line.isprintable() and not end
    assert json.loads(line) == value


def test_names_from_elsewhere_are_neither_markup_nor_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    VerdictConsole().print("system a:b:c, [red]bold[/red] :smile:")
    assert capsys.readouterr().out == "system a:b:c, [red]bold[/red] :smile:\n"


def test_every_console_of_the_product_is_of_that_kind() -> None:
    users = [
        name(path)
        for path in python_files("harness", "reports", "faults", "conformance", "reference_impl")
        if re.search(r"\bConsole\(", path.read_text())
    ]
    assert users == []


def test_a_log_has_one_line_for_each_trial_with_its_verdict_its_time_and_what_remains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = {3: Verdict.VALID, 4: Verdict.INVALID, 5: Verdict.UNKNOWN}
    listed = configuration_from({"seed": 3, "trial": [{"repeat": 3}]}, "test")
    system = FakeSystem(lambda plan: verdicts[plan.seed])
    run_campaign(listed, system, tmp_path / "run", TABLE, VerdictConsole(stderr=True))
    told = [re.sub(r"\d+ ms", "N ms", line) for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "trial 0: VALID, N ms; 1 of 3 done, about N ms left",
        "trial 1: INVALID (table), N ms; 2 of 3 done, about N ms left",
        "trial 2: UNKNOWN (table), N ms; 3 of 3 done",
    ]


def test_a_log_of_a_campaign_with_a_time_says_how_much_of_it_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = configuration_from({"budget": "100ms"}, "test")
    run_campaign(timed, FakeSystem(slowly(0.03)), tmp_path / "run", TABLE, VerdictConsole(stderr=True))
    told = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"trial 0: VALID, \d+ ms; 1 done, \d+ ms left", told[0])


def test_the_report_of_an_interrupted_run_exits_as_the_campaign_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem(interrupting(after=2)))
    assert cli.run(["campaign", "--trials", "5", "--out", str(tmp_path)]) == 2
    capsys.readouterr()
    assert cli.run(["report", str(tmp_path), "--json"]) == 2
    result = last_json(capsys)
    assert (result["verdict"], result["interrupted"]) == ("valid", True)


def test_json_holds_the_findings_of_trials_that_were_not_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem(lambda plan: Verdict.INVALID))
    assert cli.run(["campaign", "--trials", "2", "--out", str(tmp_path), "--json"]) == 1
    findings: list[dict[str, Any]] = last_json(capsys)["findings"]
    (finding,) = findings
    assert (finding["trial"], finding["trials"]) == (0, 2), "both trials show the same"
    assert (finding["checker"], finding["clauses"], finding["verdict"]) == ("table", ["ALN-2"], "invalid")
    assert finding["summary"] == "the table says invalid"
    assert finding["replay"].startswith("barrier-tck replay ")
    plan = shlex.split(findings[0]["replay"])[2]
    assert cli.run(["replay", plan, "--json"]) == 1
    [again] = last_json(capsys)["replayed"]
    assert [finding["summary"] for finding in again["findings"]] == ["the table says invalid"]


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert re.fullmatch(r"barrier-tck \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    asked = {"COMP_WORDS": "barrier-tck camp", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "barrier-tck camp"}
    asked |= {"_BARRIER_TCK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = forked([], variables=asked)
    assert (done.code, "campaign" in done.out) == (0, True), done.err


def test_lines_in_a_file_are_not_cut_at_the_width_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table(box=None, pad_edge=False)
    for column in range(3):
        table.add_column(f"column {column}", no_wrap=True)
    table.add_row("a" * 60, "b" * 60, "1234567")
    VerdictConsole().print(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split() == ["a" * 60, "b" * 60, "1234567"]
    assert len(lines[-1].rstrip()) < 150, "no wider than what is in it"


@pytest.mark.parametrize(
    ("words", "incomplete", "among"),
    [
        ("campaign", "gra", "graphs"),
        ("campaign --system", "reference-s", "reference-spark"),
        ("campaign --state-backend", "r", "rocksdb"),
        ("campaign --checkpoint-storage", "h", "hdfs"),
        ("campaign --strategy", "g", "guided"),
        ("init", "sto", "storage"),
        ("certify", "h", "heap"),
        ("certify --level", "cr", "crash"),
        ("certify-storage", "m", "memory"),
    ],
)
def test_a_shell_completes_values(
    words: str,
    incomplete: str,
    among: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("_BARRIER_TCK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"barrier-tck {words} {incomplete}")
    monkeypatch.setenv("COMP_CWORD", str(1 + len(words.split())))
    assert cli.run([]) == 0
    assert among in capsys.readouterr().out.split()


def test_the_bar_on_a_terminal_says_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 10.0))
    monkeypatch.setattr("barrier_tck.harness.campaign.progress_display.time.monotonic", lambda: next(times))
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    terminal = Console(file=screen, force_terminal=True, width=120)
    with CampaignProgress(terminal, Budget(trials=100)) as progress:
        progress.update(None, 25, 0, 0)  # type: ignore[arg-type]
        assert progress._progress is not None
        (task,) = progress._progress.tasks
    assert task.fields["left"] == "about 30 s left"


def test_where_trials_are_slow_something_is_said_before_the_first_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    with CampaignProgress(Console(file=log, width=120), Budget(trials=4), slow=True):
        assert log.getvalue() == "trial 0 runs; 0 of 4 done\n"
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    with CampaignProgress(
        Console(file=screen, force_terminal=True, width=120), Budget(trials=4), slow=True
    ) as progress:
        assert progress._progress is not None
        (task,) = progress._progress.tasks
    assert (task.fields["bad"], task.fields["left"], task.total) == ("", "", 4)
    with CampaignProgress(Console(file=log, width=120), Budget(trials=4), before=4, slow=True):
        assert log.getvalue().count("runs") == 1


def test_a_log_that_shows_colours_is_no_terminal_of_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    table = Table(box=None)
    table.add_column("finding")
    table.add_row("x" * 300)
    VerdictConsole().print(table)
    assert "x" * 300 in capsys.readouterr().out
