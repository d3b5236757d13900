"""Replaces faults by plain failures: what a bug needs is often just that an attempt fails, whatever makes it fail."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import JobView

PLAIN: tuple[type[Fault], ...] = tuple(kind for kind in FAULTS if kind.plain_failure)
"""The kinds that do nothing but end what they name."""


def is_plain(fault: Fault) -> bool:
    """Whether a fault is a plain failure."""
    return fault.plain_failure and not fault.loses_unsynced


def plainer(scheduled: ScheduledFault, view: JobView) -> Iterator[ScheduledFault]:
    """Yield plain failures at the same moment, of what the fault hits, or of the subtask whose moment it waits for."""
    if is_plain(scheduled.fault) or not view.subtasks:
        return
    trigger = scheduled.trigger
    waits_for = trigger.subtask if isinstance(trigger, After) else None
    named = (*scheduled.fault.subtasks, *((waits_for,) if waits_for in view.by_name else ()))
    subtask = next(iter(named), view.subtasks[0].name)
    for kind in PLAIN:
        fault: Fault = msgspec.convert({"type": tag_of(kind), "subtask": subtask}, kind)
        yield msgspec.structs.replace(scheduled, fault=fault)


def all_plain(plan: TrialPlan, view: JobView) -> TrialPlan:
    """Return the plan with nothing but plain failures."""
    faults = tuple(next(plainer(scheduled, view), scheduled) for scheduled in plan.faults)
    return msgspec.structs.replace(plan, faults=faults)
