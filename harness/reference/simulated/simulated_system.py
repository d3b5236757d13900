"""The reference runtime in the simulated world, as a system under test."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record.elements import SubtaskElements
from barrier_tck.harness.record.history import End, History, Row
from barrier_tck.harness.record.message_trace import TraceEvent, in_order
from barrier_tck.harness.record.operations import (
    ClockCompared,
    CopySeen,
    ReadsObserved,
    SlotsChanged,
    StartedFromSavepoint,
    StorageAsked,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.bugs.catalogue import broken, planted
from barrier_tck.harness.reference.checkpoint_storages import require_outliving, simulated_storage
from barrier_tck.harness.reference.external_storage import FilesAndMedium
from barrier_tck.harness.reference.failing_snapshots import (
    FailuresInMemory,
    fails_snapshots,
    with_failing_snapshots,
)
from barrier_tck.harness.reference.jobs import (
    CHECKPOINTS,
    SAVEPOINTS,
    build_graph,
    collection_sources,
    job_config,
    kinds_of,
    reserve_ids,
)
from barrier_tck.harness.reference.kinds.sink import OUTPUT
from barrier_tck.harness.reference.message_tracing import with_message_trace
from barrier_tck.harness.reference.observed_barriers import barriers_observed
from barrier_tck.harness.reference.observed_elements import MemoryElements, elements_observed
from barrier_tck.harness.reference.observed_ends import ends_observed
from barrier_tck.harness.reference.observed_inputs import InputNote, inputs_observed
from barrier_tck.harness.reference.observed_messages import MemoryLogs, messages_observed
from barrier_tck.harness.reference.observed_reads import observed
from barrier_tck.harness.reference.observed_requests import requests_counted
from barrier_tck.harness.reference.planned_components import components_of
from barrier_tck.harness.reference.planned_savepoints import planned_savepoints
from barrier_tck.harness.reference.recorder import RunRecorder
from barrier_tck.harness.reference.seen_copies import copies_among
from barrier_tck.harness.reference.simulated.failure_detector import silence_noticed_ms
from barrier_tck.harness.reference.simulated.order import Order
from barrier_tck.harness.reference.simulated.repeatable_outcome import repeatable
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.reference.sink_files import is_committed, rows_by_writer
from barrier_tck.harness.reference.skewed_clocks import skewed
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener, view_storage
from barrier_tck.harness.reference.table_coverage import transitions
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import Scale
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload import read_splits
from barrier_tck.harness.workloads.workload_names import workload_named
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import Savepoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.state.backend import StateBackend
from barrier_tck.reference_impl.storage.checkpoint_storage import (
    FileCheckpointStorage,
    MediumCheckpointStorage,
)
from barrier_tck.reference_impl.storage.filesystem import FileSystem


class ReferenceSimulated:
    """Runs plans in virtual time; holds nothing between trials."""

    name = "reference-simulated"
    world = "simulated"
    scale = Scale(seeds_max=6, examples_max=24)
    capabilities = frozenset(
        {
            Capability.DETERMINISTIC_REPLAY,
            Capability.EXECUTOR_KILL,
            Capability.WORKER_KILL,
            Capability.COORDINATOR_CRASH,
            Capability.CHECKPOINTS,
            Capability.UNALIGNED_CHECKPOINTS,
            Capability.ATTEMPTS,
            Capability.BARRIERS,
            Capability.SAVEPOINTS,
            Capability.RESCALING,
            Capability.OPERATOR_LISTS,
            Capability.OPERATOR_TIMERS,
            Capability.EVENT_TIME,
            Capability.STATE_FORMS,
            Capability.EMISSION,
            Capability.SNAPSHOT_INSPECTION,
            Capability.FIFO_CHANNELS,
            Capability.UNSYNCED_LOSS,
            Capability.FROM_SAVEPOINT,
            Capability.STORAGE_OUTAGE,
            Capability.SLOW_SNAPSHOTS,
            Capability.HOST_LOSS,
            Capability.HOST_RETURN,
            Capability.CLOCK_SKEW,
            Capability.EXECUTOR_LOSS,
            Capability.ELASTIC,
            Capability.STORAGE_FAULTS,
            Capability.FILE_FAULTS,
            Capability.DELETION_FAULTS,
            Capability.SNAPSHOT_FAULTS,
            Capability.LOCAL_RECOVERY,
            Capability.PAUSE,
            Capability.CHANNEL_FAULTS,
            Capability.PARTITION,
            Capability.PACKET_LOSS,
            Capability.EARLY_FINISH,
            Capability.REQUEST_LOG,
            Capability.MESSAGE_LOG,
            Capability.LOOPS,
            Capability.CHANDY_LAMPORT,
            Capability.MESSAGE_FAULTS,
            Capability.OBJECT_STORE_FAULTS,
        }
    )

    def __init__(
        self,
        state_backend: Callable[[], StateBackend] | None = None,
        traces_messages: bool = False,
    ) -> None:
        """Take the factory of a candidate's state backend; None means the plan's backend.

        ``traces_messages``: outcomes hold what passed through the channels, which takes some time.
        """
        self._state_backend = state_backend
        self._traces_messages = traces_messages
        self.shows_coverage = False

    def job(self, plan: TrialPlan) -> JobView:
        """Return the subtasks, links and points of the plan's job."""
        require_outliving(plan)
        return barrier_view(plan, silence_noticed_ms(plan.network))

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        """Return the plan with the planted bug that breaks recovery in this way."""
        return broken(plan, how)

    def tracing_messages(self) -> ReferenceSimulated:
        """Return a system like this one, whose outcomes hold what passed through the channels."""
        return ReferenceSimulated(self._state_backend, traces_messages=True)

    def showing_coverage(self) -> ReferenceSimulated:
        """Return a system like this one, whose outcomes name what the machines of the protocol came through."""
        shown = copy.copy(self)
        shown.shows_coverage = True
        return shown

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run one trial in virtual time."""
        views = temporary_work_directory("views", in_memory=True)
        with (
            planted(plan),
            no_collection(),
            simulated_storage(plan) as external_storage,
            views as working_root,
        ):
            if not self.shows_coverage:
                return self._run(plan, nemesis, external_storage, working_root)
            with transitions() as reached:
                outcome = self._run(plan, nemesis, external_storage, working_root)
            return replace(outcome, reached=reached())

    def _run(
        self,
        plan: TrialPlan,
        nemesis: NemesisHooks,
        external_storage: Callable[..., MediumCheckpointStorage] | None,
        working_root: str,
    ) -> TrialOutcome:
        trial = SimulatedTrial(
            plan,
            nemesis,
            external_storage,
            working_root,
            state_backend=self._state_backend,
            traces_messages=self._traces_messages,
        )
        try:
            in_time = trial.world.run(SimulatedTargets(trial.world, trial.failures))
            return trial.outcome(in_time)
        finally:
            nemesis.heal_all()
            trial.release()

    def close(self) -> None:
        """Do nothing, because no trial leaves anything behind."""


class SimulatedTrial:
    """A plan's world with all that observes it, before, during and after its run."""

    def __init__(
        self,
        plan: TrialPlan,
        nemesis: NemesisHooks,
        external_storage: Callable[..., MediumCheckpointStorage] | None,
        working_root: str,
        state_backend: Callable[[], StateBackend] | None = None,
        traces_messages: bool = False,
        order: Order | None = None,
    ) -> None:
        """Build the world; nothing runs before ``world.run``. ``order`` decides what comes when; None: the seed."""
        workload = workload_named(plan.workload.name)
        sources = collection_sources(plan, read_splits(workload, plan))
        self._graph = graph = build_graph(plan, workload, sources)
        components = components_of(plan, external_storage)
        if state_backend is not None:
            components = replace(components, state_backend=state_backend)
        self.recorder = recorder = _Recorder(plan, graph, components, external_storage, working_root)
        counted = requests_counted(components, recorder.keep_asked)
        watched = observed(
            inputs_observed(counted, recorder.keep_input, ends=bool(plan.savepoints)), recorder.keep_reads
        )
        watched = ends_observed(watched, recorder.keep_input)
        watched = barriers_observed(watched, plan.checkpoints, recorder.keep_input)
        self.failures = FailuresInMemory() if fails_snapshots(plan) else None
        watched = with_failing_snapshots(watched, self.failures)
        self.elements = MemoryElements() if graph.has_event_time else None
        if self.elements is not None:
            watched = elements_observed(watched, self.elements)
        watched = skewed(watched, plan.deployment.clock_skew_ms, recorder.keep_comparison)
        self._trace_events: list[TraceEvent] = []
        if traces_messages:
            watched = with_message_trace(watched, self._trace_events.extend)
        self.logs = MemoryLogs()
        if plan.records_channels:
            watched = messages_observed(watched, self.logs)
        self.world = world = SimulatedWorld(
            plan, graph, job_config(plan), RowPlane(), watched, recorder, nemesis, order=order
        )
        recorder.follow(world)
        later = [plan.after_stops(stops) for stops in range(1, len(plan.rescales) + 1)]
        recorder.rescaled_to = [build_graph(entry, workload, sources) for entry in later]
        reserves = FileCheckpointStorage if external_storage is None else external_storage
        reserve_ids(plan, reserves(world.read_only_files(), graph.name, CHECKPOINTS))

    def outcome(self, in_time: bool) -> TrialOutcome:
        """Return what the run left, once it is over; ``in_time`` says whether the job ended by itself."""
        world, recorder = self.world, self.recorder
        for log in self.logs.observed():
            recorder.note(log, process="ports")
        outcome = TrialOutcome(
            history=_history(
                world, recorder, in_time, self.elements.taken() if self.elements is not None else None
            ),
            attempts=recorder.attempts(),
            checkpoints=recorder.checkpoints(),
            snapshots=tuple(recorder.snapshots),
            subtasks=tuple(str(subtask) for subtask in self._graph.subtasks),
            duration_ms=world.scheduler.now,
            trace=world.trace.lines(),
            measurements=_measure(world),
            trace_events=in_order(self._trace_events),
        )
        return outcome if world.files_repeat else repeatable(outcome, world.working_root)

    def release(self) -> None:
        """Release what the world holds.

        Processes that were killed may report their input when they are closed, so the recorder goes last.
        """
        self.world.release()
        self.recorder.release()


