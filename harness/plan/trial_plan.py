"""A trial plan: the only input of a trial, frozen, JSON in and out.

We keep the plan, not the seed: a seed means something else after each code change. Everything that varies between
trials is in the plan; its seed only decides the simulator's message latencies and choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan, Spread, Width
from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.json_values import problem_of_json

PLAN_VERSION = 2

CheckpointingMode = Literal["exactly_once", "at_least_once", "unaligned", "aligned_timeout"]
"""How barriers are treated."""

RestartStrategyName = Literal["none", "fixed_delay", "failure_rate", "exponential_delay"]
"""What follows a failure (REC-3)."""

OVERTAKING: tuple[CheckpointingMode, ...] = ("unaligned", "aligned_timeout")
"""The modes whose barriers may overtake records (UNA-1, UNA-2)."""

CheckpointProtocol = Literal["barriers", "chandy_lamport"]
"""How a checkpoint is taken: by barriers, as the mode says, or by Chandy and Lamport's algorithm (CHL-1)."""

CompressionName = Literal["none", "zstd"]
"""How snapshots of keyed state are compressed (SNP-6)."""

LocalCopiesName = Literal["disk", "memory"]
"""Where second copies of state are kept (LOC-7)."""

WhenUnreadable = Literal["fail", "older"]
"""What to do when no copy of the latest checkpoint can be read."""

SAVEPOINTS_MAX = 8
"""The most savepoints that a plan asks for."""

RECORDS_MAX = 10_000_000
"""The most records of a source subtask, whose input is made in memory."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Some = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Duration = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
_SomeTime = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class WorkloadPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Which workload runs, and how much of it."""

    name: str = "keyed-totals"
    """A name in ``barrier_tck.harness.workloads``."""
    batches: _Count = 20
    """Batches per source subtask (generated workloads)."""
    batch_records: _Some = 3
    """Records per batch."""
    keys: _Some = 5
    """Distinct keys (generated workloads)."""
    records_per_second: _Some | None = None
    """Rate limit per source subtask; None: no limit."""
    start_offset: _Count = 0
    """Position at which each split begins: the records before it are not part of the input."""
    early_ends: _Count = 0
    """So many source subtasks, counted over all source vertices, have no more than one batch per split (generated
    workloads). They finish long before the others, and checkpoints complete without them (BAR-6)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        records = self.batches * self.batch_records
        if records > RECORDS_MAX:
            raise ValueError(
                f"batches is {self.batches} and batch_records {self.batch_records}: that is {records:,} records for "
                f"each source subtask; at most {RECORDS_MAX:,} are allowed"
            )


class DeploymentPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Where the subtasks run, and how many key groups there are."""

    max_parallelism: Annotated[int, msgspec.Meta(ge=1, le=32_768)] = 16
    """Number of key groups; no stateful vertex may be wider (RSC-1)."""
    executors: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    write_through: bool = True
    """Whether keyed operators write every change to the state backend at once, and not only at barriers."""
    cached_keys: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    """Most keys that a keyed aggregate of a subtask has in memory, in front of its state backend; None: all."""
    sink_buffer_records: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    """How many records a sink gathers before it writes them; None: the system's own number."""
    slots_per_executor: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    """How many subtasks an executor has room for; None: any number. On Spark the cluster's cores say it."""
    elastic_wait_ms: _Duration | None = None
    """How long an attempt waits for slots that are missing, before the job goes on narrower (RSC-2); None: it never
    does, and waits until it fails."""
    replaced_after_ms: _Duration = 0
    """In the simulator, for elastic jobs: how long nothing takes the place of an executor that has died. On Spark the
    cluster decides."""
    fixed_vertices: tuple[str, ...] = ()
    """Vertices that an elastic job leaves as they are; so it does with receivers of a broadcast, and with loops."""
    clock_skew_ms: tuple[Annotated[int, msgspec.Meta(ge=-3_600_000, le=3_600_000)], ...] = ()
    """How far the clocks of hosts are ahead of the coordinator's, dealt out to the hosts in turn; negative: behind."""
    slow_vertex: str | None = None
    """A vertex that is slower than the others, so that records queue up before it."""
    slow_batch_ms: _Duration = 0
    """How much longer it takes for each batch."""


class CheckpointPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Checkpoint configuration and, for the simulator, how slow its parts are."""

    enabled: bool | None = True
    """None: not configured; then the system's own default applies, which must be off (COO-7)."""
    mode: CheckpointingMode = "exactly_once"
    interval_ms: _SomeTime = 15
    timeout_ms: _SomeTime = 2_000
    min_pause_ms: _Duration = 0
    max_concurrent: _Some = 1
    retained: _Some = 2
    first_id: Annotated[int, msgspec.Meta(ge=1, le=2**53)] = 1
    """The least id that a checkpoint may get: those below count as given out, by an earlier job (COO-4).

    The first attempt has the next number, or 1 if this is 1.
    """
    tolerated_failures: _Count = 1_000
    async_ms_max: _Duration = 10
    """The asynchronous part takes up to this long in the simulator, and at least this long on Spark."""
    alignment_timeout_ms: _Duration = 20
    """Mode ``aligned_timeout``: how long a subtask waits for barriers before they overtake records (UNA-2)."""
    incremental: bool = False
    """Whether a checkpoint refers to files of earlier ones for what has not changed, if the backend can (SNP-5)."""
    compression: CompressionName = "none"
    """How each key group of a snapshot is compressed; RocksDB leaves its files as they are (SNP-6)."""
    local_compression: CompressionName | None = None
    """With local recovery: how the copies on hosts are compressed; None: they have the bytes of the primary (LOC-7)."""
    local_copies: LocalCopiesName = "disk"
    """With local recovery: where the copies on hosts are. Those in an executor's memory are lost with it (LOC-7)."""
    local_memory_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**40)] = 64 * 1024 * 1024
    """Most bytes that the copies in the memory of one executor take."""
    storage: str = "files"
    """Where checkpoints are kept (STA-2): ``files``, ``s3``, ``hdfs``, ``memory``, or any other as
    ``package.module:Factory``.

    For ``s3`` a trial on Spark starts a server; the simulator has a model of one, which lists late. ``memory`` is the
    coordinator's: it is lost with it, and the processes of a cluster cannot reach it. ``hdfs`` needs one that is there.
    """

    protocol: CheckpointProtocol = "barriers"
    initiators: tuple[tuple[str, ...], ...] = ()
    """Chandy-Lamport: the subtasks that initiate each snapshot, in turn; beside them the sources that no channel leads
    to, which no other subtask could do. Empty: all sources."""

    @property
    def overtakes(self) -> bool:
        """Whether barriers may overtake records (UNA-1)."""
        return bool(self.enabled) and self.mode in OVERTAKING

    @property
    def records_all(self) -> bool:
        """Whether every channel is recorded (CHL-1)."""
        return bool(self.enabled) and self.protocol == "chandy_lamport"


class SavepointPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """A savepoint that the trial asks for: an action of the user, and no fault (COO-5).

    It is asked for once. If the job is not running at that moment, the system may refuse it.
    """

    after_checkpoints: _Count = 1
    """It is asked for when this many checkpoints and savepoints have completed; 0: when an attempt runs."""
    delay_ms: _Duration = 0
    """It is asked for this much later than that."""
    stop: bool = False
    """Whether the job is stopped with it. Then a second job is started from it, and both are judged as one."""
    claim: bool = False
    """Whether the second job takes it over: it deletes the savepoint once a newer checkpoint is complete."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.claim and not self.stop:
            raise ValueError("savepoints: claim is only for a savepoint with which the job is stopped")


class RescalePlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """How parallel the vertices are of the job that is started from a savepoint (RSC-2)."""

    widths: dict[str, Width]
    """Vertex -> parallelism; the others stay as they are. The receivers of a broadcast keep theirs: each record is
    processed by all of them, so what becomes of it depends on how many there are."""

    def __hash__(self) -> int:
        """Hash by content: widths are a dictionary."""
        return hash(tuple(self.widths.items()))


class RestartPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Restart strategy (REC-3)."""

    strategy: RestartStrategyName = "fixed_delay"
    attempts_max: _Count = 20
    """Restarts before the job is given up: in all (``fixed_delay``), for failures within ``interval_ms``
    (``failure_rate``), or in a row (``exponential_delay``)."""
    delay_ms: _Duration = 10
    """Time between the end of an attempt and the next one; the first such time of a row of failures."""
    interval_ms: _SomeTime = 1_000
    """``failure_rate``: the time in which failures are counted, looking back from the latest."""
    delay_ms_max: _Duration = 200
    """``exponential_delay``: the longest delay; never less than ``delay_ms``."""
    factor: _Some = 2
    """``exponential_delay``: each delay is this many times as long as the one before."""
    reset_after_ms: _Duration = 1_000
    """``exponential_delay``: a row of failures is over once every subtask has run for so long."""


class NetworkPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Message latencies and channel capacities. A real network has its own latencies, except for the slow channel."""

    latency_ms_max: _Duration = 5
    """Each message takes between 0 and this, drawn per message; channels stay FIFO."""
    slow_channel: _Count | None = None
    """Index of one channel whose latency is ``slow_factor`` times as long."""
    slow_factor: _Some = 20
    channel_capacity: _Some = 8
    """Batches that a channel holds before its sender must wait; on Spark, at each of its ends."""
    buffer_bytes: _Some | None = None
    """In modes whose barriers overtake: batches are cut into buffers of this size; None: the system's own size."""
    change_points: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    """In the simulator: processes have random priorities, and so many times one of them gets the lowest. What a process
    with a low priority sends takes nearly the longest latency. None: each message has a latency of its own."""


class LimitsPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Bounds after which a trial counts as stuck."""

    virtual_ms: _SomeTime = 60_000
    """Simulator: bound on virtual time."""
    wall_s: _Some = 120
    """Bound on wall time. Real world: the job counts as stuck; a machine that is slow, or busy with other things, is
    given more (``harness.record.slow_machine``). Simulator: the trial and its judgement are given up, and its verdict
    is UNKNOWN."""
    progress_ms: _SomeTime = 30_000
    """Within this time after the last healing, a checkpoint must complete or the job must end; the trial's clock. A
    real machine that is slow, or busy with other things, is given more."""


class TrialPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """One trial."""

    version: int = PLAN_VERSION
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    workload: WorkloadPlan = WorkloadPlan()
    job: JobPlan = JobPlan()
    """The dataflow; without vertices it is the workload's own (``harness.workloads.workload_names.filled``)."""
    deployment: DeploymentPlan = DeploymentPlan()
    checkpoints: CheckpointPlan = CheckpointPlan()
    savepoints: tuple[SavepointPlan, ...] = ()
    rescales: tuple[RescalePlan, ...] = ()
    """One for each stop with a savepoint, in the order in which the job is stopped: how parallel the next job is. A job
    that is stopped more often stays as it is then."""
    restart: RestartPlan = RestartPlan()
    network: NetworkPlan = NetworkPlan()
    limits: LimitsPlan = LimitsPlan()
    faults: tuple[ScheduledFault, ...] = ()
    state_backend: str = "heap"
    """``heap``, ``rocksdb``, or any other as ``package.module:Factory``."""
    local_recovery: bool | None = False
    """Whether subtasks keep a second copy of their newest state on their own host and restore from it (LOC-1).

    None: not configured, so that the system's own default decides, which has to be off.
    """
    on_unreadable: WhenUnreadable = "fail"
    """What to do when no copy of the latest checkpoint can be read: ``fail``, or restore an ``older`` one (REC-4)."""
    system: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of the system under test. Only the system knows the keys; JSON values."""
    mutant: str | None = None
    """Id of a planted bug (``barrier_tck.harness.reference.bugs``); None: the product as it is."""
    patch: str | None = None
    """A user's own bug: a unified diff against the reference runtime, or the text of a planted bug's file. It is
    code, so it runs only if the command line names it, too, and in a process of its own."""
    note: str = ""
    """A sentence about the plan's history: what it once showed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = problem_of_json(self.system, "system")
        if problem is not None:
            raise ValueError(problem)
        if self.job.loops and self.checkpoints.enabled and self.checkpoints.mode == "at_least_once":
            raise ValueError(
                "the job has a loop, and checkpoints.mode is 'at_least_once': a vertex in a loop would wait for ever "
                "for its own barrier to come back (CHL-5)"
            )
        if len(self.savepoints) > SAVEPOINTS_MAX:
            raise ValueError(
                f"savepoints has {len(self.savepoints)} entries; at most {SAVEPOINTS_MAX} are allowed"
            )
        problem = _problem_of_protocol(self.checkpoints, self.job)
        if problem is not None:
            raise ValueError(problem)
        problem = _problem_of_rescales(self.rescales, self.job)
        if problem is not None:
            raise ValueError(problem)
        problem = _problem_of_elastic(self.deployment, self.checkpoints, self.job)
        if problem is not None:
            raise ValueError(problem)
        groups = self.deployment.max_parallelism
        for job in [self.after_stops(number).job for number in range(len(self.rescales) + 1)]:
            for vertex in job.vertices:
                if vertex.parallelism > groups:
                    raise ValueError(
                        f"the vertex {vertex.name!r} has parallelism {vertex.parallelism}, above "
                        f"deployment.max_parallelism ({groups}) (RSC-2)"
                    )

    def after_stops(self, stops: int) -> TrialPlan:
        """Return the plan with the job that runs after so many stops with a savepoint; its job must be filled in."""
        if not self.job.vertices or not self.rescales or not stops:
            return self
        widths = {name: width for stop in self.rescales[:stops] for name, width in stop.widths.items()}
        return self.at_widths(widths)

    def at_widths(self, widths: Mapping[str, int]) -> TrialPlan:
        """Return the plan with another parallelism of some vertices, for good."""
        return msgspec.structs.replace(self, job=self.job.at_widths(widths), rescales=())

    @property
    def records_channels(self) -> bool:
        """Whether channels are recorded for its checkpoints: all, or those of a loop (CHL-2, CHL-5).

        The plan's job must be filled in.
        """
        return self.checkpoints.records_all or (bool(self.checkpoints.enabled) and bool(self.job.loops))

    def __hash__(self) -> int:
        """Hash by content: settings are a dictionary."""
        fields = [getattr(self, name) for name in self.__struct_fields__ if name != "system"]
        return hash((*fields, msgspec.json.encode(self.system, order="deterministic")))


