"""The reference runtime on a real Spark cluster, as a system under test.

One standalone cluster and one session serve all trials of a system. Spark replaces executors that a trial
killed before the next trial begins.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_choice import cluster_of
from barrier_tck.harness.cluster.cluster_config import (
    ClusterConfig,
    ClusterKind,
    DockerClusterConfig,
    config_for_trials,
)
from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.oracle.applicable import is_exact
from barrier_tck.harness.plan.trial_plan import NetworkPlan, TrialPlan, to_builtins
from barrier_tck.harness.record.history import End, History, OutputComparison, Row
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.checkpoint_storages import require_shared, stored_below
from barrier_tck.harness.reference.forged_messages import Forger
from barrier_tck.harness.reference.jobs import (
    CHECKPOINTS,
    SAVEPOINTS,
    give_out_ids,
    kinds_of,
)
from barrier_tck.harness.reference.mutants import catalogue_recovery
from barrier_tck.harness.reference.observed_inputs import InputsDirectory
from barrier_tck.harness.reference.observed_messages import MessagesDirectory
from barrier_tck.harness.reference.observed_passages import PassagesDirectory
from barrier_tck.harness.reference.observed_reads import ReadsDirectory
from barrier_tck.harness.reference.operators import OUTPUT
from barrier_tck.harness.reference.planned_savepoints import planned_savepoints
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages, RepeatedMessages
from barrier_tck.harness.reference.sink_files import rows_by_writer
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener, view_storage
from barrier_tck.harness.reference.spark.disks import JobDisks, metadata_of, primary_of
from barrier_tck.harness.reference.spark.executor_memories import ExecutorMemories
from barrier_tck.harness.reference.spark.job_doors import JobOrder, JobReports
from barrier_tck.harness.reference.spark.job_parts import graph_of, name_of, parts_of
from barrier_tck.harness.reference.spark.judge import SparkJudge
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.reference.spark.proxies import ProxyServers
from barrier_tck.harness.reference.spark.remote_job import JobDrivers, RemoteJob, doors_of
from barrier_tck.harness.reference.spark.spark_targets import SparkTargets
from barrier_tck.harness.reference.spark.spark_watcher import FAULT_POINTS, SparkWatcher
from barrier_tck.harness.reference.spark.storage_services import StorageServices, TrialStore
from barrier_tck.harness.reference.stored_elsewhere import FilesAndMedium
from barrier_tck.harness.reference.unsynced_files import lose_unsynced
from barrier_tck.harness.support.errors import OperatingError
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
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import (
    FileCheckpointStorage,
    MediumCheckpointStorage,
)
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem

WORKERS, CORES_PER_WORKER = 3, 3
"""Nine slots: the standard job of five subtasks still fits when one executor is dead."""
_FLIGHT_SPLITS = 8
_EXECUTORS_TIMEOUT_S = 60.0
_LOOK_AGAIN_MS = 20.0
_RUNTIME_POINTS = {fault_point: point for point, fault_point in FAULT_POINTS.items()}
_CAPABILITIES = frozenset(
    {
        Capability.EXECUTOR_KILL,
        Capability.WORKER_KILL,
        Capability.COORDINATOR_CRASH,
        Capability.STORAGE_OUTAGE,
        Capability.SAVEPOINTS,
        Capability.RESCALING,
        Capability.OPERATOR_LISTS,
        Capability.OPERATOR_TIMERS,
        Capability.UNALIGNED_CHECKPOINTS,
        Capability.LOOPS,
        Capability.CHANDY_LAMPORT,
        Capability.EARLY_FINISH,
        Capability.MESSAGE_LOG,
        Capability.UNSYNCED_LOSS,
        Capability.CHECKPOINTS,
        Capability.ATTEMPTS,
        Capability.BARRIERS,
        Capability.SNAPSHOT_INSPECTION,
        Capability.FIFO_CHANNELS,
        Capability.HOST_LOSS,
        Capability.EXECUTOR_LOSS,
        Capability.ELASTIC,
        Capability.PAUSE,
        Capability.CHANNEL_FAULTS,
        Capability.PARTITION,
        Capability.STORAGE_FAULTS,
        Capability.LOCAL_RECOVERY,
        Capability.SLOW_SNAPSHOTS,
        Capability.MESSAGE_FAULTS,
        Capability.OBJECT_STORE_FAULTS,
    }
)


class ReferenceSpark:
    """Runs plans on a standalone cluster that it starts with its first trial."""

    name = "reference-spark"
    world = "spark"
    scale = Scale(
        time_factor=33,
        batches_factor=2,
        # A batch every 50 ms from each source subtask. Larger ones would cost the judges time, and show no more.
        batch_records=50,
        keys=40,
        records_per_second=1_000,
        bytes_factor=3,
        timeout_ms_min=20_000,
        executors_min=3,
        wall_s=90,
        tries_max=3,
        examples_max=2,
        profiles=(
            *(("standard", "spark-kill"), ("heavy", "spark-kill")),
            *(("faultless", "spark-kill"), ("at-least-once", "spark-kill")),
        ),
    )

    def __init__(
        self,
        config: ClusterConfig | None = None,
        state_backend: Callable[[], StateBackend] | None = None,
    ) -> None:
        """Take the shape of the cluster; this starts nothing.

        ``state_backend`` makes a candidate's backend and must be importable on executors; None means the plan's
        backend.
        """
        self._backend = name_of(state_backend) if state_backend is not None else None
        self._config = config or config_for_trials(ClusterKind.LOCAL, WORKERS, CORES_PER_WORKER, 512)
        self._stack = contextlib.ExitStack()
        self._proxies = ProxyServers(self._stack)
        self._services = StorageServices(self._stack, self._proxies)
        self._drivers: JobDrivers | None = None
        self._cluster: Cluster | None = None
        self._judge: SparkJudge | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the runtime can do and show; only hosts that are containers have a memory limit."""
        limited = isinstance(self._config, DockerClusterConfig)
        return _CAPABILITIES | {Capability.MEMORY_LIMIT} if limited else _CAPABILITIES

    def use_cluster(self, config: ClusterConfig) -> None:
        """Use another cluster, from the first trial on."""
        self._config = config

    def job(self, plan: TrialPlan) -> JobView:
        """Return the subtasks, links and points of the plan's job."""
        require_shared(plan)
        return barrier_view(plan)

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        """Return the plan with the planted bug that breaks recovery in this way."""
        return catalogue_recovery.broken(plan, how)

    def prepare(self) -> None:
        """Start the cluster and the session now; raises EnvironmentProblem if this machine cannot run them.

        It also raises if ``TOXIPROXY_URL`` names a server that does not answer, whether or not a plan will need it.
        """
        self._proxies.check()
        self._started().present()

    def _started(self) -> JobDrivers:
        """Return what starts drivers on the cluster; the first call starts the cluster."""
        if self._drivers is None:
            with contextlib.ExitStack() as started:  # all of it, or nothing
                cluster = started.enter_context(cluster_of(self._config))
                drivers = started.enter_context(contextlib.closing(JobDrivers(cluster)))
                drivers.present()
                self._stack.enter_context(started.pop_all())
            self._drivers, self._cluster = drivers, cluster
        return self._drivers

    def _start_judge(self, cluster: Cluster) -> None:
        if self._judge is not None:
            self._judge.close()  # it may still be computing something that nobody waits for
        self._judge = SparkJudge(cluster.directory)
        self._stack.enter_context(contextlib.closing(self._judge))

    def close(self) -> None:
        """Stop driver and cluster. Closing twice is harmless."""
        self._drivers = None
        self._cluster = None
        self._judge = None
        self._proxies.forget()
        self._services.forget()
        self._stack.close()

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial on the cluster.

        Raises RuntimeFailure if the cluster is not complete again in time: then no verdict is possible.
        """
        plan = filled(plan)
        workload = workload_named(plan.workload.name)
        drivers = self._started()
        assert self._cluster is not None
        driver = drivers.present()
        self._cluster.wait_for_executors(self._config.workers, _EXECUTORS_TIMEOUT_S)
        if plan.deployment.elastic_wait_ms is not None:
            # The job must find every slot when it starts: a process of an executor may not have registered yet.
            slots = self._config.workers * self._config.cores_per_worker
            if not doors_of(driver).await_slots(slots, _EXECUTORS_TIMEOUT_S):
                raise OperatingError(
                    f"the cluster does not have {slots} slots after {_EXECUTORS_TIMEOUT_S:g} s"
                )
        if _is_judged_by_spark(workload, plan) and (self._judge is None or not self._judge.usable):
            self._start_judge(self._cluster)  # its Spark starts while the trial runs
        with (
            _scratch(self._cluster.directory) as scratch,
            self._proxies.network(plan, self._cluster.worker_hosts(), self._cluster.driver_host) as network,
            self._services.of(plan, scratch, self._cluster.driver_host) as store,
        ):
            source = _input_directory(driver, workload, plan, scratch)
            return self._run_job(drivers, plan, workload, source, scratch, nemesis, network, store)

    def _run_job(
        self,
        drivers: JobDrivers,
        plan: TrialPlan,
        workload: Workload,
        source: Path,
        scratch: Path,
        nemesis: NemesisHooks,
        network: ProxyNetwork | None,
        store: TrialStore | None,
    ) -> TrialOutcome:
        graph = graph_of(plan, source)
        if network is not None:
            _slow_down(network, graph, plan.network)
        root = scratch / "files"
        root.mkdir()
        files: FileSystem = LocalFileSystem(root)
        outside = stored_below(scratch / "stored", plan)
        of_judges = store.of_judges if store is not None else outside
        components = parts_of(plan, self._backend, of_judges)
        primaries, metadata = None, None
        if of_judges is None:
            on_files = FileCheckpointStorage(files, graph.name, CHECKPOINTS)
            storage: MediumCheckpointStorage = on_files
            primaries = partial(primary_of, storage=on_files, files_root=root)
            metadata = partial(metadata_of, on_files, root, graph.name)
        else:
            storage = of_judges(files, graph.name, CHECKPOINTS)
            files = FilesAndMedium(files, storage.medium, (CHECKPOINTS, SAVEPOINTS))
        opener = CheckpointOpener(
            graph,
            kinds_of(plan),
            components,
            lambda: files,
            CHECKPOINTS,
            OUTPUT,
            _rows_of if workload.spec is None else None,
            plan.checkpoints.local_compression is not None,
        )
        give_out_ids(plan, storage)
        reads = ReadsDirectory(str(scratch / "reads"))
        Path(reads.path).mkdir()
        inputs = InputsDirectory(str(scratch / "inputs"))
        Path(inputs.path).mkdir()
        passages = PassagesDirectory(str(scratch / "passages"))
        Path(passages.path).mkdir()
        messages = MessagesDirectory(str(scratch / "messages"))
        Path(messages.path).mkdir()
        watcher = SparkWatcher(opener, reads, planned_savepoints(plan))
        journals = scratch / "unsynced" if any(one.fault.loses_unsynced for one in plan.faults) else None
        order = JobOrder(
            plan=to_builtins(plan),
            source=str(source),
            root=str(root),
            reads=reads.path,
            inputs=inputs.path,
            passages=passages.path,
            messages=messages.path if plan.records_channels else None,
            watched=tuple(
                (_RUNTIME_POINTS[point], SubtaskId.parse(subtask) if subtask is not None else None)
                for point, subtask in nemesis.watched_points()
            ),
            proxied=network is not None,
            backend=self._backend,
            elsewhere=store.of_job if store is not None else outside,
            journals=str(journals) if journals is not None else None,
        )
        job = RemoteJob(drivers, order, lambda: watcher.finished)
        watcher.on_job_over, watcher.on_savepoint = job.job_over, job.take_savepoint
        repeats = RepeatedMessages(lambda: job.repeat(repeats.in_force))
        forger = Forger(
            lambda: components.checkpoint_storage(files, graph.name, CHECKPOINTS),
            graph.subtasks,
            job.take_forged,
        )
        assert self._cluster is not None
        disks: JobDisks | ExecutorMemories = (
            ExecutorMemories(lambda: watcher.processes.values(), graph.name, root)
            if plan.checkpoints.local_copies == "memory"
            else JobDisks(self._cluster.directory, self._cluster.worker_host, graph.name, root)
        )
        targets = SparkTargets(
            lambda: watcher.processes,
            watcher.note_kill,
            job,
            disks,
            primaries,
            metadata,
            bool(plan.local_recovery),
            self._cluster.local_directory,
            self._cluster.host,
            self._cluster.worker_at,
            self._config.workers,
            network,
            lambda subtask: RepeatableMessages(repeats, subtask, forger),
            (lambda pids: lose_unsynced(journals, root, pids)) if journals is not None else None,
            store,
        )
        nemesis.bind(targets, watcher.now_ms)
        watcher.nemesis, watcher.network = nemesis, network
        drivers.tell(watcher, network)
        if any(planned.fault.ends is Ends.COORDINATOR for planned in plan.faults):
            drivers.keep_spare()
        try:
            job.start()
            end, detail, pending = _wait(job, watcher, nemesis, plan)
            stops = 0
            while job.stopped_with is not None:
                stops += 1
                later = plan.after_stops(stops)
                watcher.rescaled(graph_of(later, source))
                job.start_from(job.stopped_with, later)
                end, detail, pending = _wait(job, watcher, nemesis, plan)
        finally:
            nemesis.heal_all()  # before the job ends: a stopped process cannot leave
            job.close()
            drivers.tell(JobReports(), None)
            targets.replace_lost()
        disks.wipe_all()
        for read in inputs.take_all():
            watcher.note(read, process="source")
        for log in messages.observed():
            watcher.note(log, process="doors")
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
            storage=view_storage(opener.storage, files, CHECKPOINTS, OUTPUT, SAVEPOINTS),
            pending=pending,
            output_query=query,
            epoch_ms=watcher.epoch_ms,
        )
        return TrialOutcome(
            history=history,
            attempts=watcher.attempts(),
            checkpoints=watcher.checkpoints(),
            snapshots=tuple(watcher.snapshots),
            subtasks=tuple(str(subtask) for subtask in graph.subtasks),
            duration_ms=duration_ms,
            measurements={"kill_to_first_record_ms": statistics.median(recoveries)} if recoveries else {},
            refused_connections=job.refused,
            passages=passages.take_all(watcher.epoch_ms),
        )

    def _output(
        self, workload: Workload, plan: TrialPlan, source: Path, directory: Path
    ) -> tuple[tuple[tuple[Row, ...], tuple[str, ...]] | None, OutputComparison | None]:
        """Return the committed rows with their writers, or what a Spark batch query says about them, or why they
        cannot be read.

        Rows are returned where they are few, and where duplicates must be explained row by row, by what was restored
        (ALO-2).
        """
        if _is_judged_by_spark(workload, plan):
            assert self._judge is not None
            return None, self._judge.judge(plan.workload.name, source, directory, plan.workload.start_offset)
        files = [str(file) for file in directory.glob("part-*")]
        try:
            return rows_by_writer(files, lambda file: _rows_of(Path(file).read_bytes())), None
        except pa.ArrowInvalid as error:
            return None, OutputComparison(None, problem=f"a committed file is not Parquet: {error}")

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs that every process has written so far into a directory; none if the cluster never ran."""
        for number, log in enumerate(self._cluster.log_files() if self._cluster is not None else ()):
            target = directory / f"{number:02d}-{log.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)


