"""Certificates say what exactly was certified, and can be verified; grain: files, certificates as data, one backend."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from barrier_tck.harness.certify.engine import planted_bugs
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
from barrier_tck.harness.certify.engine.certificate_schema import page, schema
from barrier_tck.harness.certify.engine.identity import digest_of, identity_of
from barrier_tck.harness.certify.engine.planted_bugs import PlantedBug, strength_of
from barrier_tck.harness.certify.engine.verification import read_certificate
from barrier_tck.harness.certify.spark_store.targets import identity_of_store, store_target
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.notices import notices_shown
from tests.harness.cli.test_cli import last_json
from tests.test_tidy import ROOT

ONE = "what-is-no-snapshot-is-refused"
FIXTURE = ROOT / "tests" / "fixtures" / "0.1.0" / "certificates"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_backend", None)


@pytest.fixture
def certified(here: Path) -> Path:
    """Return the directory of a certificate that names its files; its outcomes are those of a fixture."""
    assert cli.run(["init", "backend"]) == 0
    data = json.loads((FIXTURE / "heap.json").read_text())
    data |= {"target": "my_backend:MyBackend", "files": {"my_backend.py": digest_of(here / "my_backend.py")}}
    (here / "run").mkdir()
    (here / "run" / "certificate.json").write_text(json.dumps(data))
    return here / "run"


def changed(directory: Path, **values: Any) -> None:
    file = directory / "certificate.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def fits(value: dict[str, Any], kind: dict[str, Any]) -> bool:
    """Return whether an object has the fields that a schema requires, and no others."""
    return {*kind["required"]} <= {*value} <= {*kind["properties"]}


def test_the_files_are_those_of_the_top_level_package_or_of_the_module(here: Path) -> None:
    package = here / "mine" / "inner"
    (package / "__pycache__").mkdir(parents=True)
    for path in (here / "mine" / "__init__.py", package / "__init__.py", package / "library.so"):
        path.write_text(f"of {path.name}")
    (here / "mine" / "__init__.py").write_text("raise SystemExit('it was imported')")
    (package / "__pycache__" / "x.pyc").touch()
    (here / "alone.py").write_text("raise SystemExit('it was imported')")
    sys.path.append(str(here))
    found = identity_of("mine.inner:Backend")
    assert list(found.files) == ["mine/__init__.py", "mine/inner/__init__.py", "mine/inner/library.so"]
    assert found.files["mine/inner/library.so"] == digest_of(package / "library.so")
    assert list(identity_of("alone:Backend").files) == ["alone.py"]
    assert not identity_of("there_is_none:Backend").files
    ours = identity_of("barrier_tck.reference_impl.state.heap:HeapStateBackend")
    assert ours.distribution.startswith("barrier-tck ")
    assert "barrier_tck/reference_impl/state/heap.py" in ours.files


def test_a_spark_state_store_is_its_jars_or_those_of_spark(here: Path) -> None:
    jar = here / "mine.jar"
    jar.write_text("jar")
    assert identity_of_store(store_target("spark:a.B", [str(jar)])).files == {"mine.jar": digest_of(jar)}
    own = identity_of_store(store_target("spark:rocksdb"))
    assert own.distribution.startswith("pyspark ") and own.files


def test_a_certificate_holds_for_the_files_that_it_names_and_for_no_others(
    certified: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["verify-certificate", str(certified)]) == 0
    assert "✓ the certificate holds for my_backend:MyBackend" in capsys.readouterr().out
    with open(here / "my_backend.py", "a") as file:
        file.write("# one more line\n")
    assert cli.run(["verify-certificate", "run/certificate.json", "--json"]) == 1
    assert last_json(capsys)["problems"] == ["1 file changed: my_backend.py"]
    shutil.copy(here / "my_backend.py", here / "other.py")
    assert cli.run(["verify-certificate", "run", "other:MyBackend", "--json"]) == 1
    assert last_json(capsys)["problems"] == [
        "my_backend:MyBackend was certified, and not other:MyBackend",
        "1 file missing: my_backend.py",
        "1 file not certified: other.py",
    ]
    (here / "my_backend.py").unlink()
    assert cli.run(["verify-certificate", "run"]) == 2
    assert "its files were not compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"level": "crash"}, "it says level crash, but contract follows from its outcomes"),
        ({"interrupted": True}, "the certification was interrupted"),
        ({"outcomes": []}, "but none follows from its outcomes"),
        ({"distribution": "mine 1.0"}, "mine 1.0 was certified, and none is installed"),
        ({"asked_level": "crash"}, "it says verdict certified, but unknown follows from its outcomes"),
    ],
)
def test_a_certificate_that_says_more_than_it_shows_does_not_hold(
    values: dict[str, Any], words: str, certified: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(certified, **values)
    assert cli.run(["verify-certificate", str(certified)]) == 1
    assert words in capsys.readouterr().out


def test_what_names_no_files_cannot_be_compared_and_what_is_no_certificate_is_refused(
    certified: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(certified, files={})
    assert cli.run(["verify-certificate", str(certified)]) == 2
    assert "does not say what was certified" in capsys.readouterr().out
    for text in ("{}", "[", '{"version": 99}'):
        (here / "bad.json").write_text(text)
        assert cli.run(["verify-certificate", "bad.json"]) == 3
    changed(certified, version=99)
    with pytest.raises(UsageProblem, match="has version 99"):
        read_certificate(certified / "certificate.json")


@pytest.mark.long
def test_one_property_is_checked_alone_and_certifies_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["init", "backend"]) == 0
    capsys.readouterr()
    options = ["certify", "my_backend:MyBackend", "--only", ONE, "--out", "runs", "--json"]
    assert cli.run(options) == 0
    result = last_json(capsys)
    assert (result["verdict"], result["level"]) == ("unknown", None)
    ran = {name for name, status in result["properties"].items() if status != "skipped"}
    assert ran == {ONE, "the-backend-can-be-made"}
    found = json.loads(Path(result["certificate"]).read_text())
    assert fits(found, schema()["$defs"]["Certificate"])
    assert found["only"] == [ONE]
    assert found["files"] == {"my_backend.py": digest_of(here / "my_backend.py")}
    (suite,) = ElementTree.parse(result["junit"]).getroot()
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases[ONE] == [] and cases["snapshots-are-isolated"] == ["skipped"]
    assert int(suite.get("skipped", "")) == len(cases) - 2
    capsys.readouterr()
    assert cli.run(["verify-certificate", str(Path(result["certificate"]).parent)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "certified: 1 file, not from an installed package" in printed
    assert "✗ only 1 property was checked, so nothing was certified" in printed


@pytest.mark.long
def test_a_target_or_a_property_that_does_not_exist_is_not_announced(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        ["certify", "nobody:Nothing"],
        ["certify-storage", "nobody:nothing"],
        ["certify", "heap", "--only", "what-is-no-snapshot"],
    ):
        assert cli.run(arguments) == 3
        printed = capsys.readouterr()
        assert "certifying" not in printed.out
    assert f"did you mean '{ONE}'" in printed.err
    assert not (here / "runs").exists() or not [*(here / "runs").iterdir()]


def test_the_hunt_for_planted_bugs_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_bugs, "NOTICE_S", 0.0)
    bugs = [PlantedBug(f"B-{number}", "", "", "", "", "") for number in range(2)]
    outcome = PropertyOutcome("p", "contract", (), "", "failed")
    said: list[str] = []
    with notices_shown(said.append):
        assert strength_of(bugs, lambda _: outcome).caught == ("B-0", "B-1")
    assert said == [
        "measuring how strong the suite is: 2 planted bugs",
        "strength: 1 of 2 planted bugs were run, 1 caught",
        "strength: 2 of 2 planted bugs were run, 2 caught",
    ]


def test_the_schema_in_the_documents_is_that_of_the_code_and_fits_what_releases_wrote() -> None:
    assert (ROOT / "docs" / "certificate.schema.json").read_text() == page()
    kinds = schema()["$defs"]
    for file in FIXTURE.glob("*.json"):
        written = json.loads(file.read_text())
        assert fits(written, kinds["Certificate"])
        assert all(fits(one, kinds["PropertyOutcome"]) for one in written["outcomes"])
