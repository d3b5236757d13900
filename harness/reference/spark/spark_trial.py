"""One trial of the reference runtime on a running cluster: what it is given, the run, and the outcome that is left."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.machine_waits import MachineWaits
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_builtins
from barrier_tck.harness.record.held_up_notes import HeldUpNotes
from barrier_tck.harness.record.history import End, History, OutputComparison, Row
from barrier_tck.harness.record.operations import ClockCompared
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.slow_machine import allowed_on_a_slow_machine_ms
from barrier_tck.harness.reference.checkpoint_storages import stored_below
from barrier_tck.harness.reference.copy_targets import MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.external_storage import ExternalStorage, FilesAndMedium
from barrier_tck.harness.reference.failing_snapshots import FailuresDirectory, fails_snapshots
from barrier_tck.harness.reference.forged_messages import Forger
from barrier_tck.harness.reference.jobs import CHECKPOINTS, SAVEPOINTS, kinds_of, reserve_ids
from barrier_tck.harness.reference.kinds.sink import OUTPUT
from barrier_tck.harness.reference.message_tracing import MessageTraceDirectory
from barrier_tck.harness.reference.notes_directory import NotesDirectory
from barrier_tck.harness.reference.observed_elements import ElementsDirectory
from barrier_tck.harness.reference.observed_inputs import InputsDirectory
from barrier_tck.harness.reference.observed_messages import MessagesDirectory
from barrier_tck.harness.reference.observed_reads import ReadsDirectory
from barrier_tck.harness.reference.planned_savepoints import planned_savepoints
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages, RepeatedMessages
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener, view_storage
from barrier_tck.harness.reference.spark.disks import JobDisks, metadata_of, primary_of
from barrier_tck.harness.reference.spark.executor_memories import ExecutorMemories
from barrier_tck.harness.reference.spark.job_parts import graph_of, parts_of
from barrier_tck.harness.reference.spark.job_rpc import JobOrder, JobReports
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.reference.spark.remote_job import JobDrivers, RemoteJob
from barrier_tck.harness.reference.spark.reports_timed import ReportsTimed
from barrier_tck.harness.reference.spark.spark_targets import Exposed, SparkTargets
from barrier_tck.harness.reference.spark.spark_watcher import FAULT_POINTS, SparkWatcher
from barrier_tck.harness.reference.spark.storage_services import TrialStore
from barrier_tck.harness.reference.unsynced_files import lose_unsynced
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.storage.checkpoint_storage import (
    FileCheckpointStorage,
    MediumCheckpointStorage,
)
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem

_POLL_MS = 20.0
_TAKES_HOSTS = (TargetKind.HOST, TargetKind.CAPACITY)
"""The targets whose loss takes a whole host along, with what was not synced there."""
_RUNTIME_POINTS = {fault_point: point for point, fault_point in FAULT_POINTS.items()}

CommittedRows = tuple[tuple[Row, ...], tuple[str, ...]]
"""The committed rows, and the sink subtask that wrote each."""


@dataclass(frozen=True)
class TrialEnvironment:
    """What a trial finds when it begins: a complete cluster, its input, and what stands between its processes."""

    cluster: Cluster
    workers: int
    drivers: JobDrivers
    source: Path
    """Directory of the input."""
    scratch: Path
    """A directory of its own, which is removed behind it."""
    backend: str | None
    """A candidate's state backend, as ``package.module:Factory``; None: the plan's."""
    network: ProxyNetwork | None
    store: TrialStore | None


@dataclass(frozen=True)
class TrialStorage:
    """Where a trial keeps its output and its checkpoints, as the harness reaches them."""

    root: Path
    """Directory of the output, and of checkpoints that are kept in files."""
    files: FileSystem
    """Output and checkpoints, wherever they are."""
    storage: MediumCheckpointStorage
    components: Components
    of_judges: ExternalStorage | None
    """What makes the checkpoint storage if it is not in files."""
    of_job: ExternalStorage | None

    def primaries(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint; None if it is not in files."""
        if not isinstance(self.storage, FileCheckpointStorage):
            return None
        return primary_of(subtask, storage=self.storage, files_root=self.root)

    def metadata(self, job: str) -> MetadataWrites | None:
        """Return the writes that make checkpoints complete; None if they do not go to files."""
        if not isinstance(self.storage, FileCheckpointStorage):
            return None
        return metadata_of(self.storage, self.root, job)


