"""A trial plan: the only input of a trial, frozen, JSON in and out.

The plan, not the seed, is what we keep: seeds die with code changes. Everything that a trial varies is here;
the seed only decides the simulator's message latencies and choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.faults.vocabulary import ScheduledFault

PLAN_VERSION = 1


class WorkloadPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which workload runs, and how much of it."""

    name: str = "keyed-totals"
    """A name in ``barrier_tck.harness.workloads``."""
    batches: int = 20
    """Batches per source subtask (generated workloads)."""
    batch_records: int = 3
    """Records per batch."""
    keys: int = 5
    """Distinct keys (generated workloads)."""
    records_per_second: int | None = None
    """Rate limit per source subtask; None: as fast as it can."""
    start_offset: int = 0
    """Where each split begins: records before it are not part of the input."""


class TopologyPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How wide each vertex is, and on how many executors the subtasks are spread."""

    sources: int = 2
    keyed: int = 2
    sinks: int = 1
    max_parallelism: int = 16
    executors: int = 2
    stateful_operators: int = 1
    """Keyed operators in each keyed subtask: 1, or 2, of which the second contradicts a wrong count of the first."""
    write_through: bool = True
    """Keyed operators write every change to the state backend at once, not only at barriers."""


class CheckpointPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Checkpoint configuration, and in the simulator how slow its parts are."""

    enabled: bool = True
    mode: str = "exactly_once"
    """``exactly_once`` or ``at_least_once``."""
    interval_ms: int = 15
    timeout_ms: int = 2_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    retained: int = 2
    tolerated_failures: int = 1_000
    async_ms_max: int = 10
    """Simulator: the asynchronous part takes up to this long."""


class RestartPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Restart strategy."""

    strategy: str = "fixed_delay"
    """``none`` or ``fixed_delay``."""
    attempts_max: int = 20
    delay_ms: int = 10


class NetworkPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Simulator: message latencies and channel capacities."""

    latency_ms_max: int = 5
    """Each message takes from 0 to this, drawn per message; channels stay FIFO."""
    slow_channel: int | None = None
    """Index of one channel whose latency is ``slow_factor`` times as long."""
    slow_factor: int = 20
    channel_capacity: int = 8
    """Batches that a channel holds before its sender must wait."""


class LimitsPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds after which a trial is called stuck."""

    virtual_ms: int = 60_000
    """Simulator: bound on virtual time."""
    wall_s: int = 120
    """Real world: bound on wall time."""
    progress_ms: int = 30_000
    """After the last healing, a checkpoint must complete or the job end within so long, on the trial's clock."""


class TrialPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One trial."""

    version: int = PLAN_VERSION
    seed: int = 0
    workload: WorkloadPlan = WorkloadPlan()
    topology: TopologyPlan = TopologyPlan()
    checkpoints: CheckpointPlan = CheckpointPlan()
    restart: RestartPlan = RestartPlan()
    network: NetworkPlan = NetworkPlan()
    limits: LimitsPlan = LimitsPlan()
    faults: tuple[ScheduledFault, ...] = ()
    state_backend: str = "heap"
    """``heap``, ``rocksdb``, or any other as ``package.module:Factory``."""
    local_recovery: bool = False
    """Subtasks keep a second copy of their newest state on their own host, and restore from it (LOC-1)."""
    on_unreadable: str = "fail"
    """When the latest checkpoint can be read from no copy: ``fail``, or ``older`` (REC-4)."""
    mutant: str | None = None
    """Id of a planted bug (``barrier_tck.harness.reference.mutants``); None: the product as it is."""
    note: str = ""
    """A sentence of history: what the plan once showed."""


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
