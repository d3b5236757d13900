"""Everything that the workflows run exists: tox environments, campaign files, reports, actions; grain: text."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from barrier_tck.conformance import test_local_recovery
from barrier_tck.harness.campaign.configuration import read_configuration
from barrier_tck.harness.cli.main import run as run_command
from barrier_tck.reports.write import ReportPaths
from tests.spark_exploration import problems
from tests.static_checks import CHECKS
from tests.test_tidy import ROOT
from tests.tox_file import environments

GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
ACTIONS = sorted(GITHUB.glob("actions/*/action.yml"))


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text())
    return loaded


def jobs() -> dict[str, dict[str, Any]]:
    return {name: job for path in WORKFLOWS for name, job in load(path)["jobs"].items()}


def steps() -> list[dict[str, Any]]:
    inside = [step for path in ACTIONS for step in load(path)["runs"]["steps"]]
    return inside + [step for job in jobs().values() for step in job["steps"]]


def spelled_out(job: dict[str, Any], text: str) -> list[str]:
    """Return the text once for every combination of the job's matrix."""
    matrix: dict[str, list[Any]] = dict(job.get("strategy", {}).get("matrix", {}))
    listed: list[dict[str, str]] = matrix.pop("include", [])
    texts = []
    for combined in listed or [
        dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())
    ]:
        found = text
        for key, value in combined.items():
            found = found.replace(f"${{{{ matrix.{key} }}}}", value)
        texts.append(found)
    return texts


def test_there_is_a_workflow_for_the_tests_and_for_the_campaigns() -> None:
    commands = [
        command for job in jobs().values() for step in job["steps"] for command in [step.get("run", "")]
    ]
    assert any("tox -e tests" in command for command in commands)
    assert any("tox -e campaign" in command for command in commands)


def test_tox_environments_and_campaign_files_of_the_workflows_exist() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    run = [
        re.search(r"tox -e (\w+)(?: -- (\S+))?", command)
        for job in jobs().values()
        for step in job["steps"]
        for command in spelled_out(job, step.get("run", ""))
    ]
    named = [match.groups() for match in run if match]
    assert {environment for environment, _ in named} == {
        "tests",
        "docs",
        "explore",
        "nightly",
        "campaign",
        "night",
        *(name for name in environments() if name.startswith("spark")),
    }
    files = {file for environment, file in named if file and environment == "campaign"}
    assert files == {f"campaigns/{path.name}" for path in (ROOT / "campaigns").glob("*.toml")}
    for environment, file in named:
        assert environment in environments()
        if file and environment == "campaign":
            assert "{posargs:" in tox.get(f"testenv:{environment}", "commands")
            read_configuration(ROOT / file)


