"""Files that ``init`` writes run unchanged; faults and campaign files can be listed.

Grain: commands in this process, and skeletons as users get them.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from barrier_tck.faults.catalogue import FAULTS, KINDS
from barrier_tck.faults.fault import tag_of
from barrier_tck.harness.campaign.configuration import read_configuration
from barrier_tck.harness.certify.backend.suite import certify
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.shipped import SKELETONS, shipped_campaigns
from tests.harness.cli.test_cli import last_json
from tests.test_tidy import ROOT

QUICK = 0.05
"""The share of the examples that a quick certification runs."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in ("other", *(Path(skeleton.file).stem for skeleton in SKELETONS.values())):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def written(what: str, capsys: pytest.CaptureFixture[str], *file: str) -> list[str]:
    """Write a first file; returns the words of the command that uses it."""
    capsys.readouterr()
    assert cli.run(["init", what, *file, "--json"]) == 0
    use: str = last_json(capsys)["use"]
    return use.removeprefix("barrier-tck ").split()


def changed(file: Path, before: str, after: str) -> None:
    """Replace a text that must be in a file once."""
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
    sys.modules.pop(file.stem, None)
    importlib.invalidate_caches()


@pytest.mark.long
@pytest.mark.parametrize("what", ["campaign", "system", "workload"])
def test_a_skeleton_of_a_campaign_runs_as_it_is(
    what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written(what, capsys)
    assert cli.run([*words, "--trials", "12", "--controls", "2", "--json"]) == 0
    result = last_json(capsys)
    assert (result["valid"], result["faults_fired"] > 0) == (12, True)
    if what == "workload":
        shown = [control["verdict"] for control in result["controls"]["ran"]]
        assert shown == ["invalid"] * 2, "recovery was broken on purpose"


@pytest.mark.long
def test_a_skeleton_of_a_workload_is_judged_and_not_only_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("workload", capsys)
    by_user = 'EdgePlan("source", "totals", Spread.HASH, ("user",))'
    changed(here / "my_workload.py", by_user, 'EdgePlan("source", "totals", Spread.FORWARD)')
    # One trial of a seed whose job ends soon: a job that restarts until its time is over takes half a minute.
    assert cli.run([*words, "--trials", "1", "--seed", "2", "--no-store"]) == 1


@pytest.mark.nightly
def test_a_skeleton_of_a_storage_is_certified_and_a_wrong_one_is_not(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("storage", capsys)
    assert cli.run([*words, "--level", "contract"]) == 0
    changed(here / "my_storage.py", "file.unlink(missing_ok=True)  #", "pass  #")
    capsys.readouterr()
    assert cli.run([*words, "--level", "contract"]) == 1
    assert "a-failed-write-leaves-nothing (STO-2): failed" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("right", [True, False])
def test_a_skeleton_of_a_query_is_run_and_judged(
    right: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("query", capsys)
    if not right:  # each micro-batch takes the place of the one before
        changed(here / "my_query.py", "batch_id={batch_id}", "batch_id=0")
    assert cli.run([*words[:-2], "--trials", "4", "--no-store"]) == (0 if right else 1)


@pytest.mark.long
def test_a_workflow_runs_a_campaign_that_fails_with_its_verdict(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert cli.run(["init", "ci"]) == 0
    job = yaml.safe_load((here / ".github" / "workflows" / "barrier-tck.yml").read_text())["jobs"]["campaign"]
    (run,) = [step["run"] for step in job["steps"] if "barrier-tck campaign" in step.get("run", "")]
    (kept,) = [step["with"]["path"] for step in job["steps"] if "cache" in step.get("uses", "")]
    written("system", capsys)
    given = re.sub(r"--budget \$\{\{.*?\}\}", "--trials 12", run.strip()).split()[1:]
    assert given.count("my_query:job") == 1
    given[given.index("--query")] = "--system"
    given[given.index("my_query:job")] = "my_system:MySystem"
    assert cli.run(given) == 0
    assert [*(here / "runs").iterdir()], "what the last step keeps"
    changed(here / "my_system.py", "position += len(batch)", "position += len(batch) + 1")
    assert cli.run(given) == 1
    assert [*(here / kept / "plans").rglob("*.json")], "the plans that failed are tried first the next time"


def test_skeletons_point_to_pages_that_everybody_can_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    documents = project["urls"]["Documentation"].replace("/tree/", "/blob/") + "/"
    for name, skeleton in SKELETONS.items():
        texts = [skeleton.text(), *([skeleton.campaign.read_text()] if skeleton.campaign else [])]
        for text in texts:
            addresses = re.findall(r"https://[^\s#]+", text)
            assert all(one.startswith(documents) for one in addresses), name
            assert all((ROOT / "docs" / one.removeprefix(documents)).is_file() for one in addresses), name
            assert addresses, name
            assert not re.search(r"(?<!/)docs/|harness/|examples/", text), name


@pytest.mark.long
def test_a_skeleton_of_a_system_is_judged_and_not_only_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("system", capsys, "other.py")
    honest = (here / "other.py").read_text()
    point, step = "# The worker waits here, and may be killed.", "position += len(batch)"
    assert (honest.count(point), honest.count(step)) == (1, 1)
    # The position is moved first, so a worker that dies at the point loses its batch.
    (here / "other.py").write_text(honest.replace(step, "pass").replace(point, step))
    assert cli.run([*words[:-2], "--trials", "12"]) == 1


def _campaign_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.run([*words[:-2], "--trials", "20", "--out", "runs"])
    return code, " ".join(capsys.readouterr().out.split())


def test_stored_plans_of_a_skeleton_are_tried_again_without_naming_its_workload(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("system", capsys, "other.py")
    text, step = (here / "other.py").read_text(), "position += len(batch)"
    (here / "other.py").write_text(text.replace(step, f"{step} + 1"))
    asked = [*words[:-2], "--trials", "6", "--store", "plans"]
    for times in range(2):
        capsys.readouterr()
        assert cli.run(asked) == 1
        printed = capsys.readouterr()
        assert "is not tried" not in printed.out + printed.err
        assert bool(re.search(r"\d stored plans? that had failed", printed.out)) == bool(times)


@pytest.mark.parametrize("listed", [False, True])
def test_a_point_that_is_passed_and_not_listed_is_named(
    listed: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("system", capsys, f"point_{listed}.py".lower())
    file = here / words[words.index("--system") + 1].replace(":MySystem", ".py")
    text = file.read_text()
    reached = "nemesis.point_reached(ProtocolPoint.RECORDS_PROCESSED, SUBTASK, targets.worker.number)"
    assert text.count(reached) == 1
    text = text.replace(reached, f"{reached}; {reached.replace('RECORDS_PROCESSED', 'SNAPSHOT_TAKEN')}")
    if listed:
        passes = "ProtocolPoint.RECORDS_PROCESSED: plan.workload.batches"
        assert text.count(passes) == 1
        text = text.replace(passes, f"{passes}, ProtocolPoint.SNAPSHOT_TAKEN: 0")
    file.write_text(text)
    capsys.readouterr()
    cli.run([*words[:-2], "--trials", "3", "--no-store"])
    said = " ".join(capsys.readouterr().err.split())
    told = "passes points that its job() does not list, so no fault is drawn for them: snapshot_taken"
    assert said.count(told) == int(not listed)


def test_the_headline_of_a_skeleton_says_what_its_kills_did(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = _campaign_of(written("system", capsys, "other.py"), capsys)
    assert code == 0
    recovered = re.search(r"(\d+) of \1 faults fired; recoveries: (\d+); batches committed: \d+", printed)
    assert recovered is not None and recovered[1] == recovered[2] != "0", printed
    chances = re.search(
        r"would have shown: SRC-1 (\d+), REC-1 \1, SNK-1 \1, of 20 trials; not reported: REC-2", printed
    )
    assert chances is not None and int(chances[1]) > 0, printed


@pytest.mark.long
@pytest.mark.parametrize("seen", [True, False], ids=["its points are seen", "nothing is seen"])
def test_what_a_system_does_not_report_is_called_so_and_its_faults_speak(
    seen: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written("system", capsys, "other.py")
    text = re.sub(r"(?m)^ *note\((Attempt|Committed).*\n", "", (here / "other.py").read_text())
    point = "nemesis.point_reached("
    if not seen:
        text = text.replace(point, f"targets.worker.number > 1 or {point}")
    (here / "other.py").write_text(text)
    _, printed = _campaign_of(words, capsys)
    assert "recoveries: not reported; checkpoints completed: not reported" in printed
    chances = re.search(r"would have shown: (.*)", printed)
    assert chances is not None
    if seen:
        assert re.match(r"SRC-1 [1-9]\d*, REC-1 [1-9]\d*, SNK-1 [1-9]", chances[1])
    else:
        assert chances[1].startswith("not reported: SRC-1, REC-1, SNK-1, REC-2 ")


@pytest.mark.nightly
def test_a_skeleton_of_a_backend_is_the_backend_of_the_guide(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = (ROOT / "examples" / "minimal_backend" / "backend.py").read_text().partition('"""\n')[2]
    for name, mine in {
        "SortedDict": "My",
        '"sorted-dict"': '"mine"',
        "a sorted dict": "this backend",
    }.items():
        shown = shown.replace(name, mine)
    assert SKELETONS["backend"].text().partition('"""\n')[2] == shown, "the guide shows the same backend"
    written("backend", capsys)
    outcomes = certify("my_backend:MyBackend", "contract", scale=QUICK).outcomes
    statuses = [outcome.status for outcome in outcomes if outcome.level == "contract"]
    # With few examples, some kinds of steps may not be drawn.
    assert set(statuses) <= {"passed", "unknown", "skipped"}
    assert statuses.count("passed") > len(statuses) / 2


@pytest.mark.nightly
def test_a_skeleton_of_a_backend_is_certified_in_full(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written("backend", capsys)
    assert cli.run(["certify", "my_backend:MyBackend", "--level", "contract", "--no-strength"]) == 0


@pytest.mark.nightly
def test_campaign_files_come_with_the_package_and_are_found_by_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {file.stem: file for file in (ROOT / "campaigns").glob("*.toml")}
    assert set(shipped_campaigns()) == set(files)
    assert cli.run(["init"]) == 0
    listed = capsys.readouterr().out
    for name, file in files.items():
        assert f"\n{name} " in listed
        assert written(name, capsys) == ["campaign", f"{name}.toml"]
        assert read_configuration(here / f"{name}.toml") == read_configuration(file)
    (here / "ci.toml").unlink()
    assert cli.run(["campaign", "ci", "--trials", "2"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sistem"], "did you mean 'system'?"),
        (["grafs"], "did you mean 'graphs'?"),
        (["system", "taken.py"], "taken.py exists already"),
        (["system", "my-system.py"], "could not be imported"),
        (["backend", "mine.txt"], "could not be imported"),
        (["campaign", "no/where.toml"], "no is not a directory; create it first"),
        (["examples", "taken.py"], "taken.py exists already"),
        (["examples", "my-examples"], "could not be imported"),
        (["exampels"], "did you mean 'examples'?"),
        (["x" * 300], "there is no file 'xxx"),
    ],
)
def test_what_cannot_be_written_is_told(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "taken.py").touch()
    assert cli.run(["init", *arguments]) == 3
    assert words in capsys.readouterr().err


def test_examples_are_written_as_the_guide_shows_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["init", "examples", "--json"]) == 0
    assert last_json(capsys)["use"] == "python -m examples.echo_system.echo"
    files = {file for file in (ROOT / "examples").rglob("*.*") if "__pycache__" not in file.parts}
    assert {file.relative_to(here) for file in here.rglob("*.*")} == {
        file.relative_to(ROOT) for file in files
    }
    assert all((here / file.relative_to(ROOT)).read_text() == file.read_text() for file in files)
    elsewhere = re.compile(r"\]\(\.\.|(?<!/main/)docs/")
    assert not [file for file in files if elsewhere.search(file.read_text())], "what is copied stands alone"


def test_every_fault_is_listed_under_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["faults"]) == 0
    printed = capsys.readouterr().out
    assert "snapshot_taken" in printed
    assert cli.run(["faults", "--json"]) == 0
    listed = last_json(capsys)["faults"]
    assert [one["kind"] for one in listed] and {one["kind"] for one in listed} == set(KINDS)
    assert {one["type"] for one in listed} == {tag_of(fault) for fault in FAULTS}
    assert all(one["about"] for one in listed)


def test_no_two_first_files_have_one_name_and_each_name_writes_its_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(names) == len(set(names)) and {"ci", "ci.toml"} <= set(names)
    written("ci.toml", capsys)
    assert (here / "ci.toml").read_text() == shipped_campaigns()["ci"].text


def test_the_skeleton_of_a_backend_is_to_be_certified_and_that_of_a_system_to_be_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what, command in (("backend", "certify"), ("system", "campaign"), ("storage", "certify-storage")):
        capsys.readouterr()
        assert cli.run(["init", what]) == 0
        assert f"; to use it: barrier-tck {command} " in capsys.readouterr().out


def test_what_can_be_written_is_listed_in_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["init"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "the query that init query writes" in "".join(lines)
    longest = max(map(len, [*SKELETONS, *shipped_campaigns()]))
    assert longest > 16
    for line in lines:
        assert line[longest] == " " and line[longest + 1] != " ", line
