"""Reads plans and refuses values that make no sense."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.plan.backend_targets import backend_target
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.plan.trial_plan import PLAN_VERSION, TrialPlan
from barrier_tck.harness.plan.version_1 import upgraded
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, read_json


def plan_from(value: object, source: str, path: str = "") -> TrialPlan:
    """Turn plain dictionaries into a plan; raises UsageProblem with the key path, the value and the nearest key."""
    if not isinstance(value, dict):
        raise UsageProblem(f"{source}: a plan is an object with keys, not {type(value).__name__}")
    version = value.get("version", PLAN_VERSION)
    if isinstance(version, int) and version > PLAN_VERSION:
        raise UsageProblem(
            f"{source}: the plan has version {version}, but this program knows only versions up to {PLAN_VERSION}; "
            "use the newer barrier-tck that wrote it"
        )
    plan = convert(upgraded(value) if version == 1 else value, TrialPlan, source, path)
    check_names(plan, source)
    return plan


def read_plan(path: Path) -> TrialPlan:
    """Read a plan from a JSON file; raises UsageProblem if it is missing, malformed, wrong or of a newer version."""
    return plan_from(read_json(path), str(path))


def check_names(plan: TrialPlan, source: str) -> None:
    """Raise UsageProblem for a state backend or a checkpoint storage that is neither a short name nor a target."""
    try:
        backend_target(plan.state_backend)
        storage_target(plan.checkpoints.storage)
    except UsageProblem as problem:
        raise UsageProblem(f"{source}: {problem}") from problem
