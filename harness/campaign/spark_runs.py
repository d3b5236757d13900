"""Runs the trials of a campaign on a Spark cluster, with the same verdicts, digests and order as one process.

Plans are drawn here and sent out in chunks, each a job of Spark with one task for each core; a few jobs run at once, so
that no core waits for the last trial of a chunk. Nothing of a trial stays here once it was yielded. What Spark loses
with an executor it runs again. If a job fails because workers died in it more often than Spark allows, its trials run
one by one, so that only a trial that also ends its worker alone is lost (decision 0083).

A real trial needs a host for itself, on which it starts a cluster of its own. So a chunk has one for each host, and a
core that is given another one waits (decision 0089).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, repeat
from pathlib import Path, PurePath
from typing import Generic, TypeVar

import pyarrow
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barrier_tck.faults.toxiproxy.server import URL_VARIABLE
from barrier_tck.harness.campaign.configuration import ClusterSection
from barrier_tck.harness.campaign.executor_trials import ANSWERS_IN_SPARK, REQUESTS, STARTS_WITHIN_S, answers
from barrier_tck.harness.campaign.process_of_trials import answered
from barrier_tck.harness.campaign.trial_messages import (
    Answer,
    KeptLog,
    OpenSystem,
    PrepareSystem,
    RunTrial,
    ShrinkTrial,
    SystemPrepared,
    TrialLost,
    TrialRan,
    TrialShrunk,
    line_of,
)
from barrier_tck.harness.campaign.trial_pool import seconds_for
from barrier_tck.harness.campaign.tried_plans import FailedTrial, PlannedTrial, RunOnce, TriedPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.reference.checkpoint_storages import GIVEN_HDFS
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.support.futures import result_of
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import lost_trial
from barrier_tck.harness.workloads.workload_names import filled

JOBS_AT_ONCE = 3
"""How many chunks are under way: while the oldest is counted and the next one drawn, one more keeps the cores busy."""
PER_CORE_MAX = 64
"""The most trials of a task: what is run again with an executor that was lost, and kept here of each chunk."""
PER_CORE_FIRST = 4
CHUNK_S = 4.0
"""Chunks grow, from a few trials for each core, until one takes so long. So the first verdicts are there at once, and
little is lost by an interruption or an executor's death."""
CHUNK_BYTES = 64 << 20
"""Chunks grow only as long as their answers are smaller than half of this: trials that fail send their history."""

REAL_TIMES, REAL_GRACE_S = 4, 600.0
"""A real trial that has not ended after so many times its limit and so much more time stands still, and is ended. It
ends its job in its limit itself; before and after that it waits for executors and for its judge, on a busy host for
long."""
SERVICES = (URL_VARIABLE, GIVEN_HDFS)
"""Variables with which a user gives trials a service. A host without them would use another one without a word."""
SETTINGS = {"spark.speculation": "false"}
"""Settings of Spark for real trials: one that takes long would be run a second time beside itself."""

PREPARED_AGAIN = 2
"""How often hosts are asked again whether they can run trials, if Spark sent two of the requests to one of them."""

_LOST = ("Python worker exited unexpectedly", "ExecutorLostFailure")
"""How Spark says that a task failed because its worker or executor died."""
_TOO_LARGE = "spark.driver.maxResultSize"
"""What Spark names if the answers of a job are more than the driver takes at once."""

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[_Given]):
    """A trial, and the line that asks for it."""

    about: _Given
    request: bytes
    within_s: float | None


