"""Which fields of a plan a system uses; the others keep their defaults, so no record shows a setting without
effect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.optional_interfaces import UsesFieldsOfPlans
from barrier_tck.harness.system.system_under_test import SystemUnderTest

PARTS = ("workload", "deployment", "checkpoints", "restart", "network", "limits")
"""Parts of a plan that have fields of their own."""

_WHOLE = ("job", "savepoints", "rescales", "state_backend", "local_recovery", "on_unreadable", "mutant")
"""Fields that are used as a whole or not at all."""

_OURS = (
    *("workload.name", "workload.batches", "workload.batch_records", "workload.keys"),
    *("deployment.max_parallelism", "limits.progress_ms"),
)
"""Fields that are always used, whatever the system does: they make the input, or the oracle reads them."""


@lru_cache(maxsize=1)
def optional_fields() -> tuple[str, ...]:
    """Return every field that a system may leave unused, for instance ``network.slow_channel``."""
    plan = TrialPlan()
    fields = [f"{part}.{name}" for part in PARTS for name in getattr(plan, part).__struct_fields__]
    return (*(field for field in fields if field not in _OURS), *_WHOLE)


def unused_by(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the fields that a system leaves unused; raises UsageError if it claims to use an unknown field."""
    if not isinstance(system, UsesFieldsOfPlans):
        return ()
    known = (*PARTS, *_OURS, *optional_fields())
    for name in system.uses:
        if name not in known:
            raise UsageError(
                f"{system.name} says that it uses {name!r}, which is no field of a plan{nearest(name, known)}"
            )
    used = tuple(system.uses)
    return tuple(field for field in optional_fields() if field not in used and _part_of(field) not in used)


def without(plan: TrialPlan, unused: Sequence[str]) -> TrialPlan:
    """Return the plan with unused fields reset to their defaults; an unused job becomes the workload's own job."""
    default, changed = TrialPlan(), dict[str, Any]()
    for field in unused:
        part, name = _part_of(field), field.rpartition(".")[2]
        if part == field:
            changed[field] = getattr(default, field)
        else:
            present = changed.get(part, getattr(plan, part))
            value = getattr(getattr(default, part), name)
            changed[part] = msgspec.structs.replace(present, **{name: value})
    return msgspec.structs.replace(plan, **changed) if changed else plan


def set_in(plan: TrialPlan, fields: Sequence[str], own_job: JobPlan) -> tuple[str, ...]:
    """Return those fields whose value is not the default; ``own_job`` is the workload's default job."""
    default = msgspec.structs.replace(
        TrialPlan(), job=plan.job if plan.job in (JobPlan(), own_job) else JobPlan()
    )
    return tuple(field for field in fields if value_of(plan, field) != value_of(default, field))


def value_of(plan: TrialPlan, field: str) -> object:
    """Return the value of a field, for instance ``network.slow_channel``."""
    value: object = plan
    for name in field.split("."):
        value = getattr(value, name)
    return value


def in_short(fields: Sequence[str]) -> str:
    """Return fields as a phrase; a part's name stands for all of its fields, its rest for those that may be unused."""
    shown: dict[str, None] = {}
    for field in fields:
        part = _part_of(field)
        whole = [other for other in optional_fields() if _part_of(other) == part]
        name = f"the rest of {part}" if part in map(_part_of, _OURS) else part
        shown[name if all(other in fields for other in whole) else field] = None
    return ", ".join(shown)


def _part_of(field: str) -> str:
    return field.partition(".")[0]
