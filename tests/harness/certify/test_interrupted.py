"""What is left of a certification that Ctrl-C ends; grain: commands, with nothing behind them that takes time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from barrier_tck.harness.certify.backend import chaos, suite
from barrier_tck.harness.certify.backend import planted_bugs as planted
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import BackendProperty
from barrier_tck.harness.certify.engine.certificate import Certificate, PropertyOutcome, Strength
from barrier_tck.harness.certify.storage import stage as storage_stage
from barrier_tck.harness.certify.storage.properties import PROPERTIES as STORAGE_PROPERTIES
from barrier_tck.harness.certify.storage.wire import Checked, Loaded
from barrier_tck.harness.cli.main import run


def certificate_in(directory: Path) -> Certificate:
    (kept,) = directory.glob("runs/*/certificate.json")
    assert kept.with_suffix(".html").is_file()
    return msgspec.json.decode(kept.read_bytes(), type=Certificate)


def left_out(certificate: Certificate) -> list[str]:
    return [outcome.name for outcome in certificate.outcomes if "interrupted" in outcome.reason]


@pytest.fixture
def ends_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Certifications of backends without a backend, which Ctrl-C ends in the property that a test names."""
    names: list[str] = []

    def checked(one: BackendProperty, *arguments: object, **options: object) -> tuple[PropertyOutcome, None]:
        if one.name in names:
            raise KeyboardInterrupt
        return PropertyOutcome(one.name, one.level, one.clauses, one.text, "passed"), None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite, "_loaded", lambda pool: {"name": "none", "capabilities": []})
    monkeypatch.setattr(suite, "check", checked)
    return names


def test_a_certificate_of_a_backend_keeps_what_was_shown(
    ends_at: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_crash = [one.name for one in PROPERTIES if one.level == "crash"]
    ends_at.append(of_crash[-1])
    assert run(["certify", "heap", "--no-strength", "--out", "runs"]) == 130
    found = certificate_in(tmp_path)
    assert (found.interrupted, found.verdict, found.level) == (True, "unknown", "contract")
    assert left_out(found)[0] == of_crash[-1]
    assert not set(left_out(found)) & set(of_crash[:-1])
    assert "what was shown is kept" in " ".join(capsys.readouterr().out.split())


def test_the_levels_below_one_that_was_interrupted_are_held(
    ends_at: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chaos, "require_spark", lambda: SimpleNamespace(version="17"))
    monkeypatch.setattr(chaos, "check_simulated", interrupted)
    assert run(["certify", "heap", "--level", "chaos", "--no-strength", "--out", "runs"]) == 130
    assert "the level crash was reached" in " ".join(capsys.readouterr().out.split())
    found = certificate_in(tmp_path)
    assert (found.interrupted, found.verdict, found.level) == (True, "unknown", "crash")
    (directory,) = (tmp_path / "runs").iterdir()
    told = {}
    for level in ("contract", "crash", "chaos", ""):
        code = run(["verify-certificate", str(directory), *(["--level", level] if level else [])])
        told[level] = code, " ".join(capsys.readouterr().out.split())
    assert [told[level][0] for level in told] == [0, 0, 1, 1]
    assert "it reached crash, and not chaos" in told["chaos"][1]
    assert "it reached the level crash: with --level crash it is asked for no more" in told[""][1]
    changed = msgspec.structs.replace(found, level="chaos")
    (directory / "certificate.json").write_bytes(msgspec.json.encode(changed))
    assert run(["verify-certificate", str(directory), "--level", "crash"]) == 1, "it says more than it shows"
    assert run(["verify-certificate", str(directory), "--level", "crush"]) == 3


def test_a_certificate_whose_strength_is_not_measured_yet_says_so(
    ends_at: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> Strength:
        raise KeyboardInterrupt

    monkeypatch.setattr(planted, "measure_strength", interrupted)
    assert run(["certify", "heap", "--out", "runs"]) == 130
    found = certificate_in(tmp_path)
    assert (found.interrupted, found.verdict) == (False, "certified")
    assert found.strength == Strength(measured=False, note="interrupted before it was measured")


def test_a_backend_that_lacks_what_is_required_leaves_no_directory(
    ends_at: list[str], tmp_path: Path
) -> None:
    assert run(["certify", "heap", "--require", "ordered-scan", "--out", "runs"]) == 3
    assert list(tmp_path.glob("runs/*")) == []


class EndsAtOnce:
    """Stands for a candidate's process, which passes everything until Ctrl-C comes."""

    until = STORAGE_PROPERTIES[-1].name

    def __init__(self, target: str, location: str) -> None: ...

    def loaded(self, timeout_s: float) -> Loaded:
        return Loaded("none", outlives_its_process=True)

    def check(self, name: str, timeout_s: float) -> Checked:
        if name == self.until:
            raise KeyboardInterrupt
        clauses = next(one.clauses for one in STORAGE_PROPERTIES if one.name == name)
        return Checked(name, passed=True, shown=dict.fromkeys(clauses, 1))

    def kill(self) -> str:
        return ""


def test_a_certificate_of_a_storage_keeps_what_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage_stage, "StorageProcess", EndsAtOnce)
    assert run(["certify-storage", "files", "--no-strength", "--out", "runs"]) == 130
    found = certificate_in(tmp_path)
    assert (found.interrupted, found.verdict, found.backend) == (True, "unknown", "none")
    assert left_out(found) == [EndsAtOnce.until]
    assert found.kind == "checkpoint storage"
