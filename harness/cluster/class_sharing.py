"""An archive of Spark's classes, loaded and verified, that JVMs map into their memory when they start.

A Spark JVM spends half of its start-up processor time on finding, parsing and verifying some ten thousand classes.
That is a third of a campaign in which executors are killed. Java's class data sharing (JEP 350) saves it. The archive
is made once for each Spark and each Java, by a JVM that does what drivers of jobs and of queries, judges, executors,
masters and workers do, and is kept in the data directory. It changes no behaviour: a JVM that cannot use it (another
Java, other jars) starts as it would without it.

Java demands that the class path begins as it did when the archive was made. Spark begins it with its configuration
directory, which differs from cluster to cluster. The jars are therefore put in front of it, and occur twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from barrier_tck.harness.cluster.class_archive import SharedClasses, classes_for
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import locked

_log = logging.getLogger(__name__)

BUILD_TIMEOUT_S = 240.0
"""Making the archive takes some 40 s on two idle cores."""
_KEPT = 3
"""How many archives are kept (200 MB each): one for each recently used environment."""
_MAKER = "barrier_tck.harness.cluster.class_archive_maker"
"""The program that makes an archive. It opens a Spark session, so it is a process and not a function."""


def shared_classes(java: Java) -> SharedClasses | None:
    """Return the archive for this Spark and a Java; it is made if need be, which takes half a minute.

    Return None if it cannot be made (another vendor's Java, a full disk). That only costs time; a warning says why.
    """
    classes = classes_for(java)
    if classes.archive.is_file():
        with contextlib.suppress(
            OSError
        ):  # for instance another user's file: it may be used, but cannot be marked as recently used
            os.utime(classes.archive)
        return classes
    try:
        classes.archive.parent.mkdir(parents=True, exist_ok=True)
        with locked(classes.archive.with_suffix(".lock")):
            if not classes.archive.is_file():
                _build(classes)
                _prune(classes.archive)
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning(
            "Spark starts more slowly than it could: its class archive could not be made (%s)", error
        )
        return None
    return classes


def _build(classes: SharedClasses) -> None:
    """Make the archive in another process, as this one may have a Spark session; raises OSError if that fails."""
    parent, prefix = classes.archive.parent, f".making-{classes.archive.stem}-"
    for abandoned in parent.glob(f"{prefix}*"):  # left by a harness that was killed: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as directory:
        made = Path(directory) / classes.archive.name
        log = Path(directory) / "log"
        environment = os.environ | {"TMPDIR": directory, "PYTHONPATH": import_path()}
        with open(log, "wb") as output:
            maker = subprocess.Popen(
                [sys.executable, "-m", _MAKER, str(made), classes.class_path, str(BUILD_TIMEOUT_S)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C reaches only this process, which then ends the other one.
                start_new_session=True,
            )
        try:
            code = maker.wait(BUILD_TIMEOUT_S)
        finally:
            if maker.poll() is None:
                # The process and its JVM: everything that they leave lies in the directory.
                os.killpg(maker.pid, signal.SIGKILL)
                maker.wait()
        if code != 0 or not made.is_file():
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"the process that makes it ended with exit code {code}: {last}")
        made.chmod(0o644)
        made.replace(classes.archive)


def _prune(newest: Path) -> None:
    """Remove the archives that have not been used for the longest time."""
    found = sorted(newest.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)
