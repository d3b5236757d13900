"""A Spark session in this process that can be opened and closed again and again.

PySpark keeps the driver's JVM for the life of the Python process, and with it the settings that are read
when a JVM starts (memory, log configuration, secrets). A harness runs many clusters in one process, so
`spark_session` ends that JVM too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from barrier_tck.harness.cluster.class_archive import existing_classes
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.cluster.settings import driver_conf, java_options, write_properties
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.support.work_directories import work_prefix

END_TIMEOUT_S = 10.0
"""A driver's JVM that has not ended so long after its session is killed."""
_ENDING_S = 2.0
"""A JVM that cannot be reached has ended, or ends within this time."""

_LOG4J2 = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@contextlib.contextmanager
def spark_session(
    cluster: Cluster | SessionConfig | None,
    app_name: str,
    extra: Mapping[str, str] | None = None,
    **how: Any,
) -> Iterator[SparkSession]:
    """A session, with all that belongs to it, ended at exit. Takes and raises what `session_later` does."""
    with session_later(cluster, app_name, extra, **how) as opened:
        yield opened()


@contextlib.contextmanager
def session_later(
    cluster: Cluster | SessionConfig | None,
    app_name: str,
    extra: Mapping[str, str] | None = None,
    *,
    log_file: Path | None = None,
    quick_start: bool = False,
    share_classes: bool = True,
    end_timeout_s: float = END_TIMEOUT_S,
) -> Iterator[Callable[[], SparkSession]]:
    """A driver's JVM, and the function that opens its session against `cluster`, or in local mode on all cores.

    Until that function is called, nothing of the cluster is used. Session and JVM are ended at exit.

    `extra` is added to the cluster's settings and wins over them. The driver's log goes to `log_file`, by
    default `driver.log` in the cluster's directory (in local mode it is dropped with the session).
    For a session without a cluster, `quick_start` means the same as in a cluster's configuration. With
    `share_classes` the JVM starts with the archive of classes, if there is one. The JVM is killed if it has
    not ended `end_timeout_s` after the session.

    Raises:
        UsageError: this process has a Spark session already.
        JavaMissing, JavaTooOld: no Java that Spark can use.
    """
    place = cluster.session_config() if isinstance(cluster, Cluster) else cluster
    if SparkContext._active_spark_context is not None or SparkContext._gateway is not None:
        raise UsageError("This process has a Spark session already; stop it (and its JVM) first.")
    java = find_java()
    # In the cluster's directory, which its guard removes even if this process is killed.
    parent = None if place is None else place.directory
    scratch = Path(tempfile.mkdtemp(prefix=work_prefix("driver"), dir=parent))
    try:
        base = _local_mode_conf(scratch) if place is None else dict(place.conf)
        classes = existing_classes(java) if share_classes else None
        quick = quick_start or (place is not None and place.quick_start)
        options = java_options(scratch / "tmp", quick, classes)
        shared = classes.settings if classes is not None else {}
        own = {"spark.app.name": app_name, "spark.driver.defaultJavaOptions": options, **shared}
        write_properties(scratch / "spark-defaults.conf", {**base, **own, **(extra or {})})
        if log_file is None:
            log_file = (scratch if place is None else Path(place.directory)) / "driver.log"
        level = "warn" if place is None else place.log_level
        (scratch / "log4j2.properties").write_text(_LOG4J2.format(level=level, log=log_file.absolute()))
        (scratch / "tmp").mkdir()
        with _environment(scratch, java.executable, base["spark.driver.host"]):
            try:
                start_jvm(log_file)
                yield SparkSession.builder.getOrCreate
            finally:
                end_driver(end_timeout_s)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _local_mode_conf(scratch: Path) -> dict[str, str]:
    return {"spark.master": "local[*]", **driver_conf(1024, scratch / "local")}


@contextlib.contextmanager
def _environment(conf_directory: Path, java: Path, address: str) -> Iterator[None]:
    """Set what PySpark reads from the environment, and put everything back afterwards.

    The settings are passed in a file in SPARK_CONF_DIR. If they were builder options, PySpark would put them,
    and with them the secret, on the JVM's command line.
    """
    ours = {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(conf_directory),
        "SPARK_LOCAL_IP": address,
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        # For functions sent to executors this variable counts, and not the setting of the same name.
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": import_path(),
        "PATH": f"{java.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    before = {
        name: value
        for name, value in os.environ.items()
        if name in ours or name.startswith(("SPARK_", "PYSPARK_"))
    }
    for name in before:
        del os.environ[name]
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
        os.environ.update(before)


def start_jvm(log_file: Path) -> None:
    """Start the driver's JVM; what it prints goes to its log, not to the harness's terminal."""
    with open(log_file, "ab") as log:
        gateway = launch_gateway(None, {"stdout": log, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def end_driver(timeout_s: float) -> None:
    """Stop the active session if there is one, then end the driver's JVM and make PySpark forget it."""
    gateway: Any = SparkContext._gateway
    try:
        active = SparkSession._instantiatedSession
        context = SparkContext._active_spark_context
        if active is not None:
            active.stop()
        elif context is not None:
            context.stop()
    except (Py4JError, OSError):
        # A signal to the whole process group, as Ctrl-C sends, may have ended the JVM first. Nothing is left to stop.
        if gateway is None or not _ends(gateway.proc):
            raise
    finally:
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        if gateway is not None:
            _end_jvm(gateway, timeout_s)


def _ends(jvm: subprocess.Popen[bytes]) -> bool:
    """Return whether a JVM has ended, or is about to."""
    try:
        jvm.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_jvm(gateway: Any, timeout_s: float) -> None:
    jvm: subprocess.Popen[bytes] = gateway.proc
    try:
        gateway.shutdown()
    finally:
        # The JVM ends when its input ends.
        if jvm.stdin is not None:
            jvm.stdin.close()
        try:
            jvm.wait(timeout_s)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