def tox_calls() -> dict[str, list[str]]:
    """Return the arguments after ``python -m tox`` of every step, by environment; of a matrix, those of one job."""
    calls = {}
    for job in jobs().values():
        for step in job["steps"]:
            for command in spelled_out(job, step.get("run", ""))[:1]:
                if match := re.search(r"python -m tox (-e (\w+).*?)(?:\|\||$)", command, re.MULTILINE):
                    calls[f"{job['name']}: {match[2]}"] = shlex.split(match[1])
    return calls


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in tox_calls().items()])
def test_tox_reads_each_call_of_a_workflow_and_our_commands_know_their_options(call: list[str]) -> None:
    """The nearest to running it: tox says what it would run, and each command is asked for its help."""
    words = [sys.executable, "-m", "tox", "config", *call[:2], "-k", "commands", *call[2:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, found = done.stdout.partition("commands =")
    commands = [line.strip() for line in found.splitlines() if line.strip()]
    assert commands and "Exception" not in done.stdout, done.stdout
    for argument in call[3:]:
        assert any(argument in shlex.split(command) for command in commands), "tox passes it on"
    for command in commands:
        program, *arguments = shlex.split(command)
        if Path(program).name == "barrier-tck":
            assert run_command([*arguments, "--help"]) == 0, command


def test_workflows_are_linted_before_a_merge_and_by_the_same_linter_in_both_places() -> None:
    checked = [line for line in CHECKS.splitlines() if line.startswith(("check-jsonschema", "zizmor"))]
    named = {pattern for line in checked for pattern in line.split() if "/" in pattern}
    linted = {path for pattern in named for path in ROOT.glob(pattern)}
    assert {*WORKFLOWS, *ACTIONS, ROOT / "harness" / "cli" / "skeletons" / "ci.yml"} <= linted
    assert any("zizmor" in line and " .github" in line for line in checked)
    linter = "github.com/rhysd/actionlint/cmd/actionlint@"
    in_ci = re.search(rf"{linter}(\S+)", (GITHUB / "workflows" / "ci.yml").read_text())
    script = (ROOT / ".ci" / "run").read_text()
    in_script = re.search(r"^actionlint_version=(\S+)$", script, re.MULTILINE)
    assert in_ci is not None and in_script is not None and in_ci[1] == in_script[1]
    assert f"{linter}$actionlint_version" in script


def test_every_campaign_that_gates_a_merge_has_a_seed_and_no_campaign_of_the_night() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    for job in load(GITHUB / "workflows" / "ci.yml")["jobs"].values():
        for step in job["steps"]:
            for command in spelled_out(job, step.get("run", "")):
                assert "tox -e campaign" not in command or re.search(r" --seed \d+", command), command
    for environment in ("tests", "explore"):
        for command in tox.get(f"testenv:{environment}", "commands").splitlines():
            draws = "conformance" in command or "spark_exploration" in command
            assert not draws or re.search(r"--seed \d+", command), command
    assert "--seed" not in tox.get("testenv:nightly", "commands")


def test_every_campaign_file_runs_each_night() -> None:
    job = load(GITHUB / "workflows" / "nightly.yml")["jobs"]["campaigns"]
    run = [command for step in job["steps"] for command in spelled_out(job, step.get("run", ""))]
    missing = [
        path.name
        for path in (ROOT / "campaigns").glob("*.toml")
        if f"python -m tox -e campaign -- campaigns/{path.name} --budget 50m || test $? -eq 2" not in run
    ]
    assert not missing


def test_a_night_is_judged_by_all_that_it_left_with_real_stores_and_kept_for_the_next_ones() -> None:
    nightly = load(GITHUB / "workflows" / "nightly.yml")["jobs"]
    others = [name for name in nightly if name != "night"]
    assert sorted(nightly["night"]["needs"]) == sorted(others)
    assert nightly["night"]["if"] == "always()"
    for name in others:
        used = {step["uses"]: step.get("with", {}) for step in nightly[name]["steps"] if "uses" in step}
        assert used["./.github/actions/prepare"] == {"stores": "true"}, (
            "tests on real stores would be skipped"
        )
        assert used["actions/upload-artifact@v4"]["name"].startswith("nightly")
    used = {step["uses"]: step.get("with", {}) for step in nightly["night"]["steps"] if "uses" in step}
    assert used["actions/download-artifact@v4"]["pattern"] == "nightly*"
    restored, saved = (used[f"actions/cache/{what}@v4"] for what in ("restore", "save"))
    assert saved["key"] == restored["key"] and restored["key"].startswith(restored["restore-keys"])
    commands = (ROOT / "tox.ini").read_text()
    night = commands.partition("[testenv:night]")[2].partition("[testenv:")[0].partition("\n[")[0]
    assert f"--out {{toxinidir}}/{saved['path']}" in night
    for session in re.findall(
        r"pytest .*", commands.partition("[testenv:nightly]")[2].partition("[testenv:")[0]
    ):
        assert "--junitxml {toxinidir}/runs/tests/" in session, "the page of the nights shows each session"


def test_stores_are_those_of_the_ci_script() -> None:
    """What a night runs on is what a merge was tested on."""
    script, action = (
        (ROOT / ".ci" / "run").read_text(),
        (GITHUB / "actions" / "prepare" / "action.yml").read_text(),
    )
    for name in ("versitygw_version", "hadoop_version", "hadoop_sha256"):
        found = re.search(rf"^{name}=(\S+)$", script, re.MULTILINE)
        assert found is not None
        assert found[1] in action


def test_ci_explores_spark_after_the_tests_and_says_what_to_do_if_that_fails() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "for environment in tests explore; do" in script
    assert "tox -e explore" in script
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert "pytest tests/planted_bugs_on_spark.py" in tox.get("testenv:explore", "commands")
    assert "-e docs" in tox.get("testenv:explore", "commands"), "what gates a merge builds the documents"


def test_what_is_too_long_for_one_environment_runs_in_the_other() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    same = "pytest tests conformance --system reference-simulated -m"
    assert f'{same} "not long and not nightly"' in tox.get("testenv:tests", "commands")
    assert f'{same} "long and not nightly and not spark"' in tox.get("testenv:explore", "commands")
    assert f'{same} "nightly or (long and spark)"' in tox.get("testenv:nightly", "commands")
    on_clusters = [
        line
        for environment in ("tests", "explore")
        for line in tox.get(f"testenv:{environment}", "commands").splitlines()
        if "--system reference-spark" in line
    ]
    assert '-m "not long_on_clusters and not nightly_on_clusters"' in on_clusters[0]
    assert "conformance --system reference-spark" in on_clusters[1]
    assert '-m "long_on_clusters and not nightly_on_clusters"' in on_clusters[1]
    everything = "pytest conformance --system reference-spark -m nightly_on_clusters"
    assert everything in tox.get("testenv:nightly", "commands")


def test_every_cell_of_the_matrix_of_fallbacks_is_tried_each_night() -> None:
    """Where trials take long, other commands try a few of the cells (``tests/conformance/test_fallback_cells.py``)."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    commands = tox.get("testenv:nightly", "commands").splitlines()
    (session,) = (line for line in commands if "--every-fallback" in line)
    assert "pytest conformance/test_local_recovery.py --system reference-spark" in session
    assert " -m " not in session, "no mark takes a cell out"
    selected = re.search(r" -k (\w+)", session)
    assert selected is not None
    tests = [name for name in vars(test_local_recovery) if name.startswith("test_") and selected[1] in name]
    assert len(tests) == 1, "what is selected is there"
    cells = next(
        mark.args[1]
        for mark in getattr(test_local_recovery, tests[0]).pytestmark
        if mark.name == "parametrize"
    )
    assert len(cells) == len(test_local_recovery.DAMAGES) * len(test_local_recovery.COLUMNS)


def summary_of(**changes: Any) -> dict[str, Any]:
    counts = {"trials": 40, "valid": 40, "invalid": 0, "unknown": 0, "interrupted": False}
    nothing = {"nothing_happened": changes.get("unknown", 0), "checker_crashed": 0, "not_run": 0}
    return {**counts, "run_directory": "runs/explore-1", "findings": [], "why_unknown": nothing, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"unknown": 2}, []),
        ({"trials": 10, "unknown": 1}, []),
        ({"unknown": 3}, ["in 3 of 40 trials nothing happened"]),
        ({"unknown": 1, "why_unknown": {"not_run": 1}}, []),
        (
            {"unknown": 2, "why_unknown": {"checker_crashed": 1, "not_run": 1}},
            ["2 of 40 trials were not judged", "a checker crashed in 1, 1 could not be run"],
        ),
        ({"invalid": 1}, ["1 of 40 trials are INVALID", "runs/explore-1", "plant the bug"]),
        ({"trials": 2}, ["only 2 trials ran"]),
        ({"interrupted": True}, ["interrupted"]),
        ({"findings": [{"trial": 3, "summary": "a fault did not fire"}]}, []),
        ({"findings": [{"trial": None, "summary": "no duplicate was seen"}]}, ["no duplicate was seen"]),
        ({"trials": 8, "findings": [{"trial": None, "summary": "no duplicate was seen"}]}, []),
    ],
)
def test_exploration_fails_for_any_invalid_trial_and_for_many_unknown_ones(
    changes: dict[str, Any], said: list[str]
) -> None:
    found = list(problems(summary_of(**changes)))
    assert bool(found) == bool(said)
    assert all(any(part in problem for problem in found) for part in said)


def test_reports_are_kept_even_if_the_campaign_failed() -> None:
    uploads = [step for step in steps() if str(step.get("uses", "")).startswith("actions/upload-artifact")]
    assert uploads
    for step in uploads:
        if step["with"]["name"] == "documentation":
            continue
        assert step["if"] == "always()"
        if step["with"]["name"] == "nights":  # the page of the nights, which has no reports of its own
            continue
        kept = {line.split("/", 2)[2] for line in step["with"]["path"].split() if line.count("/") > 1}
        assert {"report.html", "report.json", "junit.xml", "cuts/*.html"} <= kept
        assert len(ReportPaths.__dataclass_fields__) == 4


def test_githubs_variables_reach_the_campaign_inside_tox() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    passed = tox.get("testenv", "pass_env").split()
    read = {"GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"}
    assert read <= set(passed)
    given = {name for job in jobs().values() for step in job["steps"] for name in step.get("env", {})}
    assert given <= set(passed)


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.parent.name + "/" + path.name)
def test_actions_have_a_version_or_are_ours(path: Path) -> None:
    for used in re.findall(r"uses: (\S+)", path.read_text()):
        if used.startswith("./"):
            assert (ROOT / used / "action.yml").is_file()
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+(/[\w-]+)?@v\d+", used), used


def test_a_job_may_only_read_and_has_a_time_limit() -> None:
    for path in WORKFLOWS:
        assert load(path)["permissions"] == {"contents": "read"}
    for name, job in jobs().items():
        assert job["timeout-minutes"] <= (350 if name == "nightly" else 60), name
