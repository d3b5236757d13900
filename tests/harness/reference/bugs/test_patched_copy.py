"""A copy of the package with a patch: any change of the product is in it, in each process that imports it.

Grain: processes that import a copy; the command with patches of every kind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan, write
from barrier_tck.harness.reference.bugs.catalogue import planted
from barrier_tck.harness.reference.bugs.patched_copy import make_copy
from barrier_tck.harness.support.errors import UsageProblem
from tests.harness.reference.bugs.test_diff import DIFF, diff_of
from tests.waiting import PATIENCE_S, eventually

CHANGES = {
    "protocol/alignment.py": (
        "            ChannelClosed: _on_closed,\n",
        "            ChannelClosed: _on_closed_early,\n",
    ),
    "storage/memory_files.py": ("DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024", "DEFAULT_LIMIT_BYTES = 17"),
    "protocol/table.py": (
        "    states: tuple[StrEnum, ...]\n\n\ndef",
        "    states: tuple[StrEnum, ...]\n    more: int = 7\n\n\ndef",
    ),
    "protocol/admission.py": (
        "    at_ms: float\n",
        "    at_ms: float\n\n    def __post_init__(self):\n        raise ValueError('planted')\n",
    ),
    "operators/__init__.py": ("run it, on rows and on Arrow batches.", 'run it."""\nMORE = 7\n"""Planted.'),
    "operators/encoding.py": ("def _mix(", "def group_of_encoded(*_):\n    return -7\n\n\ndef _mix("),
    "operators/sinks.py": ("def _recover_and_commit(", "def _recover_otherwise("),
    "ids.py": ("from __future__ import annotations\n", "from __future__ import annotations\n\nCOUNT = 0\n"),
}
"""File -> what is replaced in it: none of these can be planted while the program runs."""
LOOKED_AT = """
import json
from barrier_tck.harness.reference.bugs.catalogue import planted
from barrier_tck.harness.reference.bugs.patched_copy import patch_of_this_process
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.reference_impl import operators
from barrier_tck.reference_impl.operators import encoding
from barrier_tck.reference_impl.operators.sinks import TransactionalFileSink
from barrier_tck.reference_impl.protocol.admission import WaitUntil
from barrier_tck.reference_impl.protocol.alignment import AlignmentState, BarrierAligner, ChannelClosed
from barrier_tck.reference_impl.protocol.table import Leads
from barrier_tck.reference_impl.storage.memory_files import MemoryFiles

def raised():
    try:
        WaitUntil(1.0)
    except ValueError as error:
        return str(error)

with planted(TrialPlan(patch=patch_of_this_process())):
    print(json.dumps({
        "added": BarrierAligner._rows[AlignmentState.IDLE][ChannelClosed][0].__name__,
        "taken away": [event.__name__ for event in BarrierAligner._rows[AlignmentState.HOLDING]],
        "default": MemoryFiles.__init__.__defaults__,
        "field": Leads(len, ()).more,
        "post_init": raised(),
        "of the package": operators.MORE,
        "second definition": encoding.group_of_encoded(b"", 8),
        "renamed": [hasattr(TransactionalFileSink, f"_recover_{name}") for name in ("and_commit", "otherwise")],
    }))
