"""The reference runtime on a real Spark cluster, as a system under test.

One local standalone cluster and one session serve all trials of a system. Spark replaces executors that a trial
killed before the next trial begins.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.cluster_config import LocalClusterConfig
from barrier_tck.harness.cluster.local_cluster import LocalCluster
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.oracle.applicable import is_exact
from barrier_tck.harness.plan.job_graph import SOURCE
from barrier_tck.harness.plan.trial_plan import NetworkPlan, TrialPlan
from barrier_tck.harness.record.history import End, History, OutputComparison, Row
from barrier_tck.harness.record.operations import ReadsObserved
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.jobs import (
    CHECKPOINTS,
    build_graph,
    give_out_ids,
    job_config,
    kinds_of,
    parquet_sources,
)
from barrier_tck.harness.reference.mutants import catalogue_recovery
from barrier_tck.harness.reference.mutants.mutant_catalogue import components_of
from barrier_tck.harness.reference.observed_inputs import InputsDirectory, inputs_observed
from barrier_tck.harness.reference.observed_reads import ReadsDirectory, observed
from barrier_tck.harness.reference.operators import OUTPUT
from barrier_tck.harness.reference.recorder import RunRecorder
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.harness.reference.sink_files import rows_by_writer
from barrier_tck.harness.reference.slow_storage import slowed
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener, view_storage
from barrier_tck.harness.reference.spark.disks import JobDisks, primary_of
from barrier_tck.harness.reference.spark.judge import SparkJudge
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.reference.spark.proxies import ProxyServers
from barrier_tck.harness.reference.spark.repeating_runner import RepeatingRunner
from barrier_tck.harness.reference.spark.spark_targets import SparkTargets
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import Scale
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads import flights
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload import Workload, read_splits, write_splits
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver, SubtaskProcess
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS, CORES_PER_WORKER = 3, 3
"""Nine slots: the standard job of five subtasks still fits when one executor is dead."""
HEARTBEAT_TIMEOUT_MS = 4_000
"""Used in trials in which processes are paused or out of reach; it bounds the time that such a fault costs."""
_FLIGHT_SPLITS = 8
_EXECUTORS_TIMEOUT_S = 60.0
_LOOK_AGAIN_MS = 20.0
_FAULT_POINTS = {point: ProtocolPoint(point.value) for point in RuntimePoint}
_RUNTIME_POINTS = {fault_point: point for point, fault_point in _FAULT_POINTS.items()}


class _Watcher(RunRecorder, SparkJobObserver):
    """Records the trial in the trial's own time, and tells the nemesis and the network what they must know."""

    def __init__(self, opener: CheckpointOpener, reads: ReadsDirectory) -> None:
        super().__init__(opener)
        self._reads = reads
        self.nemesis: NemesisHooks | None = None
        self.runner: SparkJobRunner | None = None
        self.kills_ms: list[float] = []
        self.first_records_ms: dict[int, float] = {}
        self.network: ProxyNetwork | None = None

    def now_ms(self) -> float:
        return self.runner.now_ms() - self.epoch_ms if self.runner is not None else 0.0

    def reads_of(self, subtask: str, attempt: int) -> ReadsObserved | None:
        return self._reads.take(subtask, attempt)

    def note_kill(self) -> None:
        self.kills_ms.append(self.now_ms())

    def attempt_running(self, attempt: int) -> None:
        super().attempt_running(attempt)
        if self.nemesis is not None:
            self.nemesis.first_attempt_ran()

    def subtasks_placed(self, attempt: int, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        if self.network is not None:
            self.network.placed(processes)

    def first_records(self, subtask: SubtaskId, attempt: int, at_ms: float) -> None:
        at_ms -= self.epoch_ms
        self.first_records_ms[attempt] = min(at_ms, self.first_records_ms.get(attempt, at_ms))

    def attempt_ended(self, attempt: int, cause: Cause, reason: str) -> None:
        super().attempt_ended(attempt, cause, reason)
        if self.network is not None:
            self.network.attempt_over(attempt)

    def point_reached(
        self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
    ) -> None:
        if self.nemesis is not None:
            name = str(subtask) if subtask is not None else None
            self.nemesis.point_reached(_FAULT_POINTS[point], name, attempt)

    def kill_to_first_record_ms(self) -> list[float]:
        """Return, for each kill, the time until a later attempt had processed its first batch."""
        ended = {record.attempt: record.ended_at_ms for record in self.attempts()}
        found = []
        for kill_ms in self.kills_ms:
            later = [
                first
                for attempt, first in self.first_records_ms.items()
                if first > kill_ms and ended.get(attempt - 1, kill_ms - 1) >= kill_ms
            ]
            found.extend([min(later) - kill_ms] if later else [])
        return found


class ReferenceSpark:
    """Runs plans on a local standalone cluster that it starts with its first trial."""

    name = "reference-spark"
    world = "spark"
    scale = Scale(
        time_factor=33,
        batches_factor=2,
        batch_records=200,
        keys=40,
        records_per_second=4_000,
        bytes_factor=10,
        timeout_ms_min=20_000,
        executors_min=3,
        wall_s=60,
        examples_max=2,
        profiles=(
            *(("standard", "spark-kill"), ("heavy", "spark-kill")),
            *(("faultless", "spark-kill"), ("at-least-once", "spark-kill")),
        ),
    )
    capabilities = frozenset(
        {
            Capability.EXECUTOR_KILL,
            Capability.WORKER_KILL,
            Capability.CHECKPOINTS,
            Capability.ATTEMPTS,
            Capability.BARRIERS,
            Capability.SNAPSHOT_INSPECTION,
            Capability.FIFO_CHANNELS,
            Capability.HOST_LOSS,
            Capability.PAUSE,
            Capability.CHANNEL_FAULTS,
            Capability.PARTITION,
            Capability.STORAGE_FAULTS,
            Capability.LOCAL_RECOVERY,
            Capability.SLOW_SNAPSHOTS,
            Capability.MESSAGE_FAULTS,
        }
    )

    def __init__(
        self,
        config: LocalClusterConfig | None = None,
        state_backend: Callable[[], StateBackend] | None = None,
    ) -> None:
        """Take the shape of the cluster; this starts nothing.

        ``state_backend`` makes a candidate's backend and must be importable on executors; None means the plan's
        backend.
        """
        self._state_backend = state_backend
        self._config = config or LocalClusterConfig(
            workers=WORKERS, cores_per_worker=CORES_PER_WORKER, executor_memory_mb=512, quick_start=True
        )
        self._stack = contextlib.ExitStack()
        self._proxies = ProxyServers(self._stack)
        self._spark: SparkSession | None = None
        self._cluster: LocalCluster | None = None
        self._judge: SparkJudge | None = None
        self._prepared = False

    def use_cluster(
        self, workers: int, cores_per_worker: int, executor_memory_mb: int, master_port: int | None
    ) -> None:
        """Give the cluster another shape, before the first trial; raises UsageError if the shape is impossible."""
        self._config = LocalClusterConfig(
            workers=workers,
            cores_per_worker=cores_per_worker,
            memory_per_worker_mb=max(1024, executor_memory_mb),
            executor_memory_mb=executor_memory_mb,
            master_port=master_port,
            quick_start=True,
        )

    def job(self, plan: TrialPlan) -> JobView:
        """Return the subtasks, links and points of the plan's job."""
        return barrier_view(plan)

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        """Return the plan with the planted bug that breaks recovery in this way."""
        return catalogue_recovery.broken(plan, how)

    def prepare(self) -> None:
        """Start the cluster, the session and the judge now; raises EnvironmentProblem if this machine cannot run them.

        It also raises if ``TOXIPROXY_URL`` names a server that does not answer, whether or not a plan will need it.
        """
        self._proxies.check()
        self._prepared = True
        self.session()

    def session(self) -> SparkSession:
        """Return the session on the cluster; the first call starts both."""
        if self._spark is None:
            with contextlib.ExitStack() as started:  # all of it, or nothing
                cluster = started.enter_context(LocalCluster(self._config))
                # For a whole campaign the judge may warm up, and its Spark starts at the same time as the cluster's.
                judge = SparkJudge(cluster.directory) if self._prepared else None
                if judge is not None:
                    started.enter_context(contextlib.closing(judge))
                spark = started.enter_context(spark_session(cluster, "barrier-tck", dict(session_settings())))
                self._stack.enter_context(started.pop_all())
            self._spark, self._cluster, self._judge = spark, cluster, judge
        return self._spark

    def _start_judge(self, cluster: LocalCluster, quick_start: bool) -> None:
        if self._judge is not None:
            self._judge.close()  # it may still be computing something that nobody waits for
        self._judge = SparkJudge(cluster.directory, quick_start)
        self._stack.enter_context(contextlib.closing(self._judge))

    def close(self) -> None:
        """Stop session and cluster. Closing twice is harmless."""
        self._spark = None
        self._cluster = None
        self._judge = None
        self._proxies.forget()
        self._stack.close()

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial on the cluster.

        Raises RuntimeFailure if the cluster is not complete again in time: then no verdict is possible.
        """
        plan = filled(plan)
        spark = self.session()
        assert self._cluster is not None
        self._cluster.wait_for_executors(self._config.workers, _EXECUTORS_TIMEOUT_S)
        workload = workload_named(plan.workload.name)
        if self._judge is None or not self._judge.usable:
            # The judge's Spark starts while the trial runs. A generated input is small.
            self._start_judge(self._cluster, quick_start=workload.input_directory is None)
        hosts = [self._config.worker_host(worker) for worker in range(self._config.workers)]
        with (
            _scratch(self._cluster.directory) as scratch,
            self._proxies.network(plan, hosts) as network,
        ):
            source = _input_directory(spark, workload, plan, scratch)
            return self._run_job(spark, plan, workload, source, scratch, nemesis, network)

    def _run_job(
        self,
        spark: SparkSession,
        plan: TrialPlan,
        workload: Workload,
        source: Path,
        scratch: Path,
        nemesis: NemesisHooks,
        network: ProxyNetwork | None,
    ) -> TrialOutcome:
        graph = build_graph(plan, workload, parquet_sources(plan, workload, source))
        if network is not None:
            _slow_down(network, graph, plan.network)
        root = scratch / "files"
        root.mkdir()
        files = LocalFileSystem(root)
        storage = FileCheckpointStorage(files, graph.name, CHECKPOINTS)
        components = components_of(plan)
        if self._state_backend is not None:
            components = replace(components, state_backend=self._state_backend)
        opener = CheckpointOpener(
            graph,
            kinds_of(plan),
            components,
            lambda: files,
            CHECKPOINTS,
            OUTPUT,
            _rows_of if workload.spec is None else None,
        )
        give_out_ids(plan, storage)
        reads = ReadsDirectory(str(scratch / "reads"))
        Path(reads.path).mkdir()
        inputs = InputsDirectory(str(scratch / "inputs"))
        Path(inputs.path).mkdir()
        watcher = _Watcher(opener, reads)
        repeats = RepeatedMessages()
        runner = RepeatingRunner(
            spark,
            graph,
            job_config(plan),
            root,
            components=observed(
                inputs_observed(slowed(components, plan.checkpoints.async_ms_max), inputs), reads
            ),
            options=_options(plan),
            observer=watcher,
            routes=network,
            watched=[
                (_RUNTIME_POINTS[point], SubtaskId.parse(subtask) if subtask is not None else None)
                for point, subtask in nemesis.watched_points()
            ],
            repeats=repeats,
        )
        watcher.runner = runner
        watcher.epoch_ms = runner.now_ms()
        assert self._cluster is not None
        disks = JobDisks(self._cluster.directory, self._config.worker_host, graph.name, root)
        targets = SparkTargets(
            runner.subtask_processes,
            watcher.note_kill,
            disks,
            lambda subtask: primary_of(subtask, storage, root),
            bool(plan.local_recovery),
            self._cluster.local_directory,
            network,
            repeats,
        )
        nemesis.bind(targets, watcher.now_ms)
        watcher.nemesis, watcher.network = nemesis, network
        with runner:
            try:
                end, detail, pending = _wait(runner, watcher, nemesis, plan)
            finally:
                nemesis.heal_all()  # before the runner closes: a stopped process cannot leave
        disks.wipe_all()
        for read in inputs.take_all():
            watcher.note(read, process="source")
        duration_ms = watcher.now_ms()
        if end is End.STUCK:
            watcher.cut_off(Reason.OUT_OF_TIME, detail)
        output, query = self._output(workload, plan, source, root / OUTPUT)
        recoveries = watcher.kill_to_first_record_ms()
        history = History(
            operations=tuple(watcher.operations),
            end=end,
            reason=watcher.end_reason,
            detail=detail,
            output=output[0] if output is not None else None,
            output_by=output[1] if output is not None else (),
            checkpoints=tuple(watcher.views),
            storage=view_storage(opener.storage, files, CHECKPOINTS, OUTPUT),
            pending=pending,
            output_query=query,
        )
        return TrialOutcome(
            history=history,
            attempts=watcher.attempts(),
            checkpoints=watcher.checkpoints(),
            snapshots=tuple(watcher.snapshots),
            subtasks=tuple(str(subtask) for subtask in graph.subtasks),
            duration_ms=duration_ms,
            measurements={"kill_to_first_record_ms": statistics.median(recoveries)} if recoveries else {},
            refused_connections=runner.refused_connections(),
        )

    def _output(
        self, workload: Workload, plan: TrialPlan, source: Path, directory: Path
    ) -> tuple[tuple[tuple[Row, ...], tuple[str, ...]] | None, OutputComparison | None]:
        """Return the committed rows with their writers, or what a Spark batch query says about them.

        Spark judges exact running totals. Other rows are returned: duplicates can only be explained row by row, by
        what was restored (ALO-2), and rows without keys are few.
        """
        if workload.spec is not None and workload.spec.stateful and is_exact(plan):
            assert self._judge is not None
            offsets = plan.workload.start_offset
            judged = source / SOURCE if workload.input_directory is None else source
            return None, self._judge.judge(plan.workload.name, judged, directory, offsets)
        files = [str(file) for file in directory.glob("part-*")]
        return rows_by_writer(files, lambda file: _rows_of(Path(file).read_bytes())), None

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs that every process has written so far into a directory; none if the cluster never ran."""
        for number, log in enumerate(self._cluster.log_files() if self._cluster is not None else ()):
            target = directory / f"{number:02d}-{log.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)


def _rows_of(content: bytes) -> list[Row]:
    """Decode one file of committed or prepared output."""
    rows: list[Row] = pq.read_table(io.BytesIO(content)).to_pylist()
    return rows


def _slow_down(network: ProxyNetwork, graph: JobGraph, planned: NetworkPlan) -> None:
    """Make the plan's slow channel as slow as in the simulator; the other channels keep their real speed."""
    if planned.slow_channel is None or planned.slow_channel >= len(graph.channels):
        return
    half_ms = planned.latency_ms_max * planned.slow_factor // 2
    late = Latency(latency_ms=half_ms, jitter_ms=half_ms, direction=Direction.FORWARD)
    network.slow_down(graph.channels[planned.slow_channel], late)


def _options(plan: TrialPlan) -> SparkOptions:
    """Return the runtime's options: if faults silence processes, the timeouts are shorter, so that this is noticed
    sooner."""
    if any(planned.fault.heals_after_ms is not None for planned in plan.faults):
        return SparkOptions(
            heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS, isolation_timeout_ms=2 * HEARTBEAT_TIMEOUT_MS
        )
    return SparkOptions()


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a directory for one trial's input, checkpoints and output, below the cluster's; it is removed at exit."""
    directory = Path(tempfile.mkdtemp(prefix="trial-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _input_directory(spark: SparkSession, workload: Workload, plan: TrialPlan, scratch: Path) -> Path:
    """Return the directory of Parquet splits, which were prepared before or are written now."""
    if workload.input_directory is None:
        directory = scratch / "input"
        write_splits(read_splits(workload, plan), directory, workload.schemas(plan.job))
        return directory
    directory = flights.default_directory()
    if not flights.is_prepared(directory, _FLIGHT_SPLITS):
        flights.prepare(spark, directory, _FLIGHT_SPLITS)
    return directory


def _wait(
    runner: SparkJobRunner, watcher: _Watcher, nemesis: NemesisHooks, plan: TrialPlan
) -> tuple[End, str, tuple[str, ...]]:
    """Wait for the job's end or the trial's bound; meanwhile timed faults strike and lasting faults are healed."""
    bound_ms = plan.limits.wall_s * 1_000.0
    while True:
        due_ms = nemesis.next_time_ms()
        # A fault that fires at a point meanwhile may have to be healed: look again soon.
        next_ms = min(bound_ms, watcher.now_ms() + _LOOK_AGAIN_MS, due_ms if due_ms is not None else bound_ms)
        ended = runner.wait(max(0.0, next_ms - watcher.now_ms()) / 1_000.0)
        if ended is not None:
            end = End.FINISHED if ended.state is JobState.FINISHED else End.FAILED
            return end, ended.reason, ()
        if watcher.now_ms() >= bound_ms:
            return End.STUCK, f"no end within {plan.limits.wall_s} s", runner.waiting_for()
        if due_ms is not None and watcher.now_ms() >= due_ms:
            nemesis.time_reached(watcher.now_ms())
