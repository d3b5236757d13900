"""What the harness and its processes say to each other: the driver of a query, the judge, and tasks at points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.record.history import OutputComparison, StateComparison
from barrier_tck.harness.streaming.query_definition import QueryPlace, SinkReports


@dataclass(frozen=True)
class QueryOrder:
    """A query to be started, or started again."""

    job: str
    """The ``module:name`` of the job."""
    place: QueryPlace
    rendezvous: str
    """The directory in which tasks, and a sink between two actions, meet the harness."""
    writes: str = ""
    """The directory that says which writes to the checkpoint directory are disturbed; empty: none ever is."""


class QueryRpc(Protocol):
    """What a driver can be asked to do."""

    def open_session(self, place: SessionConfig, conf: Mapping[str, str]) -> str:
        """Open the session with these settings, if it is not open yet; return the id of its application."""

    def start_query(self, order: QueryOrder) -> None:
        """Start the query, from its checkpoint directory if there is something in it; it is awaited on a thread."""

    def stop_query(self) -> None:
        """Stop what runs."""

    def try_write(self, path: str) -> str:
        """Write a file as the query writes its checkpoint; return what went wrong, if anything did."""


class QueryReports(Protocol):
    """What a driver reports. It stands still until the report has been taken."""

    def sink_called(self, batch: int) -> None:
        """A micro-batch has begun: its offsets are logged, and the sink is about to be called."""

    def sink_returned(self, batch: int) -> None:
        """The sink has written a micro-batch, which is not committed yet."""

    def query_over(self, problem: str) -> None:
        """The query has ended: all input is consumed, or ``problem`` says what went wrong."""


@dataclass(frozen=True)
class TaskRun:
    """One run of a task, in Spark's numbers.

    If shuffle files are lost, Spark runs a stage again: the same stage and partition, another run, and ``retry`` is 0.
    """

    stage: int
    partition: int
    run: int
    """A number that no other run of any task has."""
    retry: int
    """How often the task failed before in this run of its stage."""


class TaskReports(Protocol):
    """What a task of a micro-batch reports. It stands still until the report has been taken."""

    def task_began(self, worker: int, batch: int, task: TaskRun) -> None:
        """A task begins in a Python worker, given by its pid."""

    def rows_passed(self, worker: int, batch: int, rows: int) -> None:
        """So many rows of a task have been passed on, maybe not all; 0: it has none."""

    def all_rows_passed(self, worker: int, batch: int, rows: int) -> None:
        """All rows of a task, so many, have been passed on or written, and the task has not ended."""


class PointReports(TaskReports, SinkReports, Protocol):
    """What is reported by those who meet the harness in a directory."""


@dataclass(frozen=True)
class RowNames:
    """What identifies a row of the input."""

    id_column: str = ""
    """Has another value in each row; empty if no column is known to."""
    key_columns: tuple[str, ...] = ()
    """Have the same values in the rows that belong together."""
    any_columns: bool = False
    """Whether nothing is known of the columns, so that all those with the name of a column of the output are tried."""


NOTHING_KNOWN = RowNames()


@dataclass(frozen=True)
class JudgeOrder:
    """Output to be judged."""

    job: str
    place: QueryPlace
    run_again: tuple[int, ...]
    """The micro-batches that, or of which a task, ran more than once."""
    names: RowNames = NOTHING_KNOWN
    as_batch: bool = True
    """Whether Spark runs the query as a batch, too."""
    restarted_before: tuple[int, ...] = ()
    """The micro-batches that were the first ones of a driver which took the place of another."""


@dataclass(frozen=True)
class JobCheck:
    """What the judge says of a job before any fault strikes."""

    problem: str = ""
    """Why its output cannot be judged, and what to do, in words; empty: it can be."""
    held_back_s: float = 0.0
    """How far event time must go on until a row of the output is final; 0 if rows are given at once."""
    as_batch: bool = True
    """Whether Spark runs the query as a batch, too; otherwise an undisturbed run tells what its output must be."""


class JudgeRpc(Protocol):
    """What the judge can be asked to do."""

    def open_session(self, conf: Mapping[str, str]) -> None:
        """Start its own Spark, in local mode."""

    def check(self, job: str, place: QueryPlace) -> JobCheck:
        """Say whether the output of a job, given by its name, can be judged, from some input of it."""

    def judge(self, order: JudgeOrder) -> OutputComparison:
        """Compare the committed output with the same function as a batch, or with an undisturbed run of it."""

    def judge_state(self, order: JudgeOrder) -> StateComparison:
        """Compare the state after each micro-batch with the rows until then; for a job that says what it keeps."""
