"""What the harness and the driver's process of a job on Spark say to each other.

``JobRpc`` is what the driver can be asked to do, ``JobReports`` what it reports, and ``Routes`` of the runtime what it
asks: where connections go. All three are interfaces of ``barrier_tck.harness.cluster.driver.peer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from barrier_tck.faults.targets import Direction
from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.reference.external_storage import ExternalStorage
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import AcknowledgeCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver


class Repeat(msgspec.Struct, frozen=True):
    """The messages of one subtask come twice."""

    subtask: str
    direction: Direction
    late_ms: float


class JobOrder(msgspec.Struct, frozen=True):
    """One run of a job: the first, or one that resumes it from durable storage."""

    plan: Mapping[str, Any]
    """The trial plan, as plain values; its job is filled in."""
    source: str
    """Directory of the input."""
    root: str
    """Directory of checkpoint storage and output."""
    reads: str
    """Directory in which the reads of restores are logged."""
    of_subtasks: str
    """Directory in which it is logged what subtasks ask of checkpoint storage, and how their clocks differ."""
    inputs: str
    elements: str
    """Directory in which the reads of the input are logged."""
    trace_events: str
    """Directory in which it is logged what passes the channels."""
    messages: str | None
    """Directory in which each process logs what it sends, takes and records; None: it is not logged."""
    watched: tuple[tuple[RuntimePoint, SubtaskId | None], ...]
    proxied: bool
    """Whether connections go through proxies."""
    backend: str | None
    """A candidate's state backend, as ``package.module:Factory``; None: the plan's."""
    external_storage: ExternalStorage | None = None
    """What makes checkpoint storage; None: it is among the files below ``root``."""
    journals: str | None = None
    """Directory for journals of unsynced writes; None: no unsynced writes are lost in this trial."""
    failures: str | None = None
    """Directory in which it is said which snapshots fail; None: none does in this trial."""
    start_from: str | None = None
    """The savepoint from which a job starts that has no checkpoint of its own."""
    repeats: tuple[Repeat, ...] = ()
    unreadable_ms: float = 0.0
    """For this long after its start, the coordinator's reads of durable storage fail."""


class JobOver(msgspec.Struct, frozen=True):
    """How a run of a job ended."""

    state: JobState | None
    """None: the coordinator crashed."""
    reason: str
    stopped_with: str | None = None
    """The savepoint with which the job was stopped, if it was."""
    crash: str = ""
    """The class of the error that crashed the coordinator; ``SystemCrashed`` if it was none of the harness's."""


class JobRpc(Protocol):
    """What the driver's process can be asked to do. It has one session, and one job at a time."""

    def warm_up(self, place: SessionConfig) -> None:
        """Start the JVM of the session; nothing of the cluster is used yet."""

    def open_session(self, place: SessionConfig) -> None:
        """Open the Spark session."""

    def prepare_flights(self, directory: str, splits: int) -> None:
        """Prepare the flights with a Spark job."""

    def await_slots(self, slots: int, timeout_s: float) -> bool:
        """Wait until so many tasks can run at once, and return whether they can."""

    def start_job(self, order: JobOrder) -> None:
        """Start a job; its end is reported."""

    def end_job(self) -> dict[str, int]:
        """End what still runs of the job, and return the connections that were refused, by reason."""

    def waiting_for(self) -> tuple[str, ...]:
        """Return what the job waits for, in words."""

    def repeat(self, repeats: tuple[Repeat, ...]) -> None:
        """Repeat the messages of these subtasks from now on, and of no others."""

    def take_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        """Ask the coordinator for a savepoint, so many milliseconds from now."""

    def take_forged(self, message: AcknowledgeCheckpoint) -> None:
        """Let the coordinator take a message that no subtask sent."""


class JobReports(SparkJobObserver):
    """What the driver's process reports, in order; it waits until each report was taken."""

    def slots_changed(self, slots: int, at_ms: float) -> None:
        """The executors have room for so many subtasks, as was seen at a time of the coordinator's clock; reported at
        the start of an elastic job, and when it is another number than before.
        """

    def job_over(self, over: JobOver) -> None:
        """The job ended, and everything that belonged to it."""
