"""An archive of Spark's classes, loaded and verified, that JVMs map into their memory when they start.

A Spark JVM spends half of its start-up processor time on finding, parsing and verifying some ten thousand classes.
That is a third of a campaign in which executors are killed. Java's class data sharing (JEP 350) saves it. The archive
is made once for each Spark and each Java, by a JVM that does what drivers of jobs and of queries, judges, executors,
masters and workers do, and is kept in the data directory. It changes no behaviour: a JVM that cannot use it (another
Java, other jars) starts as it would without it. If the machine is too busy to make it soon, the process that makes it
goes on by itself, and later commands find the archive.

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
import time
from pathlib import Path
from typing import TextIO

from barrier_tck.harness.cluster.class_archive import SharedClasses, classes_for
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import lock_if_free
from barrier_tck.harness.support.notices import notice
from barrier_tck.harness.support.work_directories import is_temporary

_log = logging.getLogger(__name__)

PATIENCE_S = 240.0
"""For how long a command waits. Making the archive takes some 40 s on two idle cores."""
NOTICE_S = 10.0
"""How often a command that waits says how far it is."""
_POLL_S = 0.1
_KEPT = 3
"""How many archives are kept (200 MB each): one for each recently used environment."""
_MAKER = "barrier_tck.harness.cluster.class_archive_maker"
"""The program that makes an archive. It opens a Spark session, so it is a process and not a function."""
_STAGE = "stage: "
"""What the program prints before the name of each of its stages."""


def shared_classes(java: Java) -> SharedClasses | None:
    """Return the archive for this Spark and a Java; it is made if need be, which takes half a minute.

    Return None if it cannot be made (another vendor's Java, a full disk), or takes too long. That only costs time;
    a warning or a notice says why. None, too, for a Spark in a temporary environment: it does not start often enough,
    and its archive would push out one that is used.
    """
    if is_temporary(spark_home()):
        return None
    classes = classes_for(java)
    if classes.archive.is_file():
        with contextlib.suppress(
            OSError
        ):  # for instance another user's file: it may be used, but cannot be marked as recently used
            os.utime(classes.archive)
        return classes
    try:
        classes.archive.parent.mkdir(parents=True, exist_ok=True)
        made = _made_in_time(classes)
    except OSError as error:
        _log.warning(
            "Spark starts more slowly than it could: the archive of its classes could not be made (%s)", error
        )
        return None
    if not made:
        notice(
            f"the archive of Spark's classes is not there after {PATIENCE_S:.0f} s, because this machine is busy; "
            "Spark starts without it, more slowly, and later commands find it"
        )
    return classes if made else None


def _made_in_time(classes: SharedClasses) -> bool:
    """Make the archive, or wait for the process that does; return whether it is there in time."""
    waiting = _Waiting()
    while not classes.archive.is_file():
        lock = lock_if_free(classes.archive.with_suffix(".lock"))
        if lock is not None:
            with lock:
                if not classes.archive.is_file() and not _build(classes, lock, waiting):
                    return False
                _prune(classes.archive)
                return True
        if not waiting.goes_on("another process makes it"):
            return False
        time.sleep(_POLL_S)
    return True


class _Waiting:
    """Waits for the archive, and says so from time to time."""

    def __init__(self) -> None:
        self._began = self._said = time.monotonic()

    def begins(self) -> None:
        """Say what is being made."""
        notice(
            "making an archive of Spark's classes, once for each Spark and Java; it halves every start of a JVM"
        )

    def goes_on(self, stage: str) -> bool:
        """Return whether there is time left; say how far it is if it was not said for a while."""
        now = time.monotonic()
        if now - self._said >= NOTICE_S:
            self._said = now
            notice(f"the archive of Spark's classes: {now - self._began:.0f} s (usually 40 s), {stage}")
        return now - self._began < PATIENCE_S

    def ends(self) -> None:
        """Say that it is done."""
        notice(f"the archive of Spark's classes is made, after {time.monotonic() - self._began:.0f} s")


def _build(classes: SharedClasses, lock: TextIO, waiting: _Waiting) -> bool:
    """Make the archive in another process, as this one may have a Spark session; return whether it is there in time.

    The process holds the lock, too, and goes on if this one does not wait for it. Raises OSError if it fails.
    """
    parent, prefix = classes.archive.parent, f".making-{classes.archive.stem}-"
    for abandoned in parent.glob(f"{prefix}*"):  # left by a process that was killed: we hold the lock
        shutil.rmtree(abandoned, ignore_errors=True)
    waiting.begins()
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    log = directory / "log"
    with open(log, "wb") as output:
        maker = subprocess.Popen(
            [sys.executable, "-m", _MAKER, str(directory), str(classes.archive), classes.class_path],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"TMPDIR": str(directory), "PYTHONPATH": import_path()},
            # Ctrl-C reaches only this process, which then ends the other one.
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    try:
        while maker.poll() is None:
            if not waiting.goes_on(_stage(log)):
                return False
            time.sleep(_POLL_S)
    except BaseException:
        # The process and its JVM: everything that they leave lies in the directory.
        os.killpg(maker.pid, signal.SIGKILL)
        maker.wait()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    last = _last_line(log)
    shutil.rmtree(directory, ignore_errors=True)
    if maker.returncode != 0 or not classes.archive.is_file():
        raise OSError(f"the process that makes it ended {_how(maker.returncode)}: {last}")
    waiting.ends()
    return True


def _how(code: int) -> str:
    return f"by the signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def _stage(log: Path) -> str:
    """Return what the process does now, as it says itself."""
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    stages = [line.removeprefix(_STAGE) for line in lines if line.startswith(_STAGE)]
    return stages[-1] if stages else "Python starts"


def _last_line(log: Path) -> str:
    text = log.read_text(errors="replace").strip() if log.is_file() else ""
    return text.rpartition("\n")[2] or "it said nothing"


def _prune(newest: Path) -> None:
    """Remove the archives that have not been used for the longest time."""
    found = sorted(newest.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)