def _is_judged_by_spark(workload: Workload, plan: TrialPlan) -> bool:
    """Tell whether a batch query judges the output: exact totals of an input that is too large to be generated."""
    stateful = workload.spec is not None and workload.spec.stateful
    return stateful and workload.input_directory is not None and is_exact(plan)


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


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a directory for one trial's input, checkpoints and output, below the cluster's; it is removed at exit."""
    directory = Path(tempfile.mkdtemp(prefix="trial-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _input_directory(driver: DriverProcess, workload: Workload, plan: TrialPlan, scratch: Path) -> Path:
    """Return the directory of Parquet splits, which were prepared before or are written now."""
    if workload.input_directory is None:
        directory = scratch / "input"
        write_splits(read_splits(workload, plan), directory, workload.schemas(plan.job))
        return directory
    directory = flights.default_directory()
    if not flights.is_prepared(directory, _FLIGHT_SPLITS):
        doors_of(driver).prepare_flights(str(directory), _FLIGHT_SPLITS)
    return directory


def _wait(
    job: RemoteJob, watcher: SparkWatcher, nemesis: NemesisHooks, plan: TrialPlan
) -> tuple[End, str, tuple[str, ...]]:
    """Wait for the job's end or the trial's bound; meanwhile timed faults strike and lasting faults are healed."""
    bound_ms = plan.limits.wall_s * 1_000.0
    while True:
        due_ms = nemesis.next_time_ms()
        # A fault that fires at a point meanwhile may have to be healed: look again soon.
        next_ms = min(bound_ms, watcher.now_ms() + _LOOK_AGAIN_MS, due_ms if due_ms is not None else bound_ms)
        ended = job.wait(max(0.0, next_ms - watcher.now_ms()) / 1_000.0)
        if ended is not None:
            end = End.FAILED if ended.state is JobState.FAILED else End.FINISHED
            return end, ended.reason, ()
        if watcher.now_ms() >= bound_ms:
            return End.STUCK, f"no end within {plan.limits.wall_s} s", job.waiting_for()
        if due_ms is not None and watcher.now_ms() >= due_ms:
            nemesis.time_reached(watcher.now_ms())