class SparkRuns:
    """Runs trials on the executors of a Spark application, which stays open."""

    def __init__(
        self, system: SystemUnderTest, session: SparkSession, cluster: ClusterSection | None = None
    ) -> None:
        """Take the application, and the cluster that the campaign asks for, which each real trial starts."""
        self._system = system
        self._session = session
        self._real = system.world != "simulated"
        path = tuple(os.path.abspath(entry) for entry in sys.path)
        version = environment()["barrier-tck"]
        services = tuple(name for name in SERVICES if self._real and os.environ.get(name))
        self._opening = line_of(
            OpenSystem(reference_of(system), path, version, self._real, cluster, services)
        )
        self._over = threading.Event()

    @property
    def once(self) -> RunOnce | None:
        """Return what runs a plan that is no trial of the campaign where its trials run; None if this process can."""
        return self._run_once if self._real else None

    def prepare(self) -> None:
        """Let hosts start a real system and stop it, so that what they lack is known before the first trial.

        Raises what the system raises, for instance EnvironmentProblem; the message names the host. Spark chooses the
        hosts. If some are missing they are asked again, all of them, but only ``PREPARED_AGAIN`` times. A host that is
        still missing then, or comes later, says it with its first trial.
        """
        seen, again = 0, PREPARED_AGAIN
        prepared: set[str] = set()
        while self._real and (hosts := self._places_now()) > len(prepared):
            # Executors come one after the other, while the first ones are asked. Only if none came, Spark is the cause.
            again -= hosts <= seen
            if again < 0:
                break
            seen = max(seen, hosts)
            asked = repeat(_Asked(None, line_of(PrepareSystem()), STARTS_WITHIN_S), hosts)
            with contextlib.closing(self._in_order(asked)) as found:
                for _, answer in found:
                    if isinstance(answer, TrialLost):
                        raise OperatingError(f"{self._system.name} cannot be started on a host: {answer.why}")
                    assert isinstance(answer, SystemPrepared), "a host says its name"
                    prepared.add(answer.host)

    def _places_now(self) -> int:
        with ThreadPoolExecutor(1, "spark-jobs") as thread:
            return result_of(thread.submit(self._places))

    def _run_once(self, plan: TrialPlan, directory: Path, only: tuple[str, ...]) -> TrialRecord:
        trial = PlannedTrial(0, filled(plan), directory, drawn=False, wanted_whole=False, only=only)
        [tried] = self.run([trial])
        return tried.result.record

    def run(self, planned: Iterable[PlannedTrial | None]) -> Generator[TriedPlan, None, None]:
        """Yield the result of each trial, in the order of the plans.

        Raises HarnessError as the trial itself would have, and OperatingError if the application or its executors
        cannot run any. No job runs on, however it ends.
        """
        asked = (
            _Asked(trial, line_of(RunTrial(trial, elsewhere=True)), self._seconds_for(trial))
            for trial in planned
            if trial is not None  # no strategy that waits for results is spread
        )
        with contextlib.closing(self._in_order(asked)) as found:
            for trial, answer in found:
                yield self._tried(trial, answer)

    def shrink(self, failing: Iterable[FailedTrial]) -> Generator[TrialPlan | None, None, None]:
        """Yield the smallest plan of each, in order; None if it cannot be shrunk. Raises as ``run`` does."""
        asked = (_Asked(failed, line_of(ShrinkTrial(failed, elsewhere=True)), None) for failed in failing)
        with contextlib.closing(self._in_order(asked)) as found:
            for _, answer in found:
                assert isinstance(answer, TrialShrunk | TrialLost), (
                    "a failure is answered by its smallest plan"
                )
                yield answer.plan if isinstance(answer, TrialShrunk) else None

    def _tried(self, trial: PlannedTrial, answer: Answer) -> TriedPlan:
        if isinstance(answer, TrialLost):
            return TriedPlan(
                lost_trial(
                    trial.number, trial.plan, self._system, answer.why, answer.started_at, answer.seconds
                )
            )
        assert isinstance(answer, TrialRan), "a trial is answered by its result"
        _keep_logs(answer.logs, trial.directory)
        return answer.tried

    def _seconds_for(self, trial: PlannedTrial) -> float:
        return REAL_TIMES * trial.plan.limits.wall_s + REAL_GRACE_S if self._real else seconds_for(trial)

    def _in_order(self, asked: Iterable[_Asked[_Given]]) -> Generator[tuple[_Given, Answer], None, None]:
        """Yield each answer with what was asked about, in order."""
        self._over.clear()
        chunks = _Chunks(iter(asked), grow=not self._real)
        waiting: deque[Future[_Chunk[_Given]]] = deque()
        threads = ThreadPoolExecutor(JOBS_AT_ONCE, "spark-jobs")
        try:
            chunks.places = result_of(threads.submit(self._places))
            for chunk in chunks:
                waiting.append(threads.submit(self._answered, chunk))
                if len(waiting) >= JOBS_AT_ONCE:
                    yield from chunks.counted(_oldest(waiting))
            while waiting:
                yield from chunks.counted(_oldest(waiting))
        except BaseException:
            # Ctrl-C may come when a job was handed over and is not yet among those that are waited for.
            self._over.set()
            with contextlib.suppress(Py4JError, OSError):  # Spark may have ended first
                self._session.sparkContext.cancelAllJobs()
            raise
        finally:
            self._over.set()
            threads.shutdown(wait=True, cancel_futures=True)

    # --- on a thread for each job ---------------------------------------------------------------------------

    def _places(self) -> int:
        """Return how many trials can run at once: on each core one, but only one real trial on each host."""
        try:
            context = self._session.sparkContext
            return _hosts(context) if self._real else int(context.defaultParallelism)
        except (Py4JError, OSError) as error:
            raise _ended(error) from error

    def _answered(self, asked: Sequence[_Asked[_Given]]) -> _Chunk[_Given]:
        started = time.monotonic()
        lines = self._lines(asked)
        return _Chunk(asked, lines, time.monotonic() - started, self._places())

    def _lines(self, asked: Sequence[_Asked[_Given]]) -> list[bytes]:
        """Return the answers to some requests: of one job; of two if they are too large for one; and if workers died in
        that, of a job for each. A request whose workers die in a job of its own is answered by ``TrialLost``.
        """
        started_at, started = datetime.now(UTC), time.monotonic()
        try:
            return self._job(asked)
        except (PySparkException, Py4JError, OSError) as error:
            if _TOO_LARGE in str(error) and len(asked) > 1 and not self._over.is_set():
                middle = len(asked) // 2
                return [*self._lines(asked[:middle]), *self._lines(asked[middle:])]
            if not self._is_about_workers(error):
                raise _ended(error) from error
            if len(asked) == 1:
                why = f"Spark's worker that ran it died, each time that it ran: {_sentence(error)}"
                return [line_of(TrialLost(why, started_at, time.monotonic() - started))]
        return [line for one in asked for line in self._lines([one])]

    def _job(self, asked: Sequence[_Asked[_Given]]) -> list[bytes]:
        if self._over.is_set():
            raise OperatingError("the campaign is over")
        rows = [
            {"place": place, "opening": self._opening, "request": one.request, "within_s": one.within_s}
            for place, one in enumerate(asked)
        ]
        frame = self._session.createDataFrame(pyarrow.Table.from_pylist(rows, schema=REQUESTS))
        found = frame.mapInArrow(answers, ANSWERS_IN_SPARK).toArrow()
        lines = dict(zip(found["place"].to_pylist(), found["answer"].to_pylist(), strict=True))
        if len(lines) != len(asked) or found.num_rows != len(asked):
            raise OperatingError(f"Spark answered {found.num_rows} of {len(asked)} trials of a job")
        return [lines[place] for place in range(len(asked))]

    def _is_about_workers(self, error: Exception) -> bool:
        """Return whether a job failed because workers or executors died, and the application goes on."""
        return not self._over.is_set() and any(phrase in str(error) for phrase in _LOST)


