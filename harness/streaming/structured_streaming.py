"""A user's query on Structured Streaming, as a system under test on a real cluster."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_choice import cluster_of
from barrier_tck.harness.cluster.cluster_config import ClusterConfig, DockerClusterConfig, LocalClusterConfig
from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.cluster.driver.peer import RemoteError
from barrier_tck.harness.cluster.java_compiler import has_java_compiler
from barrier_tck.harness.cluster.rendezvous import Rendezvous
from barrier_tck.harness.cluster.spark_releases import reads_state
from barrier_tck.harness.draw.profile import DrawnSetting, FaultRanges, LimitRanges, Profile, WorkloadRanges
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History, OutputComparison, StateComparison
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.streaming.batch_watermarks import BatchWatermarks
from barrier_tck.harness.streaming.checkpoint_outages import CheckpointOutages
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.disturbed_writes import JARS, jar_of_writes
from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace
from barrier_tck.harness.streaming.query_rpc import (
    JobCheck,
    JudgeOrder,
    JudgeRpc,
    PointReports,
    QueryOrder,
    RowNames,
)
from barrier_tck.harness.streaming.query_run import QueryDrivers, QueryRun
from barrier_tck.harness.streaming.query_targets import TASKS
from barrier_tck.harness.streaming.spark_words import in_words
from barrier_tck.harness.streaming.state_in_between import StateInBetween
from barrier_tck.harness.support.errors import NotJudgeable, OperatingError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.workload import split_files
from barrier_tck.harness.workloads.workload_names import filled, workload_named

_log = logging.getLogger(__name__)

JUDGE_MODULE = "barrier_tck.harness.streaming.driver.batch_judge"
WORKERS, CORES_PER_WORKER = 2, 1
_EXECUTORS_TIMEOUT_S = 60.0
_FIRST_AT = datetime(2024, 1, 1, tzinfo=UTC)
LATE_ROWS = (100, 250, 500)
"""How many of a thousand rows are late in the trials in which some are."""
RETRIES = ("stock", "none")
"""Settings of a trial: Spark tries a failed task again as it is shipped, or every failure ends the query."""
_SETTINGS = ("retries", "executors_again", "late_rows")
"""``executors_again``: how many executors the sessions of later drivers have; the first has one on each worker.
``late_rows``: how many of a thousand rows of generated input come later than their times say."""
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

POINTS = (
    ProtocolPoint.CHECKPOINT_TRIGGERED,
    ProtocolPoint.ALL_ACKNOWLEDGED,
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.RECORDS_PROCESSED,
    ProtocolPoint.SNAPSHOT_TAKEN,
)
"""Where any query stands still: before the sink is called and after it returned (the driver); at the beginning, in the
middle and at the end of a task."""
STEP_OF_SINK = ProtocolPoint.PUBLICATION_STEP
"""Where a sink stands still that passes points of its own."""

PROFILE = Profile(
    name="structured-streaming",
    description="A few micro-batches; driver, executors and Python workers are killed at points of sink and tasks, "
    "executors and workers are paused, writes to the checkpoint directory fail or are late, and after some kills it "
    "cannot be read for a while, or the next driver has fewer executors. Hosts that are containers are lost, "
    "disconnected, and run out of memory.",
    workload=WorkloadRanges(
        # Every kind of query is to write in most micro-batches: one with a watermark writes nothing in the first, and
        # one that keeps each key once needs keys that are new.
        batches=(3, 4),
        batch_records=(2, 12),
        keys=(4, 40),
        start_offset=(0, 0),
        records_per_second=(None,),
    ),
    faults=FaultRanges(
        number=(1, 2),
        kinds=(
            *(("coordinator", 6), ("executor", 4), ("worker", 2), ("pause-executor", 1), ("pause-worker", 1)),
            ("disturb-writes", 3),
        ),
        duration_ms=(200, 2_000),
        latency_ms=(200, 1_500),
        # The moment after the sink's write, and that after a task's, are those that most sinks get wrong.
        # Whoever names a step of a sink says where it is delicate.
        points=(
            *POINTS,
            *(ProtocolPoint.ALL_ACKNOWLEDGED, ProtocolPoint.SNAPSHOT_TAKEN) * 4,
            *(STEP_OF_SINK,) * 8,
        ),
        restore_per_mille=0,
        unreadable_per_mille=105,
        timed_per_mille=55,
        timed_ms=(0, 1_500),
        batch_ms=150,
    ),
    limits=LimitRanges(
        wall_s=300,
        progress_ms=120_000,
    ),
    scenarios=(("tiny_inputs", 0), ("copies", 0)),
    # Every change of settings costs a new driver.
    settings=(DrawnSetting("retries", 333, ("none",)),),
)
_KINDS_OF_HOSTS = (("host", 2), ("partition-executor", 3), ("memory", 1))
"""What else is drawn where hosts are containers."""


class StructuredStreaming:
    """Runs one ``StreamingJob``. The cluster, a driver and the judge are kept from trial to trial."""

    name = "structured-streaming"
    world = "spark"
    uses = ("limits.wall_s",)
    output_judge = CommittedOutput.name

    def __init__(self, job: QueryDefinition) -> None:
        self._job = job
        self._config: ClusterConfig
        self.use_cluster(
            LocalClusterConfig(
                workers=WORKERS, cores_per_worker=CORES_PER_WORKER, executor_memory_mb=512, quick_start=True
            )
        )
        self._stack = contextlib.ExitStack()
        self._cluster: Cluster | None = None
        self._drivers: QueryDrivers | None = None
        self._judge: DriverProcess | None = None
        self._jar: Path | None = None
        self._checks: dict[str, JobCheck] = {}
        """The name of a job -> what the judge said of it."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what can be hit.

        Hosts that are containers can be lost, taken off the network, and run out of memory. On loopback addresses
        nothing short of a firewall separates processes, and Spark announces its own ports, so no proxy comes between
        them.
        """
        hit = {
            Capability.EXECUTOR_KILL,
            Capability.WORKER_KILL,
            Capability.COORDINATOR_CRASH,
            Capability.PAUSE,
            Capability.STORAGE_FAULTS,
            Capability.STORAGE_OUTAGE,
        }
        if has_java_compiler():  # for the class that disturbs writes
            hit.add(Capability.WRITE_FAULTS)
        if self._has_hosts:
            hit |= {Capability.HOST_LOSS, Capability.PARTITION, Capability.MEMORY_LIMIT}
        return frozenset(hit)

    @property
    def profiles(self) -> Sequence[Profile]:
        """Return the ranges of trials of this job."""
        named = (self._job.input,) if isinstance(self._job.input, str) else PROFILE.workload.names
        fewer = tuple(range(1, self._config.workers))
        again = DrawnSetting("executors_again", 130, fewer, matters_after=Ends.COORDINATOR)
        kinds = PROFILE.faults.kinds + (_KINDS_OF_HOSTS if self._has_hosts else ())
        workload = replace(PROFILE.workload, names=named)
        if self._files:
            # Their timestamps are what they are: a window may end in every second file only.
            batches = min(4, len(self._files)), min(8, len(self._files))
            workload = replace(workload, batches=batches, batch_records=(1, 1), keys=(1, 1))
        late = DrawnSetting("late_rows", 400, LATE_ROWS)
        settings = PROFILE.settings + ((again,) if fewer else ()) + ((late,) if self._may_be_late else ())
        faults = replace(PROFILE.faults, kinds=kinds)
        return (replace(PROFILE, workload=workload, faults=faults, settings=settings),)

    def checkers(self, plan: TrialPlan) -> Sequence[Checker]:
        """Return the checkers of the output, of watermarks if it has any, and of the state if the job describes it."""
        found: list[Checker] = [CommittedOutput()]
        if self._job.batch is None and (self._job.final_by is not None or self._job.late_rows):
            found.append(BatchWatermarks())
        if self._judges_state:
            found.append(StateInBetween())
        return found

    @property
    def _judges_state(self) -> bool:
        return self._job.state is not None and reads_state()

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Accept ``retries``, ``executors_again`` and, for a job that may be given late rows, ``late_rows``."""
        for key, value in settings.items():
            if key not in _SETTINGS:
                raise ValueError(f"there is no setting {key!r}{nearest(key, _SETTINGS)}")
            if key == "retries" and value not in RETRIES:
                raise ValueError(f"retries is {value!r}, and not one of {', '.join(RETRIES)}")
            if key == "executors_again" and (
                type(value) is not int or not 1 <= value <= self._config.workers
            ):
                raise ValueError(f"executors_again is {value!r}, and not from 1 to {self._config.workers}")

            if key == "late_rows" and not (type(value) is int and 0 <= value <= 1_000):
                raise ValueError(f"late_rows is {value!r}, and not a number of a thousand rows")
            if key == "late_rows" and value and not self._may_be_late:
                raise ValueError(
                    "late_rows is for generated input of a job whose late_rows is true, or that names final_by and no "
                    "batch of its own"
                )

    @property
    def _may_be_late(self) -> bool:
        """Whether rows of the input may come late."""
        job = self._job
        return not self._files and (
            job.final_by is not None and job.batch is None if job.late_rows is None else job.late_rows
        )

    def in_own_words(self, fault: FaultRecord) -> FaultRecord:
        """Return the record of a fault in the words of Spark."""
        return in_words(fault)

    @property
    def _has_hosts(self) -> bool:
        """Whether the hosts of the cluster can be hit as a whole."""
        return isinstance(self._config, DockerClusterConfig)

    def use_cluster(self, config: ClusterConfig) -> None:
        """Use another cluster, from the first trial on."""
        # The driver that takes the place of another one is an application, too.
        self._config = replace(config, applications=2)

    def job(self, plan: TrialPlan) -> JobView:
        """Return the tasks as one subtask, and the driver as the coordinator; each passes its points in each batch.

        Only for a sink that the harness calls itself is it known when a call begins and ends.
        """
        batches = self._batches(plan)
        roles = (Role.SOURCE, Role.STATEFUL, Role.SINK)
        around = (ProtocolPoint.CHECKPOINT_TRIGGERED, ProtocolPoint.ALL_ACKNOWLEDGED)
        called = self._job.start is None and not isinstance(self._job.sink, str)
        of_sink = dict.fromkeys(around, batches) if called else {}
        if self._job.points:
            of_sink[STEP_OF_SINK] = batches * len(self._job.points)
        of_tasks = {point: batches for point in POINTS if point not in around}
        return JobView(
            (SubtaskView(TASKS, roles, of_tasks),),
            whole_hosts=self._has_hosts,
            coordinator_passes=of_sink,
            repeats=POINTS,
        )

    def prepare(self) -> None:
        """Start the cluster, a driver and the judge; raises EnvironmentProblem if this machine cannot run them."""
        if self._job.state is not None and not reads_state():
            _log.warning(
                "the state in between is not judged: this Spark has no data source that reads it (4.0 has)"
            )
        drivers, judge = self._started({})
        drivers.present()
        self._checked(judge)

    def close(self) -> None:
        """Stop everything. Closing twice is harmless."""
        self._cluster = self._drivers = self._judge = None
        self._stack.close()

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs that every process has written so far into a directory."""
        for number, log in enumerate(self._cluster.log_files() if self._cluster is not None else ()):
            target = directory / f"{number:02d}-{log.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial on the cluster, and judge its output."""
        drivers, judge = self._started(plan.system)
        assert self._cluster is not None
        drivers.present()
        checked = self._checked(judge)
        self._cluster.wait_for_executors(self._config.workers, _EXECUTORS_TIMEOUT_S, drivers.application())
        if any(planned.fault.ends is Ends.COORDINATOR for planned in plan.faults):
            drivers.keep_spare()
        with _scratch(self._cluster.directory) as scratch:
            place = QueryPlace(*(str(scratch / name) for name in ("input", "output", "checkpoint")))
            self._write_input(plan, Path(place.input), checked.held_back_s)
            disturbed = any(one.fault.needs is TargetKind.WRITES for one in plan.faults)
            writes = scratch / "writes" if disturbed and self._jar is not None else None
            disturbs = str(writes) if writes is not None else ""
            order = QueryOrder(self._job.address, place, str(scratch / "points"), disturbs)
            storage = CheckpointOutages(Path(place.checkpoint))
            run = QueryRun(drivers, order, self._cluster, nemesis, storage, len(plan.faults), writes)
            drivers.reports = run
            with Rendezvous(Path(order.rendezvous), PointReports, run):
                try:
                    end, reason, detail = run.run(plan.limits.wall_s)
                finally:
                    nemesis.heal_all()
                    storage.restore()
                    run.stop()
            duration_ms = run.now_ms()
            drivers.trial_over()
            self._check_points(run.sink_points)
            judged = JudgeOrder(
                order.job,
                place,
                run.run_again,
                self._names(plan),
                as_batch=checked.as_batch,
                restarted_before=run.restarted_before,
            )
            comparison = msgspec.structs.replace(
                self._judged(judge, judged),
                ran_again=len(judged.run_again),
                replayed=len(run.replayed),
                run_again=tuple(judged.run_again),
            )
            state = self._judged_state(judge, judged) if self._judges_state else None
        history = History(
            operations=tuple(run.operations),
            end=end,
            reason=reason,
            detail=detail,
            output=None,
            output_query=comparison,
            state_query=state,
        )
        return TrialOutcome(history, (TASKS,), duration_ms, tuple(run.attempts))

    def _names(self, plan: TrialPlan) -> RowNames:
        """Return what is known of the columns of the input."""
        if self._files:
            return RowNames(any_columns=True)
        spec = workload_named(plan.workload.name).spec
        return RowNames() if spec is None else RowNames(spec.id_column, spec.key_columns)

    def _check_points(self, passed: Sequence[str]) -> None:
        """Raise NotJudgeable for a point of the sink that the job does not name: no fault would ever strike there."""
        unnamed = [name for name in passed if name not in self._job.points]
        if unnamed:
            raise NotJudgeable(
                f"the sink of {self._job.address} stands at the point {unnamed[0]!r}, which its "
                f"StreamingJob(points=...) does not name: no fault is aimed there"
            )

    def _started(self, settings: Mapping[str, Any]) -> tuple[QueryDrivers, DriverProcess]:
        """Return what starts drivers with the settings of a trial, and the judge; the first call starts the cluster."""
        if self._drivers is None or self._judge is None:
            with contextlib.ExitStack() as started:  # all of it, or nothing
                cluster = started.enter_context(cluster_of(self._config))
                jar = jar_of_writes(cluster.directory)
                drivers = started.enter_context(contextlib.closing(QueryDrivers(cluster)))
                judge = DriverProcess(
                    JUDGE_MODULE, cluster.directory / "judge.log", cluster.driver_environment(), {}
                )
                started.enter_context(contextlib.closing(judge))
                # Its Spark starts while the first trial runs; what is asked of it meanwhile waits.
                warm = threading.Thread(
                    target=self._open_judge, args=(judge,), name="opens the judge", daemon=True
                )
                warm.start()
                self._stack.enter_context(started.pop_all())
            self._cluster, self._drivers, self._judge, self._jar = cluster, drivers, judge, jar
        conf = self._conf(settings)
        executors = settings.get("executors_again", self._config.workers)
        again = {"spark.cores.max": str(executors * self._config.cores_per_worker)}
        self._drivers.use(conf, conf if executors == self._config.workers else {**conf, **again})
        return self._drivers, self._judge

    def _conf(self, settings: Mapping[str, Any]) -> dict[str, str]:
        retries = {"spark.task.maxFailures": "1"} if settings.get("retries") == "none" else {}
        conf = {**self._small(), **retries}
        if self._jar is not None:
            conf[JARS] = ",".join(filter(None, (conf.get(JARS), str(self._jar))))
        return conf

    def _small(self) -> dict[str, str]:
        """Return the settings of the job; unless it says otherwise, a shuffle has a task for each worker."""
        return {_SHUFFLE_PARTITIONS: str(self._config.workers), **self._job.conf}

    def _open_judge(self, process: DriverProcess) -> None:
        with contextlib.suppress(OperatingError):  # the first judgement tells what is wrong
            _rpc_stub_of_judge(process).open_session(self._small())

    def _checked(self, process: DriverProcess) -> JobCheck:
        """Return what the judge says of the job, which it is asked once.

        Raises NotJudgeable if its output cannot be judged.
        """
        assert self._cluster is not None
        address = self._job.address
        if address not in self._checks:
            with _scratch(self._cluster.directory) as scratch:
                place = QueryPlace(*(str(scratch / name) for name in ("input", "output", "checkpoint")))
                self._write_input(filled(self._sample), Path(place.input))
                judge = _rpc_stub_of_judge(process)
                try:
                    judge.open_session(self._small())
                    self._checks[address] = judge.check(address, place)
                except RemoteError as error:  # then each trial says what is wrong
                    _log.warning("%s could not be looked at before the first trial: %s", address, error)
                    self._checks[address] = JobCheck()
        found = self._checks[address]
        if found.problem:
            raise NotJudgeable(f"{address} cannot be judged: {found.problem}")
        return found

    @property
    def _sample(self) -> TrialPlan:
        """Return the plan of some input of the job; of files of the user's, as many as a trial may read."""
        name = self._job.input if isinstance(self._job.input, str) else WorkloadPlan().name
        batches = self.profiles[0].workload.batches[1] if self._files else 3
        return TrialPlan(workload=WorkloadPlan(name, batches=batches, batch_records=8))

    def _judged(self, process: DriverProcess, order: JudgeOrder) -> OutputComparison:
        judge = _rpc_stub_of_judge(process)
        try:
            judge.open_session(self._small())
            return self._with_names_of_files(judge.judge(order))
        except RemoteError as error:
            return OutputComparison(None, problem=str(error))

    def _with_names_of_files(self, comparison: OutputComparison) -> OutputComparison:
        """Return the same, with the user's own names of files: those of a trial are numbers."""
        if not self._files:
            return comparison
        names = {_file_name(number): file.name for number, file in enumerate(self._files)}
        wrong = tuple(
            msgspec.structs.replace(
                row,
                input=tuple(
                    msgspec.structs.replace(found, file=names.get(found.file, found.file))
                    for found in row.input
                ),
            )
            for row in comparison.wrong
        )
        return msgspec.structs.replace(comparison, wrong=wrong)

    def _judged_state(self, process: DriverProcess, order: JudgeOrder) -> StateComparison:
        try:
            return _rpc_stub_of_judge(process).judge_state(order)
        except RemoteError as error:
            return StateComparison(problem=str(error))

    def _batches(self, plan: TrialPlan) -> int:
        return min(plan.workload.batches, len(self._files)) if self._files else plan.workload.batches

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        directory = self._job.input
        if isinstance(directory, str):
            found = workload_named(directory).input_directory
            return split_files(found) if found is not None else ()
        return split_files(directory)

    def _write_input(self, plan: TrialPlan, directory: Path, held_back_s: float = 0.0) -> None:
        """Write one file for each micro-batch; Spark reads them in the order of their times.

        Event time goes on so fast that rows which a query holds back for so long are final a micro-batch later.
        """
        directory.mkdir()
        if self._files:
            tables = [pq.read_table(file) for file in self._files[: self._batches(plan)]]
        else:
            tables = _tables(plan, self._batches(plan), held_back_s)
        for number, table in enumerate(tables):
            file = directory / _file_name(number)
            pq.write_table(table, file)
            os.utime(file, (_FIRST_AT.timestamp() + number,) * 2)


