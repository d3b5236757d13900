"""Runs trials where Spark sends them: in the Python worker of an executor, with a process of its own for the trials.

A Python worker only hands a trial on and waits, as a thread of ``trial_pool`` does. So it sees which trial ended its
process, and no trial can end the worker, whose death Spark would answer by running all trials of its task again
(decision 0083). Requests and answers are the lines of ``trial_messages``, in columns of Arrow.

A real trial starts a cluster of its own on this host. So it has a process of its own, which waits until no other trial
runs here, and which gets nothing of the Spark that runs this worker (decision 0089).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow

from barrier_tck.harness.campaign.host_keeper import DOCKER
from barrier_tck.harness.campaign.process_of_trials import TrialProcess
from barrier_tck.harness.campaign.trial_messages import (
    NotDone,
    OpenSystem,
    PrepareSystem,
    TrialLost,
    line_of,
    request_of,
)
from barrier_tck.harness.cluster.cluster_config import ClusterKind
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.process_identity import MARKER
from barrier_tck.harness.cluster.settings import LIGHT_JAVA, without_other_spark
from barrier_tck.harness.support.errors import (
    ClusterDidNotStart,
    HarnessError,
    OperatingError,
    PortInUse,
)

REQUESTS = pyarrow.schema(
    [
        pyarrow.field("place", pyarrow.int64(), nullable=False),
        pyarrow.field("opening", pyarrow.binary(), nullable=False),
        pyarrow.field("request", pyarrow.binary(), nullable=False),
        pyarrow.field("within_s", pyarrow.float64()),
    ]
)
"""What an executor is given: requests, each with the place of its answer, and the message that opens its system."""
ANSWERS = pyarrow.schema(
    [
        pyarrow.field("place", pyarrow.int64(), nullable=False),
        pyarrow.field("answer", pyarrow.binary(), nullable=False),
    ]
)
ANSWERS_IN_SPARK = "place long not null, answer binary not null"
"""The same columns in Spark's words."""

TRIES = 2
"""A trial that ended so many processes is not given another one."""
STARTS_WITHIN_S = 600.0
"""How long a real system may take to start: a cluster that does not start says so sooner."""
_TRIED_AGAIN = (ClusterDidNotStart, PortInUse, OperatingError)
"""What may be chance when a system is started: the host is busy, or another program just took a port."""