"""


def everything() -> str:
    """Return a diff with all these changes, and a handler that a machine did not have, and without one that it had."""

    def changed(file: str, text: str) -> str:
        before, after = CHANGES[file]
        assert text.count(before) >= 1
        text = text.replace(before, after)
        if file == "protocol/alignment.py":
            added = "    def _on_closed_early(self, event):\n        return ()\n\n    RULES: ClassVar"
            text = text.replace("    RULES: ClassVar", added)
            taken_away = "            SnapshotFailed: leads(_on_snapshot_ended, AlignmentState.IDLE),\n"
            assert text.count(taken_away) == 1
            text = text.replace(taken_away, "")
        if file == "operators/encoding.py":
            # The last definition of a name counts.
            text += "\n\ndef group_of_encoded(*_):\n    return -8\n"
        return text

    return "".join(diff_of(file, partial(changed, file)) for file in CHANGES)


@pytest.mark.long
def test_whatever_a_diff_changes_is_planted_in_a_process_of_its_own(tmp_path: Path) -> None:
    environment = make_copy(everything(), "a.diff", tmp_path)
    command = [sys.executable, "-P", "-c", LOOKED_AT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "added": "_on_closed_early",
        "taken away": ["SnapshotTaken"],
        "default": [17],
        "field": 7,
        "post_init": "planted",
        "of the package": 7,
        "second definition": -8,
        "renamed": [False, True],
    }


def sink(after: str, context: int = 3) -> str:
    return diff_of(
        "operators/sinks.py",
        lambda text: text.replace(
            'restored."""\n        self.commit(transactions)', f'restored."""\n        {after}'
        ),
        context,
    )


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (sink("self.commit(("), "is no Python: line"),
        (sink("self.commit(transactionz)"), "'transactionz' is not known there"),
        (sink("(lambda: [wanted for _ in ()])()"), "'wanted' is not known there"),
        (sink("self.commit(transactions)  # as before"), "changes nothing"),
        (
            diff_of("ids.py", lambda text: text + "\n\nMORE = 1 // 0\n"),
            "cannot be imported: ZeroDivisionError",
        ),
        (
            diff_of("ids.py", lambda text: text.replace("class SubtaskId", "class Subtask")),
            "SubtaskId' is not known|cannot import",
        ),
        (
            diff_of("spark/daemon.py", lambda text: text.replace("prefer_installed()  #", "print  #")),
            "--world spark",
        ),
        ("id = 'MY-01'\nclause = 'SNK-1'\ndescription = 'x'\n", "description is one sentence|at least one"),
    ],
    ids=range(8),
)
def test_what_cannot_be_planted_ends_with_3_and_the_reason(
    patch: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.diff").write_text(patch)
    assert run(["mutants", "--patch", str(tmp_path / "my.diff"), "--out", str(tmp_path / "runs")]) == 3
    error = capsys.readouterr().err
    assert any(part in " ".join(error.split()) for part in problem.split("|")), error
    assert not (tmp_path / "runs").exists()


def test_a_plan_with_a_patch_runs_in_no_other_process() -> None:
    with pytest.raises(UsageProblem, match="a process of its own"), planted(TrialPlan(patch=DIFF)):
        raise AssertionError("it ran without its patch")


SINK = ("operators/sinks.py::TransactionalFileSink._recover_and_commit", "self.commit(transactions)")
RATE = ("protocol/restarts.py::ExponentialDelay.next_delay_ms", "self._in_row += 1")


HOPELESS = """\
id = "MY-01"
clause = "REC-6"
description = "Changes nothing."

[[change]]
at = "operators/sinks.py::TransactionalFileSink._recover_and_commit"
before = "self.commit(transactions)"
after = "self.commit(tuple(transactions))"

[plan]
workload = { name = "keyed-totals", batches = 10, keys = 5 }
limits = { virtual_ms = 5, wall_s = 5 }
"""
"""A plan with which the reference as it is fails too: there is no time in which its job could begin."""


def my_bug(place: tuple[str, str], after: str, clause: str = "SNK-1", wall_s: int = 600) -> str:
    """Return the file of a bug, with a plan in which a sink is killed."""
    return f"""\
id = "MY-01"
clause = "{clause}"
description = "A bug."

[[change]]
at = "{place[0]}"
before = "{place[1]}"
after = "{after}"

[plan]
workload = {{ name = "keyed-totals", batches = 10, keys = 5 }}
limits = {{ virtual_ms = 5000, wall_s = {wall_s} }}

