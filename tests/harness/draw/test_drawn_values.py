"""What is drawn covers what there is: each choice of a fault, each point, each field of a plan, each length of numbers.

A value that is never drawn makes no trial INVALID; it is only that nobody tests it any more. So nothing here asks a
profile what it wants to draw: the vocabulary says what must be drawn, and every exception has its reason.

Grain: drawn plans and faults; no trial is run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
import pytest

from barrier_tck.faults.catalogue import FAULTS, KINDS
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.fields import Number, meanings
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.targets import COORDINATOR, Damage, Peers, TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.drawn_graph import keeps_lists
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.plan.storage_targets import SERVED
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.dataflow_model import windows_of
from barrier_tck.harness.workloads.kinds.window import KIND as WINDOW

_Option = TypeVar("_Option")

PLANS = {
    "standard": 260,
    "at-least-once": 30,
    "modes": 60,
    "savepoints": 30,
    "rescale": 60,
    "chains": 60,
    "incremental": 40,
    "large-state": 40,
    "chandy-lamport": 40,
}
"""How many plans are drawn from each of these profiles, which together are to draw all that the simulator can show."""


@cache
def plans() -> tuple[TrialPlan, ...]:
    """Draw plans for the simulator. That takes seconds, so no import does."""
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    return tuple(
        plan
        for name, number in PLANS.items()
        for plan in draw_plans(4, number, profile_named(name), constraints)
    )


# --- faults -------------------------------------------------------------------------------------------------


class Dice:
    """Chooses by chance, always the same from the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def between(self, bounds: tuple[int, int]) -> int:
        return self._random.randint(*bounds)

    def one_of(self, options: Sequence[_Option]) -> _Option:
        return self._random.choice(options)

    def chance(self, per_mille: int) -> bool:
        return self._random.randrange(1_000) < per_mille


AIM = Aim(
    "totals[1]",
    receivers=("sink[0]", "sink[1]", COORDINATOR),
    peers=tuple(Peers),
    duration_ms=(5, 120),
    latency_ms=(1, 60),
    bytes_per_second=(2_000, 10_000),
    lose_unsynced_per_mille=250,
    unreadable_per_mille=200,
    returns_per_mille=500,
    from_savepoint_per_mille=200,
    some_files_per_mille=300,
    requests=(1, 3),
    checkpoints=3,
    damages=tuple(Damage),
)
"""An aim that leaves every choice."""
OF_THE_AIM = ("FailPrimaryWrites.checkpoints", "FailSnapshot.checkpoints")
"""Fields that are taken from the aim as they are."""


def suffers(fault: type[Fault], damage: Damage) -> bool:
    """Return whether a fault of copies can do this damage; others do none."""
    try:
        fault.drawn(Dice(0), replace(AIM, damages=(damage,)))
    except ValueError:
        return False
    return True