if TYPE_CHECKING:

    class FilledPlan(TrialPlan, frozen=True):
        """A plan whose job is spelled out, as systems, checkers and faults need it.

        ``workload_names.filled`` makes it, where a plan enters: when it is drawn, listed, read or shrunk. At run
        time it is an ordinary plan. (A ``NewType`` would say the same, but mypy 2.4 crashes on that of a struct.)
        """

else:
    FilledPlan = TrialPlan


def _problem_of_elastic(deployment: DeploymentPlan, checkpoints: CheckpointPlan, job: JobPlan) -> str | None:
    """Say what contradicts an elastic job; None if nothing does."""
    names = [vertex.name for vertex in job.vertices]
    unknown = [name for name in deployment.fixed_vertices if names and name not in names]
    if unknown:
        return f"deployment.fixed_vertices: there is no vertex {unknown[0]!r} in the job"
    if deployment.replaced_after_ms and (
        deployment.elastic_wait_ms is None or deployment.slots_per_executor is None
    ):
        return (
            "deployment.replaced_after_ms is for elastic jobs whose slots are counted: give elastic_wait_ms and "
            "slots_per_executor, too"
        )
    if deployment.elastic_wait_ms is not None and checkpoints.records_all:
        return (
            "a job with snapshots of chandy_lamport cannot be elastic: leave deployment.elastic_wait_ms out"
        )
    return None


def _problem_of_rescales(rescales: tuple[RescalePlan, ...], job: JobPlan) -> str | None:
    """Say what cannot be rescaled as a plan says; None if everything can."""
    names = [vertex.name for vertex in job.vertices]
    broadcast_to = dict.fromkeys(edge.target for edge in job.edges if edge.by is Spread.BROADCAST)
    for number, entry in enumerate(rescales if names else (), start=1):
        for name, width in entry.widths.items():
            if name not in names:
                return f"rescales: there is no vertex {name!r} in the job"
            if name in broadcast_to and width != job.vertex(name).parallelism:
                return f"rescales: stop {number} changes the vertex {name!r}, which receives a broadcast"
    return None


def _problem_of_protocol(checkpoints: CheckpointPlan, job: JobPlan) -> str | None:
    """Say what contradicts the protocol of checkpoints; None if nothing does."""
    if checkpoints.protocol == "barriers":
        return (
            "checkpoints.initiators is only for the protocol chandy_lamport"
            if checkpoints.initiators
            else None
        )
    if checkpoints.mode != "exactly_once":
        return f"chandy_lamport is exact: checkpoints.mode must be 'exactly_once', not {checkpoints.mode!r}"
    unknown = [name for group in checkpoints.initiators for name in group if name not in job.subtasks]
    if job.vertices and unknown:
        return f"checkpoints.initiators names {unknown[0]!r}, which is no subtask of the job"
    return next(
        (job.unreached_by(group) for group in checkpoints.initiators if job.unreached_by(group)), None
    )


def to_json(plan: TrialPlan) -> str:
    """Return the plan as indented JSON with every value spelled out."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode() + "\n"


def to_builtins(plan: TrialPlan) -> dict[str, Any]:
    """Return the plan as plain dictionaries and lists."""
    result: dict[str, Any] = msgspec.to_builtins(plan)
    return result


def write(plan: TrialPlan, path: Path) -> None:
    """Write the plan as JSON."""
    path.write_text(to_json(plan))