def answers(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Answer one request after the other; this is the function that Spark's executors call."""
    for batch in batches:
        for row in batch.to_pylist():
            answer = _attendant(row["opening"]).answer(row["request"], row["within_s"])
            yield pyarrow.RecordBatch.from_pylist([{"place": row["place"], "answer": answer}], schema=ANSWERS)


class AttendsRequests(Protocol):
    """Answers the requests of one campaign."""

    def answer(self, request: bytes, within_s: float | None) -> bytes:
        """Return the line that answers a line."""

    def close(self) -> None:
        """End what it has started."""


class HostAttendant:
    """Gives each request a process that has this host for itself, and another one if that ends."""

    def __init__(self, opening: OpenSystem) -> None:
        self._opening = opening
        kind = opening.cluster.name if opening.cluster is not None else ClusterKind.LOCAL
        self._keeper = [DOCKER] if kind is ClusterKind.DOCKER else []

    def answer(self, request: bytes, within_s: float | None) -> bytes:
        """Return the line that answers a line, when all that was started for it is gone.

        What is counted of the time, for the limit and for ``TrialLost``, begins when the system was started.
        """
        started_at, started = datetime.now(UTC), time.monotonic()
        endings: list[str] = []
        while len(endings) < TRIES:
            process = TrialProcess(environment_of_trials(os.environ), self._keeper)
            try:
                try:
                    process.open(self._opening)  # waits for the host
                    prepared = process.ask(PrepareSystem(), STARTS_WITHIN_S)
                except HarnessError as error:
                    endings.append(str(error))
                    if isinstance(error, _TRIED_AGAIN) and len(endings) < TRIES:
                        continue
                    return line_of(NotDone(type(error).__name__, str(error)))
                started_at, started = datetime.now(UTC), time.monotonic()
                line = process.ask_in_lines(request, within_s) if prepared is not None else None
                if line is not None:
                    return line
                if process.overran:
                    return _lost(process.overran, started_at, started)
                endings.append(process.ending())
            finally:
                process.close(at_once=True)
        return _lost(_each_ended(endings), started_at, started)

    def close(self) -> None:
        """Do nothing: every process has ended with its answer."""


def environment_of_trials(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process with a cluster of its own: those of this worker, without what Spark set for
    the application that the worker belongs to.
    """
    own = without_other_spark(environ)
    own.pop(MARKER, None)  # if that application runs on a cluster of the harness
    java = own.get("JDK_JAVA_OPTIONS", "").removeprefix(LIGHT_JAVA).strip()
    own |= {"JDK_JAVA_OPTIONS": java} if java else {}
    if not java:
        own.pop("JDK_JAVA_OPTIONS", None)
    path = [entry for entry in import_path().split(os.pathsep) if not _is_of_other_spark(entry, environ)]
    return own | {"PYTHONPATH": os.pathsep.join(path)}


def _is_of_other_spark(entry: str, environ: Mapping[str, str]) -> bool:
    """Return whether a place of modules is that of the Spark that runs this worker; trials use the installed one."""
    path = Path(entry)
    if path.name == "pyspark.zip" or (path.name.startswith("py4j-") and path.suffix == ".zip"):
        return True
    home = environ.get("SPARK_HOME")
    return path.suffix == ".jar" or (home is not None and path.is_relative_to(Path(home) / "python"))


class Attendant:
    """Gives requests to a process, and to another one if that ends."""

    def __init__(self, opening: OpenSystem) -> None:
        self._opening = opening
        self._process: TrialProcess | None = None

    def answer(self, request: bytes, within_s: float | None) -> bytes:
        """Return the line that answers a line. If the request ends its process, another one gets it; if it ends that
        one too, or if there is no answer in time, the answer is ``TrialLost``.
        """
        started_at, started = datetime.now(UTC), time.monotonic()
        endings: list[str] = []
        while len(endings) < TRIES:
            try:
                process = self._process or self._started()
            except HarnessError as error:
                return line_of(NotDone(type(error).__name__, str(error)))
            line = process.ask_in_lines(request, within_s)
            if line is not None:
                return line
            self._process = None
            if process.overran:
                return _lost(process.overran, started_at, started)
            endings.append(process.ending())
        return _lost(_each_ended(endings), started_at, started)

    def _started(self) -> TrialProcess:
        process = TrialProcess()
        try:
            process.open(self._opening)
        except HarnessError:
            process.close(at_once=True)
            raise
        self._process = process
        return process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close(at_once=True)
            self._process = None


def _each_ended(endings: list[str]) -> str:
    return f"each of the {TRIES} processes that ran it ended: {', '.join(endings)}"


def _lost(why: str, started_at: datetime, started: float) -> bytes:
    return line_of(TrialLost(why, started_at, time.monotonic() - started))


_latest: tuple[bytes, AttendsRequests] | None = None
"""A Python worker serves one task after the other, and mostly of one campaign: its process lives on between them. It
ends when its input does, with the worker."""


def _attendant(opening: bytes) -> AttendsRequests:
    global _latest
    if _latest is None or _latest[0] != opening:
        if _latest is not None:
            _latest[1].close()
        system = _opened_here(opening)
        _latest = opening, HostAttendant(system) if system.alone else Attendant(system)
    return _latest[1]


def _opened_here(line: bytes) -> OpenSystem:
    """Return the opening with the module search path of this worker; where the driver's directories are found too,
    they come last: a system that lies in its working directory is found on a cluster of the same machine.
    """
    opening = request_of(line)
    assert isinstance(opening, OpenSystem), "a system is opened first"
    here = [
        entry for entry in sys.path if entry and not (opening.alone and _is_of_other_spark(entry, os.environ))
    ]
    others = (entry for entry in opening.path if entry not in here and os.path.exists(entry))
    return msgspec.structs.replace(opening, path=(*here, *others))