def options_of(kind: Any) -> set[Any]:
    """Return all values of a type that has few; nothing for any other."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return set(kind)
    if kind is bool:
        return {False, True}
    inner = [options_of(part) for part in get_args(kind) if part is not type(None)]
    return set().union(*inner)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_every_choice_that_a_fault_has_is_drawn(fault: type[Fault]) -> None:
    damages = tuple(damage for damage in Damage if suffers(fault, damage))
    aim = replace(AIM, damages=damages)
    drawn = [fault.drawn(Dice(seed), aim) for seed in range(400)]
    for field, kind in meanings(fault).items():
        name = f"{fault.__name__}.{field}"
        values = {getattr(one, field) for one in drawn}
        if name in OF_THE_AIM:
            assert values == {getattr(aim, field)}
        elif isinstance(kind, Number):
            assert len(values) > 1, f"{name} is always {values}"
            assert kind.least or 0 in values, f"{name} is never 0, which means: not at all"
        else:
            options = set(damages) if kind is Damage else options_of(kind)
            assert options <= values, f"{name} is never {options - values}"


NOT_DRAWN = {
    TargetKind.DELETIONS: "a scenario draws that fault, where deletions are certain to follow",
    TargetKind.SNAPSHOTS: "a scenario draws that fault, where snapshots are certain to follow",
    TargetKind.CAPACITY: "elastic plans add that fault themselves",
    TargetKind.OBJECT_STORE: "it needs checkpoints in a service; the profile object-store draws it",
}
"""What a fault needs -> why no profile draws it beside the others."""


def test_every_kind_of_fault_that_the_simulator_can_suffer_has_a_weight() -> None:
    exposed = targets_of(ReferenceSimulated())
    for kind in KINDS.values():
        if kind.fault.needs in exposed and kind.fault.needs not in NOT_DRAWN:
            assert kind.drawn_as.weight > 0, f"{kind.name} is drawn by no profile that draws everything"


def test_every_fault_of_a_storage_service_is_drawn_by_the_profile_that_is_there_for_it() -> None:
    weights = dict(profile_named("object-store").faults.kinds)
    of_services = [kind.name for kind in KINDS.values() if kind.fault.needs is TargetKind.OBJECT_STORE]
    assert len(of_services) == 5
    assert [name for name in of_services if weights.get(name, 0) == 0] == []


@pytest.mark.parametrize("storage", SERVED)
def test_plans_are_drawn_in_which_one_request_to_a_storage_service_gets_no_answer(storage: str) -> None:
    """Whether it is carried out or not: only then does the request that is sent again find what it did itself."""
    system, profile = ReferenceSimulated(), profile_named("object-store")
    profile = replace(profile, checkpoints=replace(profile.checkpoints, storages=(storage,)))
    drawn = draw_plans(4, 60, profile, Constraints(system.job, system.capabilities))
    assert {plan.checkpoints.storage for plan in drawn} == {storage}
    failing = [planned.fault for plan in drawn for planned in plan.faults if planned.fault.waits_for_request]
    assert {tag_of(type(fault)) for fault in failing} == {"fail_request"}
    assert {fault.carried_out for fault in failing if isinstance(fault, FailRequest)} == {False, True}


AIMED_BY_NOBODY = {
    ProtocolPoint.CHECKPOINT_ABORTED: "no plan is sure that a checkpoint fails",
}
"""Point -> why no fault is aimed at it. What is drawn after all needs no excuse."""


@pytest.mark.nightly
def test_a_fault_is_aimed_at_every_point_of_the_protocol() -> None:
    aimed = {
        scheduled.trigger.point
        for plan in plans()
        for scheduled in plan.faults
        if isinstance(scheduled.trigger, After)
    }
    assert [point.value for point in ProtocolPoint if point not in aimed] == [
        point.value for point in AIMED_BY_NOBODY
    ]


# --- plans --------------------------------------------------------------------------------------------------

GIVEN = {
    "version": "there is one",
    "note": "words",
    "mutant": "a planted bug is nothing to draw",
    "patch": "a planted bug is nothing to draw",
    "system": "the reference systems have no settings",
    "limits": "bounds of the harness",
    "faults": "see above",
    "job": "drawn as a graph, see the tests of graphs",
    "rescales": "as many as there are stops",
    "checkpoints.enabled": "a trial without checkpoints is for the suite",
    "checkpoints.storage": "the campaign's",
    "checkpoints.local_compression": "follows the compression",
    "restart.attempts_max": "as many as the faults need",
    "deployment.slots_per_executor": "counted for elastic jobs",
    "deployment.fixed_vertices": "in a hundredth of the plans of one profile",
}
"""Part or field of a plan -> why nothing is drawn for it, or nothing that is asked for here."""


def fields_of(struct: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every field of a plan with its value, those of its parts by their paths."""
    for name in struct.__struct_fields__:
        path, value = f"{prefix}{name}", getattr(struct, name)
        if path in GIVEN:
            continue
        parts = [
            part
            for part in (value if isinstance(value, tuple) else (value,))
            if isinstance(part, msgspec.Struct)
        ]
        for part in parts:
            yield from fields_of(part, f"{path}.")
        if not isinstance(value, msgspec.Struct):
            yield path, len(parts) or value


def always_the_same(drawn: Sequence[TrialPlan]) -> list[str]:
    """Return the fields that have one value in all of these plans."""
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for plan in drawn:
        for path, value in fields_of(plan):
            values[path][repr(value)] = None
    return [path for path, found in values.items() if len(found) < 2]


