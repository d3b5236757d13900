"""A session on a Spark cluster that somebody else runs, named by the URL of its master.

Unlike `spark_session`, which isolates a cluster of the harness from whatever is configured on this machine, this takes
Spark's own configuration as it is: SPARK_CONF_DIR, HADOOP_CONF_DIR, PYSPARK_SUBMIT_ARGS, PYSPARK_PYTHON.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.settings import LIGHT_JAVA
from barrier_tck.harness.cluster.spark_session import END_TIMEOUT_S, end_driver, start_jvm
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.third_party import shown
from barrier_tck.harness.support.work_directories import temporary_work_directory

FAILURES_MAX = 2
"""How often a task may fail: a second time is no accident, and what the task should do is tried in another way."""
REACHED_WITHIN_S = 5.0
"""How long a master may take to accept a connection."""
EXECUTOR_WITHIN_S = 120.0
"""How long a cluster may take to give the application its first executor."""

_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|[1-9]\d*)\])?")
_STANDALONE = re.compile(r"spark://(?P<hosts>[^/\s,]+(?:,[^/\s,]+)*)")
_OTHER = re.compile(r"(?:k8s|mesos)://\S+")


def master_of(url: str) -> str:
    """Return what Spark calls a master by this URL, with as many failures of a task as in a cluster.

    Raises UsageProblem for anything that Spark would not understand.
    """
    local = _LOCAL.fullmatch(url)
    if local is not None:
        return f"local[{local['cores'] or 1},{FAILURES_MAX}]"
    if url == "yarn" or _OTHER.fullmatch(url):
        return url
    standalone = _STANDALONE.fullmatch(url)
    if standalone is not None and all(map(_address, standalone["hosts"].split(","))):
        return url
    raise UsageProblem(
        f"--on is {shown(url)}; write spark://host:port for a standalone cluster, yarn, or local[N] for N cores of "
        "this machine"
    )


def _address(host_and_port: str) -> tuple[str, int] | None:
    host, _, port = host_and_port.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() and 0 < int(port) < 65_536 else None


@contextlib.contextmanager
def session_on(url: str, app_name: str, also: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on the cluster, which is ended at exit with its JVM. ``also`` are settings that win over all others.

    Raises:
        UsageProblem: there is no such master, or it does not take this application.
        EnvironmentProblem: the cluster gives the application no executor.
        JavaMissing, JavaTooOld: no Java that Spark can use.
    """
    master = master_of(url)
    _require_reachable(url)
    java = find_java()
    with temporary_work_directory("driver") as scratch, _environment(java.executable, master):
        log = Path(scratch) / "driver.log"
        try:
            start_jvm(log)
            with _own_signals():
                session = _session(url, master, app_name, also or {})
            yield session
        finally:
            end_driver(END_TIMEOUT_S)


def _require_reachable(url: str) -> None:
    """Raise UsageProblem if no master of a standalone cluster accepts a connection: Spark itself tries for a minute."""
    standalone = _STANDALONE.fullmatch(url)
    if standalone is None:
        return
    problems = []
    for address in filter(None, map(_address, standalone["hosts"].split(","))):
        try:
            socket.create_connection(address, REACHED_WITHIN_S).close()
            return
        except OSError as error:
            problems.append(error.strerror or str(error))
    raise UsageProblem(f"--on {url}: no master can be reached there ({problems[0]})")


@contextlib.contextmanager
def _environment(java: Path, master: str) -> Iterator[None]:
    """Set what is not configured: the Python of the workers, the address of a driver that nobody else must reach."""
    ours = {"PATH": f"{java.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    ours["JDK_JAVA_OPTIONS"] = f"{LIGHT_JAVA} {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip()
    ours |= {} if "PYSPARK_PYTHON" in os.environ else {"PYSPARK_PYTHON": sys.executable}
    if master.startswith("local") and "SPARK_LOCAL_IP" not in os.environ:
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Take Ctrl-C back from Spark, which claims it for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _session(url: str, master: str, app_name: str, also: Mapping[str, str]) -> SparkSession:
    try:
        conf = SparkConf()
        conf.setMaster(master).setAppName(app_name)
        conf.set("spark.task.maxFailures", str(FAILURES_MAX))
        conf.setIfMissing("spark.executor.defaultJavaOptions", LIGHT_JAVA)
        conf.setIfMissing("spark.ui.enabled", "false")
        conf.setIfMissing("spark.ui.showConsoleProgress", "false")
        for name, value in also.items():
            conf.set(name, value)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise UsageProblem(f"--on {url}: Spark does not start there: {_reason(error)}") from error
    if not master.startswith("local"):
        _await_executor(url, session.sparkContext)
    return session


def _await_executor(url: str, context: SparkContext) -> None:
    """Wait until there is an executor: a job would wait for one without a word."""
    jvm_context = context._jsc.sc()  # noqa: SLF001 - no other way tells
    deadline = time.monotonic() + EXECUTOR_WITHIN_S
    while int(jvm_context.getExecutorMemoryStatus().size()) < 2:  # the driver is one of them
        if time.monotonic() > deadline:
            raise EnvironmentProblem(
                f"--on {url}: the cluster gave no executor within {EXECUTOR_WITHIN_S:g} s; are its cores and its "
                "memory taken, or too few for spark.executor.cores and spark.executor.memory?"
            )
        time.sleep(0.2)


def _reason(error: Exception) -> str:
    """Return the line of Spark's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0].removeprefix(": ")
