"""Settings and files that every Spark process of the harness is started with."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from barrier_tck.harness.cluster.class_archive import SharedClasses
from barrier_tck.harness.cluster.cluster_config import ClusterConfig
from barrier_tck.harness.cluster.installation import import_path, spark_home

#: The address of a local cluster's master and driver; its workers have one each, from 127.0.0.2 on.
MASTER_HOST = "127.0.0.1"

_OF_SPARK = (
    *("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_WORKER_FACTORY_", "PYTHON_UNIX_DOMAIN_", "PYTHON_DAEMON_"),
    *("PYTHON_FAULTHANDLER_", "PYTHON_UDF_"),
)
"""How the names of variables begin by which Spark configures its processes, or tells its Python workers how to reach
it."""

LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM in which Spark only hands plans and results on: to compile its own code well would take more time
than it saves."""

CLUSTER_LOG4J2 = """\
# Console only: every process of the cluster has its own log file, which its parent opens.
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
# The harness reads the start-up lines of these two.
logger.master.name = org.apache.spark.deploy.master.Master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker.Worker
logger.worker.level = info
"""


def driver_conf(memory_mb: int, local_directory: Path, host: str = MASTER_HOST) -> dict[str, str]:
    """Settings that every driver of the harness gets: one address only, no web UI, this Python, UTC."""
    return {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.driver.memory": f"{memory_mb}m",
        "spark.local.dir": str(local_directory),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(local_directory / "warehouse"),
    }


def application_conf(
    config: ClusterConfig,
    directory: Path,
    driver_host: str,
    master_url: str,
    secret: str,
    classes: SharedClasses | None,
) -> dict[str, str]:
    """Settings that every driver needs to use the cluster in `directory`; they hold its secret."""
    return {
        "spark.master": master_url,
        **driver_conf(config.driver_memory_mb, directory / "driver" / "local", driver_host),
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.executor.memory": f"{config.executor_mb}m",
        **(classes.settings if classes is not None else {}),
        "spark.executor.defaultJavaOptions": java_options(directory / "tmp", config.quick_start, classes),
        # One executor a worker, all of them from the start and for as long as the application runs.
        "spark.executor.cores": str(config.cores_per_worker),
        "spark.cores.max": str(config.cores_per_worker * config.workers),
        "spark.dynamicAllocation.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
        # A killed executor is noticed at once by its closed connection; these limits are for a frozen one.
        "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeout": "20s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "20s",
        "spark.network.timeoutInterval": "2s",
    }


def java_options(
    temporary_directory: Path, quick_start: bool = False, classes: SharedClasses | None = None
) -> str:
    """Options with which a JVM that is killed leaves nothing outside `temporary_directory`.

    Compression libraries unpack themselves there. Performance data would go elsewhere, so it is switched off. With
    `quick_start` the compiler and the garbage collector leave the cores to others, at the price of slower code.
    """
    quick = " -XX:+UseSerialGC -XX:TieredStopAtLevel=1" if quick_start else ""
    shared = f" {classes.java_option}" if classes is not None else ""
    return f'-XX:-UsePerfData "-Djava.io.tmpdir={temporary_directory}"{quick}{shared}'


def without_other_spark(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that configure a Spark, or that Spark gives to its Python workers."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_SPARK)}


def daemon_environment(java: Path, directory: Path, classes: SharedClasses | None) -> dict[str, str]:
    """The environment of master and workers of the cluster in `directory`.

    Executors and Python workers inherit it.
    """
    # Settings of another Spark on this machine must not leak in.
    return without_other_spark(os.environ) | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(directory / "conf"),
        "TMPDIR": str(directory / "tmp"),
        # The daemons do little: a quick start matters more than fast code.
        "SPARK_DAEMON_JAVA_OPTS": java_options(directory / "tmp", quick_start=True, classes=classes),
        "SPARK_DAEMON_CLASSPATH": classes.class_path if classes is not None else "",
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": import_path(),
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{java.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Spark properties file that only its owner can read: it may hold a secret."""
    escaped = (f"{key} {value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(escaped)


def bind_problem(host: str, port: int) -> str | None:
    """Why a server cannot listen on `host`:`port` now, in the operating system's words; None if it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does it: a port in TIME_WAIT after a recent cluster counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return None