[[plan.faults]]
fault = {{ type = "kill_worker", subtask = "sink[0]" }}
trigger = {{ type = "after", point = "checkpoint_completed", nth = 1 }}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "code", "said"),
    [
        (
            my_bug(RATE, "self._in_row += 2"),
            2,
            ("NOT REACHED (SNK-1): the patched lines never ran in 3 trials",),
        ),
        pytest.param(
            my_bug(SINK, "while True: pass", wall_s=2),
            2,
            ("ENDLESS (SNK-1): trial 1", "did not end within 2 s", "_recover_and_commit"),
            marks=pytest.mark.nightly,
        ),
        (
            my_bug(SINK, "self.commit(transactions[1:])", "LOC-3"),
            1,
            ("MISSED in 3 trials (LOC-3); the patched lines ran in 3 of them", "said INVALID in 3 trials"),
        ),
        pytest.param(
            my_bug(SINK, "import os; os._exit(0)"),
            2,
            ("ended with exit code 0, without a verdict",),
            marks=pytest.mark.long,
        ),
    ],
    ids=["not-reached", "endless", "seen-by-others", "ended"],
)
def test_what_became_of_a_patch_is_said_and_in_the_exit_code(
    bug: str, code: int, said: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text(bug)
    arguments = ["--patch", str(tmp_path / "my.toml"), "--trials", "3", "--out", str(tmp_path / "runs")]
    assert run(["mutants", *arguments]) == code
    printed = " ".join("".join(capfd.readouterr()).split())
    for words in said:
        assert words in printed


@pytest.mark.nightly
def test_a_plan_with_which_the_reference_fails_too_shows_nothing_about_a_patch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text(HOPELESS)
    arguments = ["--patch", str(tmp_path / "my.toml"), "--trials", "3", "--out", str(tmp_path / "runs")]
    assert run(["mutants", *arguments]) == 2
    printed = " ".join(capfd.readouterr().out.split())
    assert "MY-01 FAILS WITHOUT IT: of its plan progress says INVALID" in printed
    assert "or this is a bug of the reference" in printed
    (plain,) = tmp_path.glob("runs/mutants-*/MY-01-without-patch.json")
    written = json.loads((plain.parent / "mutants.json").read_text())
    assert (written["caught"], written["mutants"][0]["caught"]) == (0, False)
    assert read_plan(plain).patch is None
    assert run(["replay", str(plain)]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--patch", "a.diff", "--patch", "b.diff"), "plant one bug at a time"),
        (("--only", "SI-02", "--trials", "5"), "--trials is for --patch"),
        (("--seed", "5"), "--seed is for --patch"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mutants", *arguments]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.nightly
def test_the_saved_plan_of_a_patch_shows_it_again_and_no_other_patch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine, other = tmp_path / "my.toml", tmp_path / "other.toml"
    mine.write_text(my_bug(SINK, "self.commit(transactions[1:])"))
    other.write_text(my_bug(SINK, "self.commit(transactions[2:])"))
    assert run(["mutants", "--patch", str(mine), "--out", str(tmp_path / "runs"), "--json"]) == 0
    printed = capfd.readouterr()
    result = json.loads(printed.out.splitlines()[-1])
    saved = Path(result["run_directory"]) / result["mutants"][0]["plan"]
    plan = read_plan(saved)
    assert plan.patch == mine.read_text()
    (pasted,) = (line for line in printed.err.splitlines() if line.startswith("  replays: barrier-tck "))
    assert run(shlex.split(pasted)[2:]) == 1
    assert f"{saved}: invalid" in " ".join(capfd.readouterr().out.split())
    write(msgspec.structs.replace(plan, patch=None), tmp_path / "plain.json")
    for trusted in ([], ["--trust"]):
        assert run(["replay", str(saved), "--patch", str(other), *trusted]) == 3
        assert "carries another patch than" in " ".join(capfd.readouterr().err.split())
        assert run(["replay", str(tmp_path / "plain.json"), "--patch", str(mine), *trusted]) == 3
        assert "carries no patch" in " ".join(capfd.readouterr().err.split())


@pytest.mark.nightly
def test_after_ctrl_c_there_is_one_line_and_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(my_bug(SINK, "while True: pass", wall_s=600))
    arguments = ["mutants", "--patch", "my.toml", "--out", "runs"]
    command = [sys.executable, "-P", "-m", "barrier_tck.harness.cli.main", *arguments]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores the signal, and so would all that it starts.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        # A trial's directory is below that of the run.
        eventually("a trial runs", lambda: list(tmp_path.glob("runs/*/trial-*")))
        # Each process passes it on once. A group that is sent it by kill, not by a terminal, would get it three times.
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert error == "barrier-tck: interrupted\n"
    assert list(tmp_path.glob("runs/*")) == []