IN_OTHER_PROFILES = (
    *("savepoints.claim", "network.buffer_bytes"),
    *("deployment.slow_vertex", "deployment.slow_batch_ms"),
    *(
        "checkpoints.mode",
        "checkpoints.alignment_timeout_ms",
        "checkpoints.protocol",
        "checkpoints.initiators",
    ),
)
"""Fields that ``standard`` leaves as they are: each of them makes another kind of trial, which has a profile."""
OF_A_STRATEGY = ("network.change_points",)
"""Fields that no profile draws, but the strategy pct (``test_search.py``)."""


@pytest.mark.long
def test_every_field_of_a_plan_varies_and_most_of_them_in_the_default_profile() -> None:
    assert always_the_same(plans()) == [*OF_A_STRATEGY]
    in_default = plans()[: PLANS["standard"]]
    assert set(always_the_same(in_default)) == {*IN_OTHER_PROFILES, *OF_A_STRATEGY}


LONGER_FROM = (10, 100, 1_000, 2**31, 2**32)
"""Where an id gets one more digit, or no longer fits where it was put."""
SOON = 3
"""A checkpoint beyond such a number must be among the first ones of its trial, since later ones may never come."""


@pytest.mark.nightly
@pytest.mark.parametrize("longer", LONGER_FROM)
def test_ids_cross_the_places_where_numbers_get_longer(longer: int) -> None:
    firsts = [plan.checkpoints.first_id for plan in plans()]
    assert sum(longer - SOON <= first < longer for first in firsts) >= len(firsts) / 50


def test_jobs_are_drawn_with_more_than_ten_subtasks_of_a_vertex() -> None:
    graphs = draw_plans(12, 40, profile_named("graphs"))
    assert any(vertex.parallelism > 10 for plan in graphs for vertex in plan.job.vertices)


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["graphs", "rescale"])
def test_operators_keep_lists_and_hold_records_back_only_in_systems_that_can(profile: str) -> None:
    system = ReferenceSimulated()
    for missing in (None, Capability.OPERATOR_LISTS, Capability.OPERATOR_TIMERS):
        constraints = Constraints(system.job, system.capabilities - {missing})
        jobs = [plan.job for plan in draw_plans(18, 40, profile_named(profile), constraints)]
        assert any(map(keeps_lists, jobs)) is (missing is not Capability.OPERATOR_LISTS), missing
        assert any(map(windows_of, jobs)) is (missing is not Capability.OPERATOR_TIMERS), missing


@pytest.mark.long
def test_what_else_is_drawn_does_not_depend_on_windows() -> None:
    """They are drawn last. So a profile with windows shows what it showed without, in other jobs."""
    profile, system = profile_named("graphs"), ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    without = profile.with_shares(windows=0)
    changed = 0
    for seed in range(30):
        plan, plain = (draw_plan(seed, one, constraints) for one in (profile, without))
        changed += plan.job != plain.job
        assert msgspec.structs.replace(plan, job=plain.job) == plain
    assert changed > 5


def test_no_operator_in_a_loop_holds_records_back() -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    profile = profile_named("loops").with_shares(windows=1_000)
    drawn = [plan.job for plan in draw_plans(19, 40, profile, constraints) if plan.job.loops]
    assert any(windows_of(job) for job in drawn)
    for job in drawn:
        looped = [job.vertex(name) for loop in job.loops for name in loop]
        assert all(operator.kind != WINDOW.name for vertex in looped for operator in vertex.operators)


@pytest.mark.long
def test_windows_are_drawn_wherever_an_operator_may_stand() -> None:
    """At the head of a chain and behind it, twice in one chain, and over several inputs."""
    jobs = [plan.job for plan in draw_plans(21, 240, profile_named("graphs").with_shares(windows=1_000))]
    chains = [[operator.kind for operator in vertex.operators] for job in jobs for vertex in job.vertices]
    assert any(kinds[0] == WINDOW.name for kinds in chains)
    assert any(WINDOW.name in kinds[1:] for kinds in chains)
    assert any(kinds.count(WINDOW.name) > 1 for kinds in chains)
    several = [
        vertex
        for job in jobs
        for vertex in job.vertices
        if vertex.kind == WINDOW.name and len({edge.input for edge in job.inputs_of(vertex.name)}) > 1
    ]
    assert several
