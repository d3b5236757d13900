"""Writes of checkpoint files through the class that disturbs them; grain: one JVM, without a session or a query."""

from __future__ import annotations

import contextlib
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.faults.targets import WriteFault
from barrier_tck.harness.certify.spark_store.java_process import JavaProcess, Raised
from barrier_tck.harness.cluster.java import OLDEST_JAVA
from barrier_tck.harness.cluster.java_compiler import has_java_compiler
from barrier_tck.harness.streaming.disturbed_writes import (
    FILE_MANAGER,
    DisturbedWrites,
    jar_of_writes,
    source_for,
)
from barrier_tck.harness.streaming.disturbed_writes import settings_of_writes as settings_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not has_java_compiler(), reason="there is no javac for the class that disturbs writes"
    ),
]
LATE_MS = 400


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess]:
    directory = tmp_path_factory.mktemp("jvm-of-writes")
    process = JavaProcess(directory / "jvm", (str(jar_of_writes(directory)),), 60.0)
    yield process
    process.kill()


def write(jvm: JavaProcess, file: Path, settings: dict[str, Any]) -> str:
    """Let the JVM write a file; return what its writer was told."""
    with jvm.calls():
        configuration = jvm.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings.items():
            configuration.set(name, value)
        return str(jvm.jvm.barriertck.DisturbedWrites.tryWrite(str(file), configuration))


@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "told", "is_there"),
    [
        (WriteFault.FAILS, "Input/output error", False),
        (WriteFault.FULL, "No space left on device", False),
        (WriteFault.UNSURE, "after the file was written", True),
        (WriteFault.SLOW, "", True),
    ],
)
def test_as_many_writes_as_asked_for_are_disturbed_as_promised_and_each_is_counted(
    jvm: JavaProcess, tmp_path: Path, trouble: WriteFault, told: str, is_there: bool
) -> None:
    """What the writer is told, what is on disk, and the proof, for two disturbed writes and one that is not."""
    writes = DisturbedWrites(tmp_path / "writes", lambda path: "")
    files = [tmp_path / "checkpoint" / str(number) for number in range(3)]
    files[0].parent.mkdir()
    write(jvm, files[2], writes.settings())
    whole = files[2].read_bytes()
    assert whole and writes.struck() == ()
    names = writes.disturb_next(trouble, 2, LATE_MS if trouble is WriteFault.SLOW else 0)
    for file in files:
        disturbed, began_s = file is not files[2], time.monotonic()
        answer = write(jvm, file, writes.settings())
        took_ms = (time.monotonic() - began_s) * 1_000
        assert bool(answer) == (disturbed and bool(told)), answer
        assert told in answer or not disturbed
        assert file.is_file() == (is_there or not disturbed)
        assert took_ms >= LATE_MS or not disturbed or trouble is not WriteFault.SLOW
    left = {path.name for path in files[0].parent.iterdir() if not path.name.endswith(".crc")}
    assert left == {file.name for file in (files if is_there else files[2:])}, "no half of a file stays"
    assert all(file.read_bytes() == whole for file in files if file.is_file())
    assert writes.struck() == tuple(f"{trouble} {file}" for file in files[:2])
    assert [token for token, _ in writes.struck_by()] == sorted(names, reverse=True), "the newest one first"
    assert not list(writes.directory.glob("token-*"))


@pytest.mark.long
def test_writes_go_through_when_trouble_is_taken_back_or_its_directory_is_gone(
    jvm: JavaProcess, tmp_path: Path
) -> None:
    writes = DisturbedWrites(tmp_path / "writes", lambda path: "")
    writes.disturb_next(WriteFault.FAILS, 12)
    writes.stop()
    for _ in range(2):
        assert write(jvm, tmp_path / "file", writes.settings()) == ""
        (tmp_path / "file").unlink()
        with contextlib.suppress(FileNotFoundError):
            writes.directory.rmdir()


@pytest.mark.long
def test_the_work_is_done_by_the_file_manager_that_its_user_set(jvm: JavaProcess, tmp_path: Path) -> None:
    writes = DisturbedWrites(tmp_path / "writes", lambda path: "")
    told = settings_of(str(writes.directory), {FILE_MANAGER: "nobody.has.This"})
    with pytest.raises(Raised, match=r"nobody\.has\.This"):
        write(jvm, tmp_path / "file", told)


@pytest.mark.long
def test_the_class_runs_in_the_oldest_java_whatever_compiled_it(tmp_path: Path) -> None:
    """The compiler may be newer than the Java that Spark uses; a class file says which Java it needs."""
    jar = jar_of_writes(tmp_path)
    assert jar is not None
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            # Java 17 reads version 61.
            assert int.from_bytes(archive.read(name)[6:8], "big") <= OLDEST_JAVA + 44, name


@pytest.mark.parametrize("place", ["streaming", "streaming.checkpointing"], ids=["Spark 4.0", "later ones"])
def test_the_file_manager_is_imported_from_where_this_spark_has_it(place: str, tmp_path: Path) -> None:
    manager = f"org.apache.spark.sql.execution.{place}.CheckpointFileManager"
    (tmp_path / "jars").mkdir()
    with zipfile.ZipFile(tmp_path / "jars" / "spark-sql_2.13-4.x.jar", "w") as jar:
        jar.writestr(f"{manager.replace('.', '/')}.class", b"")
    imported = [line for line in source_for(tmp_path).splitlines() if "CheckpointFileManager;" in line]
    assert imported == [f"import {manager};"]
