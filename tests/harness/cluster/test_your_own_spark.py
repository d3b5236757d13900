"""What docs/guide/your-own-spark.md promises about a user's settings; grain: environments and files, without Spark."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pyspark
import pytest

from barrier_tck.harness.cluster import session_elsewhere, spark_session
from barrier_tck.harness.cluster.cluster_config import LocalClusterConfig
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.settings import application_conf, daemon_environment, write_properties
from barrier_tck.harness.streaming.disturbed_writes import JARS
from barrier_tck.harness.streaming.streaming_job import StreamingJob
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming

JAVA = Path("/java/bin/java")
OTHERS = {
    "SPARK_HOME": "/opt/spark",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_LOCAL_DIRS": "/scratch",
    "PYSPARK_SUBMIT_ARGS": "--packages a:b:1 pyspark-shell",
    "PYSPARK_PYTHON": "/opt/python",
}
MINE = {"AWS_ACCESS_KEY_ID": "id", "HADOOP_CONF_DIR": "/etc/hadoop"}


@pytest.fixture(autouse=True)
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (OTHERS | MINE).items():
        monkeypatch.setenv(name, value)


def test_the_installed_spark_runs_whatever_spark_home_says() -> None:
    assert spark_home() == Path(pyspark.__file__).parent


def test_daemons_get_nothing_that_was_meant_for_another_spark_and_all_else(tmp_path: Path) -> None:
    environment = daemon_environment(JAVA, tmp_path, None)
    assert not set(OTHERS.values()) & set(environment.values())
    assert environment["SPARK_HOME"] == str(spark_home())
    assert environment["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert MINE.items() <= environment.items()
    assert environment["PATH"].startswith("/java/bin")


def test_a_driver_gets_no_settings_of_another_spark_and_they_are_there_again_afterwards(
    tmp_path: Path,
) -> None:
    with spark_session._environment(tmp_path, JAVA, "127.0.0.1"):
        assert not set(OTHERS.values()) & set(os.environ.values())
        assert "PYSPARK_SUBMIT_ARGS" not in os.environ
        assert os.environ["SPARK_CONF_DIR"] == str(tmp_path)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["PYTHONPATH"] == import_path()
        assert MINE.items() <= os.environ.items()
    assert (OTHERS | MINE).items() <= os.environ.items()


def test_java_is_that_of_java_home_else_that_on_the_path(tmp_path: Path) -> None:
    for name in ("home/bin", "path"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "java").write_text("#!/bin/sh\n")
        (tmp_path / name / "java").chmod(0o755)

    def found(**environ: str) -> Path:
        return find_java(environ, lambda _: 'openjdk version "17.0.1"').executable

    on_path = {"PATH": str(tmp_path / "path")}
    assert found(JAVA_HOME=str(tmp_path / "home"), **on_path) == tmp_path / "home" / "bin" / "java"
    assert found(**on_path) == tmp_path / "path" / "java"


def test_the_settings_of_a_query_win_over_ours_and_its_jars_are_kept(tmp_path: Path) -> None:
    conf = {JARS: "/mine.jar", "spark.jars.packages": "a:b:1", "spark.sql.shuffle.partitions": "7"}
    system = StructuredStreaming(StreamingJob(query=lambda rows: rows, sink=lambda *_: None, conf=conf))
    system._jar = tmp_path / "ours.jar"
    settings = system._conf({})
    assert settings["spark.jars.packages"] == "a:b:1"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert system._conf({"retries": "none"})["spark.task.maxFailures"] == "1"
    assert settings[JARS] == f"/mine.jar,{tmp_path / 'ours.jar'}"


def test_secrets_are_in_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    conf = application_conf(LocalClusterConfig(), tmp_path, "127.0.0.1", "spark://x:1", "s3cret", None)
    assert conf["spark.authenticate.secret"] == "s3cret"
    write_properties(tmp_path / "spark-defaults.conf", conf)
    assert stat.S_IMODE((tmp_path / "spark-defaults.conf").stat().st_mode) == 0o600
    assert "spark.authenticate.secret s3cret\n" in (tmp_path / "spark-defaults.conf").read_text()


@pytest.mark.parametrize("configured", [True, False])
def test_a_cluster_of_others_is_used_with_their_settings(
    configured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not configured:
        monkeypatch.delenv("PYSPARK_PYTHON")
    with session_elsewhere._environment(JAVA, "local[2,2]"):
        kept = {name: value for name, value in OTHERS.items() if configured or name != "PYSPARK_PYTHON"}
        assert (kept | MINE).items() <= os.environ.items()
        assert configured or os.environ["PYSPARK_PYTHON"] == sys.executable
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in os.environ