def _storage_of(plan: TrialPlan, graph: JobGraph, environment: TrialEnvironment) -> TrialStorage:
    root = environment.scratch / "files"
    root.mkdir()
    files: FileSystem = LocalFileSystem(root)
    outside = stored_below(environment.scratch / "stored", plan)
    of_judges = environment.store.of_judges if environment.store is not None else outside
    of_job = environment.store.of_job if environment.store is not None else outside
    components = parts_of(plan, environment.backend, of_judges)
    if of_judges is None:
        storage: MediumCheckpointStorage = FileCheckpointStorage(files, graph.name, CHECKPOINTS)
    else:
        storage = of_judges(files, graph.name, CHECKPOINTS)
        files = FilesAndMedium(files, storage.medium, (CHECKPOINTS, SAVEPOINTS))
    return TrialStorage(root, files, storage, components, of_judges, of_job)


@dataclass(frozen=True)
class Notes:
    """Directories in which the processes of a job log what they do."""

    reads: ReadsDirectory
    of_subtasks: NotesDirectory
    inputs: InputsDirectory
    elements: ElementsDirectory
    trace_events: MessageTraceDirectory
    messages: MessagesDirectory


def _notes_below(scratch: Path) -> Notes:
    for name in ("reads", "subtasks", "inputs", "elements", "passages", "messages"):
        (scratch / name).mkdir()
    return Notes(
        ReadsDirectory(str(scratch / "reads")),
        NotesDirectory(str(scratch / "subtasks")),
        InputsDirectory(str(scratch / "inputs")),
        ElementsDirectory(str(scratch / "elements")),
        MessageTraceDirectory(str(scratch / "passages")),
        MessagesDirectory(str(scratch / "messages")),
    )


def _failures_below(scratch: Path) -> FailuresDirectory:
    (scratch / "failures").mkdir()
    return FailuresDirectory(str(scratch / "failures"))


@dataclass(frozen=True)
class JobEnded:
    """How the last job of a trial ended."""

    end: End
    detail: str
    pending: tuple[str, ...] = ()
    """What a job that is stuck waits for."""


