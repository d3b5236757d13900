"""From where a Python daemon imports PySpark: from archives only if the same version is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from barrier_tck.reference_impl.spark.import_path import prefer_installed

INSTALLED = Path(pyspark.__file__).parent
LIB = INSTALLED / "python" / "lib"
PYSPARK = str(LIB / "pyspark.zip")
(PY4J,) = map(str, LIB.glob("py4j-*-src.zip"))
(JAR,) = map(str, (INSTALLED / "jars").glob("spark-core_*.jar"))


@pytest.mark.long
def test_a_daemon_imports_what_is_installed_although_an_executor_puts_archives_first() -> None:
    script = (
        "import barrier_tck.reference_impl.spark.daemon, pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__);"
        "print([path for path in sys.path_importer_cache if path.endswith(('.zip', '.jar')) and 'spark' in path])"
    )
    path = os.pathsep.join([PYSPARK, PY4J, JAR, *sys.path])
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": path}
    printed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert printed.stdout.split() == [pyspark.__file__, py4j.__file__, "[]"]


def test_archives_of_what_is_installed_leave_the_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    others = list(sys.path)
    monkeypatch.setattr(sys, "path", [PYSPARK, others[0], PY4J, JAR, *others[1:]])
    assert prefer_installed() == (PYSPARK, PY4J, JAR)
    assert sys.path == others


def test_archives_of_another_version_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("python/lib/pyspark.zip", "python/lib/py4j-0.1-src.zip", "jars/spark-core_2.13-4.0.0.jar")
    foreign = [str(tmp_path / name) for name in names]
    path = [*foreign, *sys.path]
    monkeypatch.setattr(sys, "path", list(path))
    assert prefer_installed() == ()
    assert sys.path == path


def test_archives_stay_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [PYSPARK, PY4J, JAR])
    assert prefer_installed() == ()
    assert sys.path == [PYSPARK, PY4J, JAR]