def _file_name(number: int) -> str:
    return f"{number:05d}.parquet"


def _rpc_stub_of_judge(process: DriverProcess) -> JudgeRpc:
    return process.peer.remote("judge", JudgeRpc)  # type: ignore[type-abstract]


def _tables(plan: TrialPlan, number: int, held_back_s: float) -> list[pa.Table]:
    """Return the rows of a generated workload, with a timestamp each, in about equal parts.

    Rows with ids come in the order of these, as those of a log do: the row of a key that comes last is its newest.
    """
    workload = workload_named(plan.workload.name)
    schemas = workload.schemas(plan.job)
    if len(schemas) != 1:
        raise UsageProblem(f"the workload {workload.name!r} has {len(schemas)} inputs, and a query reads one")
    rows = [row for split in workload.splits(plan) for row in split.input]
    if workload.spec is not None:
        rows.sort(key=itemgetter(workload.spec.id_column))
    table = pa.Table.from_pylist(rows, schema=next(iter(schemas.values())))
    step_s = max(1, math.ceil(held_back_s * number / max(1, len(rows) - number)))
    late = (plan.system or {}).get("late_rows", 0)
    far_s = math.ceil(held_back_s) + 2 * step_s * math.ceil(len(rows) / number)
    times = [_time_of_row(index, step_s, far_s, late) for index in range(len(rows))]
    table = table.append_column("at", pa.array(times, type=pa.timestamp("us", tz="UTC")))
    cuts = [len(rows) * part // number for part in range(number + 1)]
    return [table.slice(start, end - start) for start, end in itertools.pairwise(cuts)]


def _time_of_row(index: int, step_s: int, far_s: int, late_per_mille: int) -> datetime:
    """Return the time of a row, which grows by ``step_s`` from row to row, except for those that are late.

    One in three of these is so little behind that a window which has its time is still open. The others are behind by
    ``far_s``: as far as rows are held back, and two micro-batches, because Spark drops a row if the micro-batch before
    was at a watermark that had passed it. No two rows have the same time: those that are not late have whole seconds.
    """
    time = _FIRST_AT + timedelta(seconds=step_s * index)
    lates_before, lates = index * late_per_mille // 1_000, (index + 1) * late_per_mille // 1_000
    if lates == lates_before:
        return time
    if lates % 3 == 0:
        return time - timedelta(seconds=2 * step_s, milliseconds=250)
    return time - timedelta(seconds=far_s, milliseconds=500)


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a directory for one trial's files, below the cluster's; it is removed at exit."""
    directory = Path(tempfile.mkdtemp(prefix="trial-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
