"""Releases are bisected: pip lists and installs them, and nothing is left. Grain: the command, and small wheels.

No network is needed: the releases of barrier-tck are wheels with a command that prints a verdict.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from barrier_tck.harness.campaign import bisected_releases
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan, to_json
from barrier_tck.harness.support.work_directories import work_parents
from tests.test_tidy import ROOT
from tests.waiting import eventually

MAIN = """
import json, sys
VERDICT = {verdict!r}
if VERDICT == "hangs":
    import time
    time.sleep(600)
if VERDICT == "broken":
    sys.exit("this release cannot read the plan")
print("replaying", sys.argv[1:])
print(json.dumps({{"verdict": VERDICT}}))
"""
RELEASES = {
    "0.1.0": "valid",
    "0.2.0": "invalid",
    "0.2.1": "broken",
    "0.3.0": "invalid",
    "0.4.0rc1": "broken",
    "0.4.0": "invalid",
}


def write_wheel(
    folder: Path, name: str, version: str, modules: Mapping[str, str], needs: str | None = None
) -> None:
    """Write a wheel of some modules, as a build tool would."""
    stem = f"{name.replace('-', '_')}-{version}"
    needed = "" if needs is None else f"Requires-Dist: {needs}\n"
    files = {
        **modules,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, record: "".join(f"{path},,\n" for path in [*files, record])}.items():
            wheel.writestr(path, text)


def write_release(
    folder: Path,
    version: str,
    verdict: str,
    needs: str | None = None,
    more: Mapping[str, str] | None = None,
) -> None:
    """Write a release of barrier-tck whose command prints a verdict; ``more``: other modules, or other code."""
    packages = ("barrier_tck", "barrier_tck/harness", "barrier_tck/harness/cli")
    modules = {f"{package}/__init__.py": "" for package in packages}
    modules["barrier_tck/harness/cli/main.py"] = MAIN.format(verdict=verdict)
    write_wheel(folder, "barrier-tck", version, {**modules, **(more or {})}, needs)


@pytest.fixture(autouse=True)
def _without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip reach no index, even where it is configured with one, and give up soon."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version, verdict in RELEASES.items():
        write_release(folder, version, verdict)
    return folder


@pytest.fixture(name="plan")
def _plan(tmp_path: Path) -> str:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    return str(plan)


def left_behind() -> list[Path]:
    """Return the temporary directories of this process."""
    return [
        path
        for parent in work_parents()
        for path in parent.glob(f"barrier-tck-work-releases-{os.getpid()}-*")
    ]


def test_the_first_release_that_fails_is_found_and_one_that_cannot_run_is_passed_over(
    folder: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bisect", plan, "0.1.0", "0.4.0", "--releases", "--find-links", str(folder), "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out.splitlines()[-1])
    assert answer["suspects"] == ["0.2.0"]
    assert answer["tried"] == {"0.1.0": "valid", "0.4.0": "invalid", "0.2.1": "unknown", "0.2.0": "invalid"}
    assert "5 releases from barrier-tck 0.1.0 to barrier-tck 0.4.0" in printed.err, "and no pre-release"
    assert "installing barrier-tck 0.1.0" in printed.err
    assert "unknown  barrier-tck 0.2.1: this release cannot read the plan" in printed.err
    assert left_behind() == []


def test_one_that_cannot_be_installed_is_a_suspect_and_why_is_said(
    folder: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_release(folder, "0.2.0", "valid", needs="nobody-has-this>=1")
    write_release(folder, "0.2.1", "invalid")
    assert run(["bisect", plan, "0.1.0", "0.2.1", "--find-links", str(folder), "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["suspects"] == ["0.2.0", "0.2.1"]
    assert (
        "unknown  barrier-tck 0.2.0: pip cannot install it: no connection to the package index" in printed.err
    )
    assert left_behind() == []


def test_releases_of_another_package_are_bisected_with_this_barrier_tck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = (ROOT / "harness" / "cli" / "skeletons" / "my_system.py.txt").read_text()
    wrong = right.replace("position += len(batch)", "position += len(batch) + 1")
    assert wrong != right
    for version, text in (("1.0", right), ("1.1", wrong)):
        modules = {
            "my_system.py": text.replace("import pyarrow as pa", "import pyarrow as pa\nimport beside"),
            f"my_system-{version}.data/scripts/tool.py": "",
        }
        write_wheel(tmp_path, "my-system", version, modules)
    # A checkout of the package would hide each of its releases; what else is on the path stays there.
    checkout, others = tmp_path / "checkout", tmp_path / "others"
    for folder, module, text in (
        (checkout, "my_system.py", "raise ImportError('the checkout')"),
        (others, "beside.py", ""),
    ):
        folder.mkdir()
        (folder / module).write_text(text)
    path = [str(checkout), str(others), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    plan = tmp_path / "plan.json"
    plan.write_text(
        to_json(TrialPlan(workload=WorkloadPlan(name="my_system:MyWorkload", batches=2, batch_records=2)))
    )
    words = ["bisect", str(plan), "1.0", "1.1", "--package", "My.System", "--find-links", str(tmp_path)]
    words += ["--system", "my_system:MySystem"]
    assert run(words) == 3
    assert "give --trust" in " ".join(capsys.readouterr().err.split())
    assert run([*words, "--trust"]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("the first release that fails:\n  my-system 1.1\n"), printed.out + printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0.1.0", "0.9.0"], "there is no release 0.9.0 of barrier-tck for Python"),
        (["0.1.0", "0.9.0"], "take two of 0.1.0, 0.2.0, 0.2.1, 0.3.0, 0.4.0"),
        (["0.4.0", "0.1.0"], "name the older release first"),
        (["0.1", "0.1.0"], "0.1 and 0.1.0 are the same release"),
        (["0.1.0", "0.4.0", "--index", "nonsense"], "--index is 'nonsense', which is no URL"),
        (["0.1.0", "0.4.0", "--index", ""], "--index is '', which is no URL"),
        (["0.1.0", "0.4.0", "--index", "https://"], "--index is 'https://', which is no URL"),
        (["0.1.0", "0.4.0", "--index", "http://[::1"], "which is no URL"),
        (["0.1.0", "0.4.0", "--system", "reference-spork"], "did you mean 'reference-spark'?"),
        (["main", "0.1.0"], "'main' is no version"),
        (["0.1.0", "0.4.0", "--package", "../x"], "is no name of a package"),
        (
            ["0.1.0", "0.4.0", "--package", "unheard-of"],
            "pip finds no releases of unheard-of: No matching distri",
        ),
        (["0.1.0", "0.4.0", "--repository", "."], "--repository is for commits"),
        (["0.3.0", "0.4.0"], "the good release is to be valid, but the plan is invalid at barrier-tck 0.3.0"),
        (["0.2.1", "0.4.0"], "unknown at barrier-tck 0.2.1: this release cannot read the plan"),
    ],
)
def test_what_cannot_be_bisected_is_refused(
    words: list[str], said: str, folder: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bisect", plan, *words, "--find-links", str(folder)]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert said in told
    assert ("installing" in told) == ("at barrier-tck" in said), "all that can be is refused before"
    assert left_behind() == []


def test_what_only_an_earlier_release_has_is_gone_for_the_next(folder: Path, plan: str) -> None:
    write_release(folder, "1.0", "valid", more={"only_before.py": ""})
    now = (
        "import importlib.util\nVERDICT = 'valid' if importlib.util.find_spec('only_before') else 'invalid'\n"
    )
    main = MAIN.format(verdict="invalid").replace("VERDICT = 'invalid'\n", now)
    write_release(folder, "1.1", "invalid", more={"barrier_tck/harness/cli/main.py": main})
    assert run(["bisect", plan, "1.0", "1.1", "--find-links", str(folder)]) == 0


def test_settings_of_pip_that_would_send_a_release_elsewhere_or_hide_the_list_do_not_hold(
    folder: Path, plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON"):
        monkeypatch.setenv(name, str(elsewhere))
    for name in ("PIP_USER", "PIP_QUIET", "PIP_VERBOSE", "PIP_DRY_RUN"):
        monkeypatch.setenv(name, "2" if name == "PIP_QUIET" else "1")
    assert run(["bisect", plan, "0.1.0", "0.2.0", "--find-links", str(folder)]) == 0
    assert not elsewhere.exists()


def test_a_release_that_a_configuration_file_sends_elsewhere_is_unknown_and_why_is_said(
    folder: Path,
    plan: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nquiet = 2\n[install]\ntarget = {tmp_path / 'elsewhere'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    assert run(["bisect", plan, "0.1.0", "0.2.0", "--find-links", str(folder)]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "unknown at barrier-tck 0.1.0: pip has installed it somewhere else than into the temporary" in told


def test_a_version_that_has_no_order_is_left_out(
    folder: Path, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "barrier-tck-2004d.tar.gz").write_text("")  # pip opens only what it installs
    assert run(["bisect", plan, "0.1.0", "0.9.0", "--find-links", str(folder)]) == 3
    assert "take two of 0.1.0, 0.2.0, 0.2.1, 0.3.0, 0.4.0" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("WARNING: pip index is an experiment\n", "it did not say why"),
        ("no room\nWARNING: pip index is an experiment\n", "no room"),
        ("WARNING: a\nERROR: No such thing\nWARNING: b\n", "No such thing"),
    ],
)
def test_a_warning_of_pip_is_not_taken_for_the_reason(stderr: str, said: str) -> None:
    assert bisected_releases._said_by_pip(stderr) == said


def test_a_folder_that_is_not_there_and_an_index_that_does_not_answer_are_told(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bisect", plan, "0.1.0", "0.4.0", "--find-links", str(tmp_path / "none")]) == 3
    assert "is no folder; name one that has the wheels of barrier-tck" in " ".join(
        capsys.readouterr().err.split()
    )
    assert run(["bisect", plan, "0.1.0", "0.4.0", "--index", "http://127.0.0.1:9/simple"]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "no connection to the package index" in told and "Connection refused" in told


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)],
    ids=["SIGINT", "SIGTERM"],
)
def test_an_interrupted_command_leaves_no_process_and_no_directory(
    number: signal.Signals, folder: Path, plan: str, tmp_path: Path
) -> None:
    write_release(folder, "0.1.0", "hangs")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["bisect", plan, "0.1.0", "0.4.0", "--find-links", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "barrier_tck.harness.cli.main", *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without job control starts what it runs in the background with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    while "running the plan with" not in (line := process.stderr.readline()):
        assert line, "it ended before"
    family = eventually(
        "the release's own command runs",
        lambda: [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "replay" in child.cmdline()
        ],
    )
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert not any(child.is_running() for child in family)
    assert list(temporary.iterdir()) == []