class _Recorder(RunRecorder):
    """Records a world that is made after the recorder."""

    def __init__(
        self,
        plan: TrialPlan,
        graph: JobGraph,
        components: Components,
        external_storage: Callable[..., MediumCheckpointStorage] | None,
        working_root: str,
    ) -> None:
        judged_as_a_whole = workload_named(plan.workload.name).spec is None
        super().__init__(
            CheckpointOpener(
                graph,
                kinds_of(plan),
                components,
                self.files,
                CHECKPOINTS,
                OUTPUT,
                _decode_lines if judged_as_a_whole else None,
                plan.checkpoints.local_compression is not None,
                working_root,
            ),
            planned_savepoints(plan),
        )
        self._world: SimulatedWorld | None = None
        self._external_storage = external_storage
        self._reads: dict[tuple[str, int], ReadsObserved] = {}
        self.rescaled_to: list[JobGraph] = []
        """The jobs that follow when the job is stopped with a savepoint; if there are none left, the same one."""

    def keep_reads(self, reads: ReadsObserved) -> None:
        self._reads[reads.subtask, reads.attempt] = reads

    def keep_input(self, note: InputNote) -> None:
        if self._world is not None:
            self.note(note, process="source")

    def keep_asked(self, asked: StorageAsked) -> None:
        if self._world is not None:
            self.note(asked, process="storage")

    def keep_comparison(self, compared: ClockCompared) -> None:
        self.clock_ahead_ms[compared.subtask, compared.attempt] = compared.ahead_ms
        self.note(compared, process=compared.subtask)

    def request_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        assert self._world is not None
        self._world.request_savepoint(savepoint, delay_ms)

    def reads_of(self, subtask: str, attempt: int) -> ReadsObserved | None:
        return self._reads.get((subtask, attempt))

    def follow(self, world: SimulatedWorld) -> None:
        self._world = world
        world.next_graph = self._next_graph
        world.starts_from = lambda checkpoint, place: self.note(StartedFromSavepoint(checkpoint, place))
        world.executors.slots_changed = lambda slots: self.note(SlotsChanged(slots), process="executors")

    def _next_graph(self) -> JobGraph:
        if self.rescaled_to:
            self.rescaled(self.rescaled_to.pop(0))
        return self.planned_graph

    def copies_on_hosts(self) -> tuple[CopySeen, ...] | None:
        """Return the local copies on the disks of hosts."""
        if self._world is None or not self._world.config.local_recovery:
            return None
        hosts = self._world.executors.hosts.hosts
        return copies_among((host.name, path) for host in hosts for path in host.local.list_files(""))

    def look_at_hosts(self) -> None:
        """Note the files of hosts, unless local recovery puts them there."""
        if self._world is not None and not self._world.config.local_recovery:
            for host in self._world.executors.hosts.hosts:
                self.local_files |= {f"{host.name}:{path}": None for path in host.local.list_files("")}

    def release(self) -> None:
        """Break the reference cycle with the world; later uses raise AttributeError."""
        vars(self).clear()

    def now_ms(self) -> float:
        return self._world.scheduler.now if self._world is not None else 0.0

    def files(self) -> FileSystem:
        """Return a view of the trial's files, and of those of checkpoints, wherever they are."""
        assert self._world is not None
        files = self._world.read_only_files()
        if self._external_storage is None:
            return files
        storage = self._external_storage(files, self._world.graph.name, CHECKPOINTS)
        return FilesAndMedium(files, storage.medium, (CHECKPOINTS, SAVEPOINTS))


