"""Aims by role: ``@sink`` is the first sink of a system's job, ``@stateful:1`` is its second stateful subtask.

A plan that is written for any system names subtasks in this way; the system's own names replace them before it runs.
"""

from __future__ import annotations

import re

import msgspec

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.job_view import BY_ROLE, JobView, Role

_AIM = re.compile(rf"{BY_ROLE}(?P<role>[^:]*)(?::(?P<place>\d+))?")


class NoSuchRole(UsageProblem):
    """A job has no subtask with a role, or not that many."""


def by_role(role: Role, place: int = 0) -> str:
    """Return the name with which a plan aims at a subtask by its role; ``place`` counts those with that role from 0."""
    return f"{BY_ROLE}{role.value}" + (f":{place}" if place else "")


def resolved(plan: TrialPlan, view: JobView, system: str) -> TrialPlan:
    """Return the plan with the names of the system's subtasks; raises NoSuchRole if no subtask has the role."""
    faults = tuple(
        scheduled.renamed(lambda name: subtask_named(name, view, system)) for scheduled in plan.faults
    )
    return msgspec.structs.replace(plan, faults=faults)


def subtask_named(name: str, view: JobView, system: str) -> str:
    """Return the subtask that a name means; a name that is no role is returned unchanged."""
    if name == COORDINATOR or not name.startswith(BY_ROLE):
        return name
    aim = _AIM.fullmatch(name)
    roles = [role.value for role in Role]
    if aim is None or aim["role"] not in roles:
        known = [f"{BY_ROLE}{role}" for role in roles]
        raise UsageProblem(f"{name!r} names no role{nearest(name, known)} (the second one is {known[-1]}:1)")
    found, place = view.in_role(Role(aim["role"])), int(aim["place"] or 0)
    if place >= len(found):
        raise NoSuchRole(
            f"{name!r} is number {place + 1} of the subtasks with the role {aim['role']}, of which {system} has "
            f"{len(found)}"
        )
    return found[place]
