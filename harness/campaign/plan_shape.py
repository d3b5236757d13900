"""The shape of a plan: what a plan has that others have not, coarse enough that one bug has one shape.

The shape of the *smallest* plan that shows a failure says what it needs: the effects of its faults, savepoints, a mode,
a storage. Kinds of fault with the same effect on the job count as one, because any of them may uncover the same bug.
Numbers, times, subtasks and operators differ from trial to trial and are no part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from barrier_tck.faults.fault import Ends, Fault, OnProgress
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import NO_SHAPE

Shape = tuple[str, ...]
"""The names of traits, in the order of ``TRAITS`` and then of faults."""


@dataclass(frozen=True, slots=True)
class Trait:
    """Something that a plan may have, and how to take it away."""

    name: str
    has: Callable[[TrialPlan], bool]
    without: Callable[[TrialPlan], TrialPlan | None]
    """Return the plan without it; None if that would be another job."""


def _unless_default(name: str, part: str, *fields: str) -> Trait:
    """Return the trait that fields of a part, or of the plan if the part is empty, are not what they usually are."""
    usual = getattr(TrialPlan(), part) if part else TrialPlan()

    def has(plan: TrialPlan) -> bool:
        actual = getattr(plan, part) if part else plan
        return any(getattr(actual, field) != getattr(usual, field) for field in fields)

    def without(plan: TrialPlan) -> TrialPlan | None:
        values = {field: getattr(usual, field) for field in fields}
        if not part:
            return _replaced(plan, values)
        try:
            return _replaced(plan, {part: msgspec.structs.replace(getattr(plan, part), **values)})
        except ValueError:
            return None

    return Trait(name, has, without)


def _replaced(plan: TrialPlan, values: dict[str, object]) -> TrialPlan | None:
    try:
        return msgspec.structs.replace(plan, **values)
    except ValueError:  # a field goes together with another one
        return None


_OF_CHECKPOINTS = (
    ("another mode", ("mode", "alignment_timeout_ms")),
    ("Chandy-Lamport", ("protocol", "initiators")),
    ("incremental checkpoints", ("incremental",)),
    ("compressed snapshots", ("compression", "local_compression")),
    ("copies in memory", ("local_copies",)),
    ("another storage", ("storage",)),
    ("several checkpoints at once", ("max_concurrent",)),
    ("no checkpoints", ("enabled",)),
)
_OF_DEPLOYMENT = (
    ("an elastic job", ("elastic_wait_ms", "slots_per_executor", "replaced_after_ms", "fixed_vertices")),
    ("a cache of keys", ("cached_keys", "write_through")),
)

TRAITS: tuple[Trait, ...] = (
    _unless_default("savepoints", "", "savepoints", "rescales"),
    _unless_default("rescaling", "", "rescales"),
    Trait("a loop", lambda plan: bool(plan.job.loops), lambda _: None),
    *(_unless_default(name, "checkpoints", *fields) for name, fields in _OF_CHECKPOINTS),
    *(_unless_default(name, "deployment", *fields) for name, fields in _OF_DEPLOYMENT),
    _unless_default("another state backend", "", "state_backend"),
    _unless_default("local recovery", "", "local_recovery"),
    _unless_default("an older checkpoint", "", "on_unreadable"),
)
"""What plans differ in, other than faults."""


_WITHOUT_A_HEARTBEAT = (TargetKind.PARTITION, TargetKind.PAUSE, TargetKind.CHANNEL)
"""If one of these stands still, the attempt fails: nothing is heard of its subtasks."""


def effect_of(fault: Fault) -> str:
    """Return what a fault does to a job, in words."""
    if fault.ends is Ends.COORDINATOR:
        return "a coordinator fails"
    if fault.ends is not None or fault.on_progress is OnProgress.FAILS_AN_ATTEMPT:
        return "an attempt fails"
    if fault.on_progress is OnProgress.NOTHING:
        return f"{fault.needs.value} is disturbed"
    if fault.on_progress is OnProgress.STOPS and fault.needs in _WITHOUT_A_HEARTBEAT:
        return "an attempt fails"
    return f"{fault.needs.value} {'slows' if fault.on_progress is OnProgress.SLOWS else 'stops'}"


def shape_of(plan: TrialPlan) -> Shape:
    """Return the shape of a plan."""
    effects = sorted({effect_of(scheduled.fault) for scheduled in plan.faults})
    return (*(trait.name for trait in TRAITS if trait.has(plan)), *effects)


def in_words(shape: Shape) -> str:
    """Return a shape as a phrase."""
    return ", ".join(shape) or NO_SHAPE


def reduced_to(plan: TrialPlan, shape: Shape) -> TrialPlan | None:
    """Return the plan without what the shape has not; None if it lacks part of the shape, or cannot be reduced."""
    if not set(shape) <= set(shape_of(plan)):
        return None
    faults = tuple(scheduled for scheduled in plan.faults if effect_of(scheduled.fault) in shape)
    reduced: TrialPlan | None = msgspec.structs.replace(plan, faults=faults)
    for trait in TRAITS:
        if reduced is not None and trait.has(reduced) and trait.name not in shape:
            reduced = trait.without(reduced)
    return reduced
