"""The archive of Spark's classes; grain: files, and processes instead of Java (test_local_cluster makes a real one)."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from math import inf
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.cluster import class_sharing
from barrier_tck.harness.cluster.class_archive import SharedClasses, classes_for, existing_classes
from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import DATA_VARIABLE
from barrier_tck.harness.support.notices import notices_shown
from barrier_tck.harness.support.work_directories import temporary_work_directory

JAVA = Java(Path("/usr/bin/java"), 17, "17.0.1")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make empty archives, and note each."""
    archives: list[Path] = []

    def build(classes: SharedClasses, *_: object) -> bool:
        classes.archive.write_bytes(b"classes")
        archives.append(classes.archive)
        return True

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


def test_none_is_made_for_a_spark_that_is_gone_soon(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    with temporary_work_directory("releases") as directory:
        monkeypatch.setattr(class_sharing, "spark_home", lambda: Path(directory) / "environment" / "pyspark")
        archives = made(monkeypatch)
        assert shared_classes(JAVA) is None
        assert archives == []


def test_it_is_found_from_every_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, "data")
    assert classes_for(JAVA).archive.is_absolute()


def maker(monkeypatch: pytest.MonkeyPatch, script: str) -> list[subprocess.Popen[bytes]]:
    """Let a script be the process that makes the archive; return the processes that were started."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def other_program(arguments: list[str], **given: Any) -> subprocess.Popen[bytes]:
        started.append(real([arguments[0], "-c", script, *arguments[3:]], **given))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", other_program)
    return started


MAKES = """
import pathlib, shutil, sys
pathlib.Path(sys.argv[2]).write_bytes(b"classes")
shutil.rmtree(sys.argv[1])
"""
AFTER_A_LINE = f"""
import sys
print("stage: step 3 of 4: queries run", flush=True)
sys.stdin = open({{fifo!r}})
sys.stdin.read()
{MAKES}
"""


def test_what_a_killed_harness_left_half_made_is_removed(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    archive = classes_for(JAVA).archive
    abandoned = archive.parent / f".making-{archive.stem}-abcd"
    abandoned.mkdir(parents=True)
    (abandoned / archive.name).write_bytes(b"half")
    maker(monkeypatch, MAKES)
    assert shared_classes(JAVA) is not None
    assert {path.suffix for path in (data / "class-data").iterdir()} == {".lock", ".jsa"}


def test_an_archive_that_comes_late_is_kept_and_is_not_made_twice_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    started = maker(monkeypatch, AFTER_A_LINE.format(fifo=fifo))
    monkeypatch.setattr(class_sharing, "PATIENCE_S", 0.0)
    said: list[str] = []
    with notices_shown(said.append):
        assert shared_classes(JAVA) is None
        assert shared_classes(JAVA) is None, "another process makes it"
        assert "later commands find it" in said[-1]
        monkeypatch.setattr(class_sharing, "PATIENCE_S", inf)
        open(fifo, "w").close()
        assert shared_classes(JAVA) == existing_classes(JAVA) is not None
    assert len(started) == 1
    assert started[0].wait() == 0


def test_who_waits_is_told_what_happens_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    maker(monkeypatch, AFTER_A_LINE.format(fifo=fifo))
    monkeypatch.setattr(class_sharing, "NOTICE_S", 0.0)
    said: list[str] = []

    def show(text: str) -> None:
        if "step 3 of 4: queries run" in text and not any("step 3" in before for before in said):
            open(fifo, "w").close()
        said.append(text)

    with notices_shown(show):
        assert shared_classes(JAVA) is not None
    assert said[0].startswith("making an archive of Spark's classes, once for each Spark and Java")
    assert any("s (usually 40 s), step 3 of 4: queries run" in text for text in said)
    assert "is made, after" in said[-1]


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


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("import sys; sys.exit('no such thing')", "ended with exit code 1: no such thing"),
        ("", "ended with exit code 0: it said nothing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "by the signal SIGKILL: it said nothing"),
        (None, "data"),
    ],
    ids=["fails", "ends without it", "is killed", "refuses"],
)
def test_without_it_there_is_a_warning_of_one_sentence_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    data: Path,
    how: str | None,
    expected: str,
) -> None:
    if how is None:
        data.write_text("a file, where a directory should be")
    maker(monkeypatch, how or "")
    with caplog.at_level(logging.WARNING):
        assert shared_classes(JAVA) is None
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Spark starts more slowly than it could: the archive of its classes")
    assert expected in message and "Command [" not in message
    if how is not None:
        assert [path.suffix for path in (data / "class-data").iterdir()] == [".lock"]


def test_an_interrupt_ends_the_process_that_makes_it(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    started = maker(monkeypatch, "import signal; signal.pause()")

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shared_classes(JAVA)
    assert [process.returncode is not None for process in started] == [True]
    assert [path.suffix for path in (data / "class-data").iterdir()] == [".lock"]
