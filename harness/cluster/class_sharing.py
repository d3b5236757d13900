"""An archive of Spark's classes, loaded and verified, that JVMs map into their memory when they start.

Half of the processor time that a Spark JVM takes to start goes into finding, parsing and verifying some ten
thousand classes: a third of a campaign in which executors are killed. Java's class data sharing (JEP 350)
saves it. The archive is made once for each Spark and each Java, by a JVM that does what drivers, executors,
masters and workers do, and is kept in the data directory. It changes no behaviour: a JVM that cannot
use it (another Java, other jars) starts as ever.

Java demands that the class path begins as it did when the archive was made. Spark begins it with the directory
of its configuration, another one for each cluster; its jars are therefore put in front, and come twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.cluster.settings import import_path, spark_home
from barrier_tck.harness.support.data_directory import data_directory, locked

_log = logging.getLogger(__name__)

BUILD_TIMEOUT_S = 240.0
"""It takes some 25 s on two cores that are free."""
_KEPT = 3
"""How many archives are kept (120 MB each): one for each environment that was used of late."""
_DAEMONS = (
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.deploy.worker.ExecutorRunner",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
)
"""What a driver in local mode has no use for, but processes of a cluster begin with."""


@dataclass(frozen=True, slots=True)
class SharedClasses:
    """How a JVM is told of the archive."""

    archive: Path
    class_path: str
    """Has to come first in its class path."""

    @property
    def java_option(self) -> str:
        """The options, quoted for Spark's settings. An archive that does not fit is passed over in silence."""
        return f'"-XX:SharedArchiveFile={self.archive}" -Xlog:cds*=off'

    @property
    def settings(self) -> dict[str, str]:
        """The settings for driver and executors besides ``java_option``."""
        return {
            "spark.driver.extraClassPath": self.class_path,
            "spark.executor.extraClassPath": self.class_path,
        }


def existing_classes(java: Java) -> SharedClasses | None:
    """Return the archive for this Spark and a Java, None if it was not made yet."""
    classes = _classes_for(java)
    return classes if classes.archive.is_file() else None


def shared_classes(java: Java) -> SharedClasses | None:
    """Return the archive for this Spark and a Java; made if need be, which takes half a minute.

    None if it cannot be made (another vendor's Java, a full disk): that costs time only, and a warning says why.
    """
    classes = _classes_for(java)
    if classes.archive.is_file():
        with contextlib.suppress(OSError):  # another user's, say: it may be used, if not kept for longer
            os.utime(classes.archive)
        return classes
    try:
        classes.archive.parent.mkdir(parents=True, exist_ok=True)
        with locked(classes.archive.with_suffix(".lock")):
            if not classes.archive.is_file():
                _build(classes)
                _prune(classes.archive)
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("Spark starts more slowly than it could: no archive of its classes (%s)", error)
        return None
    return classes


def _classes_for(java: Java) -> SharedClasses:
    jars = spark_home() / "jars"
    identity = hashlib.sha256(f"{java.executable.resolve()} {java.version} {jars}".encode())
    for jar in sorted(jars.glob("*.jar")):
        # Java refuses an archive that was made of other files, by size and time.
        facts = jar.stat()
        identity.update(f"{jar.name} {facts.st_size} {facts.st_mtime_ns}".encode())
    name = f"spark-{pyspark.__version__}-java-{java.feature}-{identity.hexdigest()[:16]}.jsa"
    # As Spark's own class path begins.
    first = ":".join([*map(str, sorted(jars.glob("slf4j-api-*.jar"))), f"{jars}/*"])
    return SharedClasses(data_directory() / "class-data" / name, first)


def _build(classes: SharedClasses) -> None:
    """Make the archive in a process of its own, as this one may have a Spark session; raises OSError if it fails."""
    parent, prefix = classes.archive.parent, f".making-{classes.archive.stem}-"
    for abandoned in parent.glob(f"{prefix}*"):  # by a harness that was killed: the lock is ours
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as directory:
        made = Path(directory) / classes.archive.name
        log = Path(directory) / "log"
        environment = os.environ | {"TMPDIR": directory, "PYTHONPATH": import_path()}
        with open(log, "wb") as output:
            maker = subprocess.Popen(
                [sys.executable, "-m", __name__, str(made), classes.class_path],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C is for this process, which then ends that one.
                start_new_session=True,
            )
        try:
            code = maker.wait(BUILD_TIMEOUT_S)
        finally:
            if maker.poll() is None:
                # With its JVM: all that they leave lies in the directory.
                os.killpg(maker.pid, signal.SIGKILL)
                maker.wait()
        if code != 0 or not made.is_file():
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"the process that makes it ended with exit code {code}: {last}")
        made.chmod(0o644)
        made.replace(classes.archive)


def _prune(newest: Path) -> None:
    """Remove the archives that were not used for longest."""
    found = sorted(newest.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)


def _gang(_rows: Any) -> Iterator[int]:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    context.barrier()
    yield context.partitionId()


def _make(archive: str, class_path: str) -> None:
    """Use Spark as a trial does; its JVM writes the archive as it ends."""
    from barrier_tck.harness.cluster.spark_session import spark_session

    settings = {
        "spark.master": "local[2]",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of one process",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds*=off',
    }
    with spark_session(
        None,
        "barrier-tck-classes",
        settings,
        quick_start=True,
        share_classes=False,
        end_timeout_s=BUILD_TIMEOUT_S,
    ) as spark:
        context = spark.sparkContext
        context.parallelize(range(2), 2).barrier().mapPartitions(_gang).collect()
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _DAEMONS:
            jvm.java.lang.Class.forName(name, True, loader)


if __name__ == "__main__":
    _make(*sys.argv[1:])
