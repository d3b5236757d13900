"""What is compiled is compiled once; grain: files, and programs instead of a compiler."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from barrier_tck.harness.cluster import java_compiler
from barrier_tck.harness.cluster.java import Java, find_java
from barrier_tck.harness.cluster.java_compiler import compiled_jar
from barrier_tck.harness.support.data_directory import DATA_VARIABLE
from barrier_tck.harness.support.errors import EnvironmentProblem, JavaMissing
from barrier_tck.harness.support.notices import notices_shown

COMPILES = """#!/bin/sh
while [ "$1" != "-d" ]; do shift; done
echo class > "$2/A.class"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    monkeypatch.setattr(java_compiler, "find_java", lambda: Java(Path("/java"), 17, "17.0.1"))
    script = tmp_path / "javac"
    script.write_text(COMPILES)
    script.chmod(0o755)
    return script


def test_sources_are_compiled_once_for_each_text_and_java_and_it_is_said(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "A.java"
    said: list[str] = []

    def compiled() -> Path:
        return compiled_jar(compiler, [source], "a", tmp_path)

    with notices_shown(said.append):
        source.write_text("class A {}")
        first = compiled()
        assert compiled() == first and len(said) == 1
        source.write_text("class A { }")
        assert compiled() != first and len(said) == 2
        monkeypatch.setattr(java_compiler, "find_java", lambda: Java(Path("/java"), 21, "21"))
        assert len({first, compiled(), compiled()}) == 2 and len(said) == 3
    assert said[0] == f"compiling A.java with {compiler}, once for each version"
    assert first.is_relative_to(tmp_path / "data")
    assert {path.suffix for path in first.parent.iterdir()} == {".jar", ".lock"}
    with zipfile.ZipFile(first) as archive:
        assert archive.namelist() == ["A.class"]


def test_a_cache_that_cannot_be_written_costs_only_time(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, where a directory should be")
    source = tmp_path / "A.java"
    source.write_text("class A {}")
    assert compiled_jar(compiler, [source], "a", tmp_path) == tmp_path / "a.jar"


def test_a_program_of_java_that_does_not_answer_is_one_sentence(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    compiler.write_text(f"#!/bin/sh\nread line < {fifo}\n")
    source = tmp_path / "A.java"
    source.write_text("class A {}")
    monkeypatch.setattr(java_compiler, "_COMPILES_S", 0.01)
    with pytest.raises(EnvironmentProblem, match=r"javac did not compile A\.java within 0 s"):
        compiled_jar(compiler, [source], "a", tmp_path)
    monkeypatch.setattr("barrier_tck.harness.cluster.java._ANSWER_TIMEOUT_S", 0.01)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(compiler)
    with pytest.raises(JavaMissing, match=r"-version did not answer within 0\.01 s"):
        find_java({"JAVA_HOME": str(tmp_path)})
