"""The archive of Spark's classes; grain: files, and processes instead of Java (test_local_cluster makes a real one)."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from barrier_tck.harness.cluster import class_sharing
from barrier_tck.harness.cluster.class_archive import SharedClasses, classes_for, existing_classes
from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import DATA_VARIABLE

JAVA = Java(Path("/usr/bin/java"), 17, "17.0.1")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make empty archives, and note each."""
    archives: list[Path] = []

    def build(classes: SharedClasses) -> None:
        classes.archive.write_bytes(b"classes")
        archives.append(classes.archive)

    monkeypatch.setattr(class_sharing, "_build", build)
    return archives


def test_it_is_made_once_for_each_java(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    archives = made(monkeypatch)
    assert existing_classes(JAVA) is None
    first = shared_classes(JAVA)
    assert first == shared_classes(JAVA) == existing_classes(JAVA)
    assert first is not None
    assert first.archive.is_relative_to(data)
    other = shared_classes(Java(JAVA.executable, 17, "17.0.2"))
    assert archives == [first.archive, other.archive if other is not None else None]
    assert len(set(archives)) == 2


def test_it_is_found_from_every_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, "data")
    assert classes_for(JAVA).archive.is_absolute()


def test_what_a_killed_harness_left_half_made_is_removed(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    archive = classes_for(JAVA).archive
    abandoned = archive.parent / f".making-{archive.stem}-abcd"
    abandoned.mkdir(parents=True)
    (abandoned / archive.name).write_bytes(b"half")
    monkeypatch.setattr(class_sharing, "BUILD_TIMEOUT_S", 0.01)
    assert shared_classes(JAVA) is None
    assert [path.suffix for path in (data / "class-data").iterdir()] == [".lock"]


def test_the_class_path_begins_as_sparks_own_does_behind_its_configuration() -> None:
    first, _, rest = classes_for(JAVA).class_path.partition(":")
    assert Path(first).is_file()
    assert Path(first).name.startswith("slf4j-api-")
    assert rest == f"{Path(first).parent}/*"


def test_archives_that_were_not_used_for_longest_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    archives = made(monkeypatch)
    for update in range(5):
        classes = shared_classes(Java(JAVA.executable, 17, f"17.0.{update}"))
        assert classes is not None
        os.utime(classes.archive, (update, update))
    kept = sorted(archives[0].parent.glob("*.jsa"))
    assert kept == sorted(archives[2:])


@pytest.mark.parametrize("how", ["fails", "ends without it", "refuses"])
def test_without_it_there_is_a_warning_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, data: Path, how: str
) -> None:
    if how == "refuses":
        data.write_text("a file, where a directory should be")
    script = "import sys; sys.exit('no such thing')" if how == "fails" else ""
    real = subprocess.Popen

    def other_program(arguments: list[str], **given: object) -> object:
        return real([arguments[0], "-c", script], **given)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", other_program)
    with caplog.at_level(logging.WARNING):
        assert shared_classes(JAVA) is None
    expected = {"fails": "exit code 1: no such thing", "ends without it": "exit code 0", "refuses": "data"}[
        how
    ]
    assert expected in caplog.text
    if how != "refuses":
        assert [path.suffix for path in (data / "class-data").iterdir()] == [".lock"]


def test_an_interrupt_ends_the_process_that_makes_it(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    class Interrupted(real):  # type: ignore[valid-type, misc]
        def __init__(self, arguments: list[str], **given: object) -> None:
            super().__init__([arguments[0], "-c", "import time; time.sleep(60)"], **given)
            started.append(self)
            self.waits = 0

        def wait(self, timeout: float | None = None) -> int:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return int(super().wait(timeout))

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        shared_classes(JAVA)
    assert [process.returncode is not None for process in started] == [True]
    assert [path.suffix for path in (data / "class-data").iterdir()] == [".lock"]