@dataclass(frozen=True, slots=True)
class _Chunk(Generic[_Given]):
    """A job of Spark that is over."""

    asked: Sequence[_Asked[_Given]]
    lines: Sequence[bytes]
    seconds: float
    places: int
    """How many trials the cluster runs at once, which may have grown or shrunk."""


class _Chunks(Generic[_Given]):
    """Cuts requests into chunks, by how long the chunks before took."""

    def __init__(self, asked: Iterator[_Asked[_Given]], grow: bool = True) -> None:
        """Take the requests; if chunks do not grow, they have one request for each place."""
        self._asked = asked
        self._grow = grow
        self._per_core = PER_CORE_FIRST if grow else 1
        self.places = 1

    def __iter__(self) -> Iterator[list[_Asked[_Given]]]:
        while chunk := list(islice(self._asked, self._per_core * self.places)):
            yield chunk

    def counted(self, chunk: _Chunk[_Given]) -> Iterator[tuple[_Given, Answer]]:
        """Yield the answers of a chunk; raises the error that one reports."""
        self.places = max(1, chunk.places)
        answered_bytes = sum(map(len, chunk.lines))
        if chunk.seconds > 2 * CHUNK_S or answered_bytes > CHUNK_BYTES:
            self._per_core = max(1, self._per_core // 2)
        elif self._grow and chunk.seconds < CHUNK_S and answered_bytes < CHUNK_BYTES // 2:
            self._per_core = min(PER_CORE_MAX, 2 * self._per_core)
        for one, line in zip(chunk.asked, chunk.lines, strict=True):
            yield one.about, answered(line)


def _hosts(context: SparkContext) -> int:
    """Return on how many hosts there are executors; one in local mode, in which the driver runs tasks itself."""
    addresses = context._jsc.sc().getExecutorMemoryStatus().keysIterator()  # noqa: SLF001 - no other way tells
    hosts = []
    while addresses.hasNext():
        hosts.append(str(addresses.next()).rpartition(":")[0])
    with contextlib.suppress(ValueError):
        hosts.remove(str(context.getConf().get("spark.driver.host")))  # it is one of them
    return max(1, len(set(hosts)))


def _keep_logs(logs: Sequence[KeptLog], directory: Path) -> None:
    """Write the logs of a trial that ran elsewhere where they would be if it had run here."""
    for log in logs:
        name = PurePath(log.name)
        if name.is_absolute() or ".." in name.parts:
            continue
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(log.content)


def _oldest(waiting: deque[Future[_Chunk[_Given]]]) -> _Chunk[_Given]:
    """Take the oldest job, once it is over: one that is waited for in vain has still to be cancelled."""
    done = result_of(waiting[0])
    waiting.popleft()
    return done


def _sentence(error: Exception) -> str:
    """Return the line of Spark's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    telling = [line for line in lines if any(phrase in line for phrase in _LOST)]
    return (telling or lines)[0]


def _ended(error: Exception) -> OperatingError:
    """Return the error for an application that cannot run trials any more, or at all."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    python = [line for line in lines if line.startswith(("ModuleNotFoundError", "ImportError"))]
    return OperatingError(f"Spark cannot run trials: {(python or lines)[-1 if python else 0]}")
