"""Reads plans, and refuses values that make no sense."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from barrier_tck.harness.plan.trial_plan import PLAN_VERSION, TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, nearest, read_json

_AT_LEAST: tuple[tuple[str, int], ...] = (
    ("workload.batches", 0),
    ("workload.batch_records", 1),
    ("workload.keys", 1),
    ("workload.records_per_second", 1),
    ("workload.start_offset", 0),
    ("topology.sources", 1),
    ("topology.keyed", 1),
    ("topology.sinks", 1),
    ("topology.max_parallelism", 1),
    ("topology.executors", 1),
    ("topology.stateful_operators", 1),
    ("checkpoints.interval_ms", 1),
    ("checkpoints.timeout_ms", 1),
    ("checkpoints.min_pause_ms", 0),
    ("checkpoints.max_concurrent", 1),
    ("checkpoints.retained", 1),
    ("checkpoints.tolerated_failures", 0),
    ("checkpoints.async_ms_max", 0),
    ("restart.attempts_max", 0),
    ("restart.delay_ms", 0),
    ("network.latency_ms_max", 0),
    ("network.slow_channel", 0),
    ("network.slow_factor", 1),
    ("network.channel_capacity", 1),
    ("limits.virtual_ms", 1),
    ("limits.wall_s", 1),
    ("limits.progress_ms", 1),
    ("seed", 0),
)
"""Smallest sensible value of each number, by key path."""

_ONE_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("checkpoints.mode", ("exactly_once", "at_least_once")),
    ("restart.strategy", ("none", "fixed_delay")),
    ("on_unreadable", ("fail", "older")),
)
"""Names that a plan may use, by key path. What is added to the product is added here."""

STATE_BACKENDS = ("heap", "rocksdb")
"""Backends by their short names; any other is a target, ``package.module:Factory``."""
_TARGET = re.compile(r"[\w.]+:\w+")


def plan_from(value: object, source: str, path: str = "") -> TrialPlan:
    """Turn plain dictionaries into a plan; raises UsageProblem naming key path, value and nearest key."""
    if not isinstance(value, dict):
        raise UsageProblem(f"{source}: a plan is an object with keys, not {type(value).__name__}")
    version = value.get("version", PLAN_VERSION)
    if isinstance(version, int) and version > PLAN_VERSION:
        raise UsageProblem(
            f"{source}: the plan has version {version}, this program knows versions up to {PLAN_VERSION}; "
            "use the newer barrier-tck that wrote it"
        )
    plan = convert(value, TrialPlan, source, path)
    check_values(plan, source)
    return plan


def read_plan(path: Path) -> TrialPlan:
    """Read a plan from a JSON file; raises UsageProblem if it is missing, malformed, wrong or newer."""
    return plan_from(read_json(path), str(path))


def check_values(plan: TrialPlan, source: str) -> None:
    """Raise UsageProblem for a number out of range or a name that does not exist."""
    for path, minimum in _AT_LEAST:
        number = _value_at(plan, path)
        if number is not None and number < minimum:
            raise UsageProblem(f"{source}: {path} is {number}; it must be {minimum} or more")
    for path, allowed in _ONE_OF:
        name = _value_at(plan, path)
        if name not in allowed:
            raise UsageProblem(f"{source}: {path} is {name!r}{nearest(str(name), allowed)}")
    if plan.state_backend not in STATE_BACKENDS and not _TARGET.fullmatch(plan.state_backend):
        raise UsageProblem(
            f"{source}: state_backend is {plan.state_backend!r}{nearest(plan.state_backend, STATE_BACKENDS)} "
            "(another backend is named package.module:Factory)"
        )
    if plan.topology.keyed > plan.topology.max_parallelism:
        raise UsageProblem(
            f"{source}: topology.keyed is {plan.topology.keyed}, above topology.max_parallelism "
            f"({plan.topology.max_parallelism}) (RSC-2)"
        )


def _value_at(plan: TrialPlan, path: str) -> Any:
    value: Any = plan
    for name in path.split("."):
        value = getattr(value, name)
    return value