class SparkTrial:
    """A trial that is about to run. ``run`` once, and then ``outcome``."""

    def __init__(
        self,
        plan: TrialPlan,
        workload: Workload,
        environment: TrialEnvironment,
        nemesis: NemesisHooks,
        decode: Callable[[bytes], list[Row]],
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._nemesis = nemesis
        self.graph = graph_of(plan, environment.source)
        self.kept = _storage_of(plan, self.graph, environment)
        self._local_files: tuple[str, ...] | None = None
        """What lay where hosts keep local copies when the job had ended, in a trial without local recovery."""
        self._notes = _notes_below(environment.scratch)
        opener = CheckpointOpener(
            self.graph,
            kinds_of(plan),
            self.kept.components,
            lambda: self.kept.files,
            CHECKPOINTS,
            OUTPUT,
            decode if workload.spec is None else None,
            plan.checkpoints.local_compression is not None,
        )
        reserve_ids(plan, self.kept.storage)
        self._watcher = SparkWatcher(opener, self._notes.reads, planned_savepoints(plan))
        loses = any(
            planned.fault.loses_unsynced or planned.fault.needs in _TAKES_HOSTS for planned in plan.faults
        )
        self._journals = environment.scratch / "unsynced" if loses else None
        self._failures = _failures_below(environment.scratch) if fails_snapshots(plan) else None
        if plan.local_recovery and isinstance(self._copies, JobDisks):
            self._watcher.disks = self._copies
        self._held_up = HeldUpNotes(
            MachineWaits(lambda: (*environment.cluster.processes(), os.getpid())),
            lambda held: self._watcher.note(held, process="machine"),
        )
        self._late_ms = 0.0
        """For how long this process stood still: then it takes no reports either."""
        self._reports = ReportsTimed(self._watcher, self._watcher.now_ms)
        self._job = RemoteJob(environment.drivers, self._order(), lambda: self._watcher.finished)
        self._watcher.on_job_over, self._watcher.on_savepoint = self._job.job_over, self._job.take_savepoint

    def _order(self) -> JobOrder:
        plan, notes = self._plan, self._notes
        return JobOrder(
            plan=to_builtins(plan),
            source=str(self._environment.source),
            root=str(self.kept.root),
            reads=notes.reads.path,
            of_subtasks=notes.of_subtasks.path,
            inputs=notes.inputs.path,
            elements=notes.elements.path,
            trace_events=notes.trace_events.path,
            messages=notes.messages.path if plan.records_channels else None,
            watched=tuple(
                (_RUNTIME_POINTS[point], SubtaskId.parse(subtask) if subtask is not None else None)
                for point, subtask in self._nemesis.watched_points()
            ),
            proxied=self._environment.network is not None,
            backend=self._environment.backend,
            external_storage=self.kept.of_job,
            journals=str(self._journals) if self._journals is not None else None,
            failures=self._failures.path if self._failures is not None else None,
        )

    @cached_property
    def _disks(self) -> JobDisks:
        cluster = self._environment.cluster
        return JobDisks(cluster.directory, cluster.worker_host, self.graph.name, self.kept.root)

    @cached_property
    def _memories(self) -> ExecutorMemories:
        return ExecutorMemories(lambda: self._watcher.processes.values(), self.graph.name, self.kept.root)

    @property
    def _copies(self) -> JobDisks | ExecutorMemories:
        """Where the job keeps its local copies, if it keeps any."""
        return self._memories if self._plan.checkpoints.local_copies == "memory" else self._disks

    def _targets(self) -> SparkTargets:
        """Return what faults can hit."""
        repeats = RepeatedMessages(lambda: self._job.repeat(repeats.in_force))
        forger = Forger(
            lambda: self.kept.components.checkpoint_storage(self.kept.files, self.graph.name, CHECKPOINTS),
            self.graph.subtasks,
            self._job.take_forged,
        )
        journals, root = self._journals, self.kept.root
        exposed = Exposed(
            copies=self._copies if self._plan.local_recovery else None,
            primaries=self.kept.primaries,
            metadata=partial(self.kept.metadata, self.graph.name),
            network=self._environment.network,
            messages=lambda subtask: RepeatableMessages(repeats, subtask, forger),
            lose=(lambda pids: lose_unsynced(journals, root, pids)) if journals is not None else None,
            store=self._environment.store,
            failures=self._failures,
        )
        cluster, workers = self._environment.cluster, self._environment.workers
        return SparkTargets(self._watcher, self._job, cluster, workers, exposed)

    def run(self) -> JobEnded:
        """Run the job, and after each stop with a savepoint the next one, until the last has ended or time is over.

        What is kept of checkpoints is so much that a search for cycles among it would stop this process for seconds.
        """
        with no_collection():
            return self._run()

    def _run(self) -> JobEnded:
        nemesis, watcher, drivers = self._nemesis, self._watcher, self._environment.drivers
        targets = self._targets()
        nemesis.bind(targets, watcher.now_ms)
        watcher.nemesis, watcher.network = nemesis, self._environment.network
        drivers.report_to(self._reports, self._environment.network)
        if any(planned.fault.ends is Ends.COORDINATOR for planned in self._plan.faults):
            drivers.keep_spare()
        try:
            self._job.start()
            ended = self._wait()
            stops = 0
            while self._job.stopped_with is not None:
                stops += 1
                later = self._plan.after_stops(stops)
                watcher.rescaled(graph_of(later, self._environment.source))
                self._job.start_from(self._job.stopped_with, later)
                ended = self._wait()
        finally:
            nemesis.heal_all()  # before the job ends: a stopped process cannot leave
            self._job.close()
            drivers.report_to(JobReports(), None)
            targets.replace_lost()
        if not self._plan.local_recovery:
            self._local_files = (*self._disks.files(), *self._memories.files())
        self._disks.wipe_all()
        self._memories.wipe_all()
        return ended

    def _wait(self) -> JobEnded:
        """Wait for a job's end or the trial's bound; meanwhile timed faults strike and lasting faults are healed."""
        watcher, nemesis, wall_s = self._watcher, self._nemesis, self._plan.limits.wall_s
        while True:
            now_ms, bound_ms = watcher.now_ms(), wall_s * 1_000.0
            self._held_up.look(now_ms, self._reports.total_ms + self._late_ms)
            if now_ms >= bound_ms:
                bound_ms += allowed_on_a_slow_machine_ms(watcher.operations, bound_ms)
            if now_ms >= bound_ms:
                return JobEnded(
                    End.STUCK, f"no end within {bound_ms / 1_000.0:.0f} s", self._job.waiting_for()
                )
            due_ms = nemesis.next_time_ms()
            # A fault that fires at a point meanwhile may have to be healed: look again soon.
            next_ms = min(bound_ms, watcher.now_ms() + _POLL_MS, due_ms if due_ms is not None else bound_ms)
            over = self._job.wait(max(0.0, next_ms - watcher.now_ms()) / 1_000.0)
            self._late_ms += max(0.0, watcher.now_ms() - next_ms)
            if over is not None:
                return JobEnded(End.FAILED if over.state is JobState.FAILED else End.FINISHED, over.reason)
            if due_ms is not None and watcher.now_ms() >= due_ms:
                nemesis.time_reached(watcher.now_ms())

    def note_observations(self, ended: JobEnded) -> float:
        """Take what the processes logged into the history; returns the trial's length in milliseconds."""
        watcher = self._watcher
        for read in self._notes.inputs.take_all():
            watcher.note(read, process="source")
        for note in self._notes.of_subtasks.take_all():
            watcher.note(note, process=note.subtask if isinstance(note, ClockCompared) else "storage")
        for log in self._notes.messages.observed():
            watcher.note(log, process="ports")
        duration_ms = watcher.now_ms()
        if ended.end is End.STUCK:
            watcher.cut_off(Reason.OUT_OF_TIME, ended.detail)
        return duration_ms

    def outcome(
        self,
        ended: JobEnded,
        duration_ms: float,
        output: CommittedRows | None,
        query: OutputComparison | None,
        batch: Sequence[Row] | None = None,
    ) -> TrialOutcome:
        """Return what the trial left: the committed rows, or what a batch query says of them, and what the batch query
        of the workload gives, if it was asked."""
        watcher, kept = self._watcher, self.kept
        recoveries = watcher.kill_to_first_record_ms()
        history = History(
            operations=tuple(watcher.operations),
            end=ended.end,
            reason=watcher.end_reason,
            detail=ended.detail,
            output=output[0] if output is not None else None,
            output_by=output[1] if output is not None else (),
            checkpoints=tuple(watcher.views),
            storage=view_storage(kept.storage, kept.files, CHECKPOINTS, OUTPUT, SAVEPOINTS),
            pending=ended.pending,
            local_files=self._local_files,
            output_query=query,
            epoch_ms=watcher.epoch_ms,
            batch=tuple(batch) if batch is not None else None,
            elements=self._notes.elements.taken() if self.graph.has_event_time else None,
        )
        return TrialOutcome(
            history=history,
            attempts=watcher.attempts(),
            checkpoints=watcher.checkpoints(),
            snapshots=tuple(watcher.snapshots),
            subtasks=tuple(str(subtask) for subtask in self.graph.subtasks),
            duration_ms=duration_ms,
            measurements={"kill_to_first_record_ms": statistics.median(recoveries)} if recoveries else {},
            refused_connections=self._job.refused,
            trace_events=self._notes.trace_events.take_all(watcher.epoch_ms),
        )
