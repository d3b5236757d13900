"""The reference runtime on a real Spark cluster, as a system under test.

One standalone cluster and one session serve all trials of a system. Spark replaces executors that a trial
killed before the next trial begins.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_choice import cluster_of
from barrier_tck.harness.cluster.cluster_config import (
    ClusterConfig,
    ClusterKind,
    DockerClusterConfig,
    config_for_trials,
)
from barrier_tck.harness.cluster.containers.packet_loss import why_no_packets_are_lost
from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.cluster.spark_releases import check_reference
from barrier_tck.harness.oracle.evidence.batch_result import late_ids
from barrier_tck.harness.oracle.evidence.exactness import is_exact
from barrier_tck.harness.plan.trial_plan import FilledPlan, NetworkPlan, TrialPlan
from barrier_tck.harness.record.history import OutputComparison, Row
from barrier_tck.harness.reference.bugs.catalogue import broken, planted
from barrier_tck.harness.reference.checkpoint_storages import require_shared
from barrier_tck.harness.reference.kinds.sink import OUTPUT
from barrier_tck.harness.reference.sink_files import rows_by_writer
from barrier_tck.harness.reference.spark.job_parts import name_of
from barrier_tck.harness.reference.spark.judge import SparkJudge
from barrier_tck.harness.reference.spark.planned_options import check_settings
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.reference.spark.proxies import ProxyServers
from barrier_tck.harness.reference.spark.remote_job import JobDrivers, rpc_stub_of
from barrier_tck.harness.reference.spark.spark_trial import CommittedRows, SparkTrial, TrialEnvironment
from barrier_tck.harness.reference.spark.storage_services import StorageServices
from barrier_tck.harness.support.errors import OperatingError, UsageProblem
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import Scale
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads import flights
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.batch_query import HasBatchQuery
from barrier_tck.harness.workloads.workload import Workload, read_splits, write_splits
from barrier_tck.harness.workloads.workload_names import workload_named
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.state.backend import StateBackend

WORKERS, CORES_PER_WORKER = 3, 3
"""Nine slots: the standard job of five subtasks still fits when one executor is dead. A plan may ask for more."""
_FLIGHT_SPLITS = 8
_EXECUTORS_TIMEOUT_S = 60.0
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
        Capability.EVENT_TIME,
        Capability.STATE_FORMS,
        Capability.EMISSION,
        Capability.UNALIGNED_CHECKPOINTS,
        Capability.LOOPS,
        Capability.CHANDY_LAMPORT,
        Capability.EARLY_FINISH,
        Capability.REQUEST_LOG,
        Capability.MESSAGE_LOG,
        Capability.UNSYNCED_LOSS,
        Capability.CHECKPOINTS,
        Capability.ATTEMPTS,
        Capability.BARRIERS,
        Capability.SNAPSHOT_INSPECTION,
        Capability.FIFO_CHANNELS,
        Capability.HOST_LOSS,
        Capability.HOST_RETURN,
        Capability.CLOCK_SKEW,
        Capability.EXECUTOR_LOSS,
        Capability.ELASTIC,
        Capability.PAUSE,
        Capability.CHANNEL_FAULTS,
        Capability.PARTITION,
        Capability.STORAGE_FAULTS,
        Capability.SNAPSHOT_FAULTS,
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
    check_settings = staticmethod(check_settings)
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
        tries_max=5,
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
        self._given = config is not None
        self._config = config or config_for_trials(ClusterKind.LOCAL, WORKERS, CORES_PER_WORKER, 512)
        self._stack = contextlib.ExitStack()
        self._proxies = ProxyServers(self._stack)
        self._services = StorageServices(self._stack, self._proxies)
        self._drivers: JobDrivers | None = None
        self._cluster: Cluster | None = None
        self._judge: SparkJudge | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the runtime can do and show; only hosts that are containers have a memory limit, and networks of
        their own, which lose packets if the kernel can."""
        if not isinstance(self._config, DockerClusterConfig):
            return _CAPABILITIES
        lossy = {Capability.PACKET_LOSS} if why_no_packets_are_lost() is None else set()
        return _CAPABILITIES | {Capability.MEMORY_LIMIT} | lossy

    def use_cluster(self, config: ClusterConfig) -> None:
        """Use another cluster, from the first trial on."""
        self._config, self._given = config, True

    def job(self, plan: TrialPlan) -> JobView:
        """Return the subtasks, links and points of the plan's job.

        No plan counts on a driver that is hit while it starts: the harness may not know its process yet. Nor can a
        subtask be stopped while it closes, because its connection with the driver is gone by then.
        """
        require_shared(plan)
        view = barrier_view(plan)
        passes = {**view.coordinator_passes, ProtocolPoint.COORDINATOR_STARTING: 0}
        subtasks = tuple(
            msgspec.structs.replace(
                entry,
                passes={point: n for point, n in entry.passes.items() if point is not ProtocolPoint.CLOSING},
            )
            for entry in view.subtasks
        )
        return msgspec.structs.replace(view, coordinator_passes=passes, subtasks=subtasks)

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        """Return the plan with the planted bug that breaks recovery in this way."""
        return broken(plan, how)

    def prepare(self) -> None:
        """Start the cluster and the session now; raises EnvironmentProblem if this machine cannot run them.

        It also raises if ``TOXIPROXY_URL`` names a server that does not answer, whether or not a plan will need it.
        """
        check_reference()
        self._proxies.check()
        self._started().present()

    def _make_room(self, plan: FilledPlan) -> None:
        """See to it that the job finds a slot for each subtask; for an elastic job any number will do.

        A job that waits for slots that will never be there would be called stuck.
        """
        if plan.deployment.elastic_wait_ms is not None:
            return
        config, needed = self._config, slots_needed(plan)
        if needed <= config.workers * config.cores_per_worker:
            return
        if self._given:
            raise UsageProblem(
                f"the job has {needed} subtasks, and the cluster {config.workers} x {config.cores_per_worker} slots: "
                f"give it cores_per_worker = {-(-needed // config.workers)} or more, or more workers"
            )
        self.close()
        # The job still fits when all executors but one are dead.
        self._config = config_for_trials(ClusterKind.LOCAL, WORKERS, needed, 512)

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
            self._judge.close()  # it may still be computing a result that is no longer wanted
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

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial on the cluster.

        Raises RuntimeFailure if the cluster is not complete again in time: then no verdict is possible. Raises
        UsageProblem if the job has more subtasks than the cluster that was asked for has slots.
        """
        self._make_room(plan)
        workload = workload_named(plan.workload.name)
        drivers = self._started()
        assert self._cluster is not None
        driver = drivers.present()
        self._cluster.wait_for_executors(self._config.workers, _EXECUTORS_TIMEOUT_S)
        if plan.deployment.elastic_wait_ms is not None:
            # The job must find every slot when it starts: a process of an executor may not have registered yet.
            slots = self._config.workers * self._config.cores_per_worker
            if not rpc_stub_of(driver).await_slots(slots, _EXECUTORS_TIMEOUT_S):
                raise OperatingError(
                    f"the cluster does not have {slots} slots after {_EXECUTORS_TIMEOUT_S:g} s"
                )
        if (_is_judged_by_spark(workload, plan) or _is_queried(workload, plan)) and (
            self._judge is None or not self._judge.usable
        ):
            self._start_judge(self._cluster)  # its Spark starts while the trial runs
        with (
            planted(plan),  # what the harness opens and reads is the runtime's own, too
            _scratch(self._cluster.directory) as scratch,
            self._proxies.network(plan, self._cluster.worker_hosts(), self._cluster.driver_host) as network,
            self._services.of(plan, scratch, self._cluster.driver_host) as store,
        ):
            source = _input_directory(driver, workload, plan, scratch)
            found = TrialEnvironment(
                self._cluster,
                self._config.workers,
                drivers,
                source,
                scratch,
                self._backend,
                network,
                store,
            )
            trial = SparkTrial(plan, workload, found, nemesis, _rows_of)
            if network is not None:
                _slow_down(network, trial.graph, plan.network)
            ended = trial.run()
            duration_ms = trial.note_observations(ended)
            output, query = self._output(workload, plan, source, trial.kept.root / OUTPUT)
            batch = None
            if output is not None and _is_queried(workload, plan):
                assert self._judge is not None
                batch = self._judge.query(plan, source, late_ids(output[0]))
            return trial.outcome(ended, duration_ms, output, query, batch)

    def _output(
        self, workload: Workload, plan: TrialPlan, source: Path, directory: Path
    ) -> tuple[CommittedRows | None, OutputComparison | None]:
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


def slots_needed(plan: FilledPlan) -> int:
    """Return how many slots the plan's job takes: one for each subtask, where it is widest."""
    jobs = (plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1))
    return max(sum(vertex.parallelism for vertex in job.vertices) for job in jobs)


def _is_judged_by_spark(workload: Workload, plan: TrialPlan) -> bool:
    """Return whether a batch query judges the output: exact totals of an input that is too large to be generated."""
    stateful = workload.spec is not None and workload.spec.stateful
    return stateful and workload.input_directory is not None and is_exact(plan)


def _is_queried(workload: Workload, plan: TrialPlan) -> bool:
    """Return whether Spark SQL says what the output must be, as a batch over the input."""
    return isinstance(workload, HasBatchQuery) and is_exact(plan)


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
        rpc_stub_of(driver).prepare_flights(str(directory), _FLIGHT_SPLITS)
    return directory
