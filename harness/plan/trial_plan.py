"""A trial plan: the only input of a trial, frozen, JSON in and out.

We keep the plan, not the seed: a seed means something else after each code change. Everything that varies between
trials is in the plan; its seed only decides the simulator's message latencies and choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.json_values import problem_of_json

PLAN_VERSION = 2

CheckpointingMode = Literal["exactly_once", "at_least_once"]
"""How barriers are treated."""

WhenUnreadable = Literal["fail", "older"]
"""What to do when no copy of the latest checkpoint can be read."""

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

    def __post_init__(self) -> None:
        """Refuse an input with more records than anybody would wait for."""
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
    """The least id that a checkpoint may get: those below count as given out, by an earlier job (COO-4)."""
    tolerated_failures: _Count = 1_000
    async_ms_max: _Duration = 10
    """The asynchronous part takes up to this long in the simulator, and at least this long on Spark."""


class RestartPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Restart strategy."""

    strategy: Literal["none", "fixed_delay"] = "fixed_delay"
    attempts_max: _Count = 20
    delay_ms: _Duration = 10


class NetworkPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Message latencies and channel capacities. A real network has its own, except for the slow channel."""

    latency_ms_max: _Duration = 5
    """Each message takes between 0 and this, drawn per message; channels stay FIFO."""
    slow_channel: _Count | None = None
    """Index of one channel whose latency is ``slow_factor`` times as long."""
    slow_factor: _Some = 20
    channel_capacity: _Some = 8
    """Simulator: batches that a channel holds before its sender must wait."""


class LimitsPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """Bounds after which a trial counts as stuck."""

    virtual_ms: _SomeTime = 60_000
    """Simulator: bound on virtual time."""
    wall_s: _Some = 120
    """Real world: bound on wall time."""
    progress_ms: _SomeTime = 30_000
    """Within this time after the last healing, a checkpoint must complete or the job must end; the trial's clock."""


class TrialPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """One trial."""

    version: int = PLAN_VERSION
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    workload: WorkloadPlan = WorkloadPlan()
    job: JobPlan = JobPlan()
    """The dataflow; without vertices it is the workload's own (``harness.workloads.workload_names.filled``)."""
    deployment: DeploymentPlan = DeploymentPlan()
    checkpoints: CheckpointPlan = CheckpointPlan()
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
    """Id of a planted bug (``barrier_tck.harness.reference.mutants``); None: the product as it is."""
    note: str = ""
    """A sentence about the plan's history: what it once showed."""

    def __post_init__(self) -> None:
        """Refuse values that contradict each other."""
        super().__post_init__()
        problem = problem_of_json(self.system, "system")
        if problem is not None:
            raise ValueError(problem)
        groups = self.deployment.max_parallelism
        for vertex in self.job.vertices:
            if vertex.parallelism > groups:
                raise ValueError(
                    f"the vertex {vertex.name!r} has parallelism {vertex.parallelism}, above "
                    f"deployment.max_parallelism ({groups}) (RSC-2)"
                )

    def __hash__(self) -> int:
        """Hash by content: settings are a dictionary."""
        fields = [getattr(self, name) for name in self.__struct_fields__ if name != "system"]
        return hash((*fields, msgspec.json.encode(self.system, order="deterministic")))


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