def _history(
    world: SimulatedWorld,
    recorder: _Recorder,
    in_time: bool,
    elements: tuple[SubtaskElements, ...] | None,
) -> History:
    driver = world.coordinator.driver
    if driver.state is JobState.FINISHED:
        end, detail = End.FINISHED, ""
    elif driver.state is JobState.FAILED:
        end, detail = End.FAILED, driver.reason
    elif world.scheduler.timed_out:
        end, detail = End.STUCK, f"no end within {world.plan.limits.virtual_ms} ms"
    else:
        end, detail = End.STUCK, "nothing is left to do"
    if not in_time:
        recorder.cut_off(Reason.OUT_OF_TIME if world.scheduler.timed_out else Reason.NOTHING_LEFT, detail)
    files = recorder.files()
    storage = world.components.checkpoint_storage(files, world.graph.name, CHECKPOINTS)
    output, writers = committed_rows(files)
    recorder.look_at_hosts()
    return History(
        operations=tuple(recorder.operations),
        end=end,
        reason=recorder.end_reason,
        detail=detail or "; ".join(world.failures[-3:]),
        output=output,
        output_by=writers,
        checkpoints=tuple(recorder.views),
        storage=view_storage(storage, files, CHECKPOINTS, OUTPUT, SAVEPOINTS),
        pending=driver.waiting_for() if end is End.STUCK else (),
        local_files=None if world.config.local_recovery else tuple(recorder.local_files),
        elements=elements,
    )


_decode_lines = msgspec.json.Decoder().decode_lines


def committed_rows(files: FileSystem) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Read the committed output of the row plane, every line of every file, and the sink subtask of each row."""
    paths = [path for path in files.list_files(OUTPUT) if is_committed(path, OUTPUT)]
    return rows_by_writer(paths, lambda path: _decode_lines(files.read(path)))


def _measure(world: SimulatedWorld) -> dict[str, float]:
    return {"virtual_ms": world.scheduler.now, "steps": float(world.scheduler.steps)}
