"""Injectors prove what they did and say how it heals; packages know every fault of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from barrier_tck.faults.injectors import connections, injection, pauses, processes
from barrier_tck.faults.injectors.copies import harm_copies
from barrier_tck.faults.packages import KILL, KINDS, PACKAGES, Aim, inject, kind_of, tag_of
from barrier_tck.faults.targets import Impairment, ImpairmentKind, ProcessTarget
from barrier_tck.faults.vocabulary import (
    COORDINATOR,
    BlackHoleChannel,
    CrashCoordinator,
    CutChannel,
    Damage,
    DamageLocalCopy,
    DamagePrimary,
    DelayChannel,
    Direction,
    FailLocalWrites,
    FailPrimaryWrites,
    Fault,
    KillExecutor,
    KillWorker,
    LoseHost,
    PartitionExecutor,
    PartitionHalves,
    PauseExecutor,
    PauseWorker,
    Peers,
    ThrottleChannel,
    duration_of,
    label,
    renamed,
    subtasks_of,
)
from tests.harness.fake_system import (
    FakeCopies,
    FakeLink,
    FakePausable,
    FakeProcess,
    FakeStorageUser,
    FakeTargets,
)

KILLS: tuple[Fault, ...] = (KillExecutor("a[0]"), KillWorker("a[0]"), CrashCoordinator(), LoseHost("a[0]"))
PAUSES: tuple[Fault, ...] = (PauseWorker("a[0]", 20), PauseExecutor("a[0]", 20))
CHANNELS: tuple[tuple[Fault, Impairment], ...] = (
    (DelayChannel("a[0]", "b[0]", 30, 20, 5), Impairment(ImpairmentKind.DELAY, Direction.FORWARD, 30, 5)),
    (
        ThrottleChannel("a[0]", COORDINATOR, 900, 20, Direction.BACKWARD),
        Impairment(ImpairmentKind.THROTTLE, Direction.BACKWARD, bytes_per_second=900),
    ),
    (CutChannel("a[0]", "b[0]", 20), Impairment(ImpairmentKind.CUT)),
    (BlackHoleChannel("a[0]", "b[0]", 20), Impairment(ImpairmentKind.BLACK_HOLE)),
)
PARTITIONS: tuple[Fault, ...] = (
    PartitionExecutor("a[0]", Peers.EXECUTORS, 20),
    PartitionHalves(("a[0]", "b[0]"), 20),
)
COPIES: tuple[Fault, ...] = (
    DamageLocalCopy("a[0]", Damage.TRUNCATED),
    DamagePrimary("a[0]"),
    FailLocalWrites("a[0]"),
    FailPrimaryWrites("a[0]", 2),
)
FAULTS: tuple[Fault, ...] = (*KILLS, *PAUSES, *(fault for fault, _ in CHANNELS), *PARTITIONS, *COPIES)


class OneTarget(FakeTargets):
    """Exposes the same process in every role, and the same links for everything."""

    def __init__(self, process: ProcessTarget | None = None, links: Sequence[FakeLink] = ()) -> None:
        super().__init__()
        self.process = process
        self.all_links = list(links)

    def _target(self, role: str, name: str) -> ProcessTarget | None:
        return self.process

    def _links(self, *names: str) -> list[FakeLink]:
        return self.all_links


@pytest.mark.parametrize("fault", KILLS)
def test_a_kill_is_proved_by_a_dead_target_and_does_not_heal(fault: Fault) -> None:
    process = FakeProcess("the victim")
    found = inject(fault, OneTarget(process))
    assert process.dead and found.fired and found.target == "the victim" and found.heal is None


def test_storage_is_hidden_only_from_who_can_be_kept_from_it() -> None:
    plain, user = FakeProcess("the victim"), FakeStorageUser("the victim")
    fault = CrashCoordinator(unreadable_ms=20)
    found = inject(fault, OneTarget(plain))
    assert found.outcome == "skipped" and "storage" in found.reason and not plain.dead
    assert inject(fault, OneTarget(user)).fired and user.dead and user.hidden_ms == 20
    assert label(fault) == "crash coordinator, storage unreadable for 20 ms"


@pytest.mark.parametrize(
    ("fault", "role"), list(zip(KILLS, ("executor", "worker", "coordinator", "host"), strict=True))
)
def test_a_target_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault, role: str) -> None:
    found = inject(fault, FakeTargets(missing=(role,)))
    assert found.outcome == "skipped" and role in found.reason


@pytest.mark.parametrize("fault", [fault for fault, _ in CHANNELS] + list(PARTITIONS))
def test_a_connection_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault) -> None:
    found = inject(fault, FakeTargets(missing=("connection", "connections")))
    assert found.outcome == "skipped" and "connection" in found.reason and "a[0]" in found.reason


def test_a_target_that_was_dead_already_did_not_fire() -> None:
    process = FakePausable("the victim")
    process.dead = True
    for fault in (KillWorker("a[0]"), PauseWorker("a[0]", 20)):
        found = inject(fault, OneTarget(process))
        assert found.outcome == "not_fired" and "already dead" in found.reason


def test_a_target_that_outlives_the_kill_did_not_fire_after_a_bounded_wait() -> None:
    waits: list[float] = []
    process = FakeProcess("the victim", immortal=True)
    found = processes.kill_process(KillWorker("a[0]"), OneTarget(process), waits.append)
    assert found.outcome == "not_fired" and "still alive" in found.reason
    assert len(waits) == injection.PROOF_POLLS_MAX


def test_unsynced_writes_are_lost_only_where_the_fault_says_so() -> None:
    for fault, lost in (
        (KillExecutor("a[0]", True), True),
        (CrashCoordinator(), False),
        (KillWorker("a[0]"), False),
    ):
        process = FakeProcess("the victim")
        inject(fault, OneTarget(process))
        assert process.lost_unsynced is lost


# --- pauses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", PAUSES)
def test_a_pause_is_proved_by_a_target_that_stands_still_and_heals_by_going_on(fault: Fault) -> None:
    process = FakePausable("the victim")
    found = inject(fault, OneTarget(process))
    assert found.fired and process.paused and found.heal is not None
    found.heal()
    assert not process.paused


def test_a_target_that_goes_on_under_a_pause_did_not_fire_and_is_let_go() -> None:
    process = FakePausable("the victim", restless=True)
    found = pauses.pause_process(PAUSES[0], OneTarget(process), lambda seconds: None)
    assert found.outcome == "not_fired" and "still ran" in found.reason and process.resumed == 1


def test_a_process_that_can_only_be_killed_is_not_paused_but_skipped() -> None:
    found = inject(PAUSES[0], OneTarget(FakeProcess("the victim")))
    assert found.outcome == "skipped" and "cannot be paused" in found.reason


# --- connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "impairment"), CHANNELS)
def test_a_disturbed_connection_is_proved_and_healed(fault: Fault, impairment: Impairment) -> None:
    link = FakeLink("a to b")
    found = inject(fault, OneTarget(links=[link]))
    assert found.fired and found.target == "a to b" and link.impairment == impairment
    assert found.heal is not None
    found.heal()
    assert link.impairment is None


@pytest.mark.parametrize("fault", PARTITIONS)
def test_a_partition_swallows_what_passes_on_every_connection(fault: Fault) -> None:
    links = [FakeLink("a to b"), FakeLink("a to c")]
    found = inject(fault, OneTarget(links=links))
    assert found.fired and found.target == "a to b, a to c"
    assert {link.impairment for link in links} == {Impairment(ImpairmentKind.BLACK_HOLE)}


def test_a_partition_of_which_one_connection_is_gone_did_not_fire_and_leaves_nothing() -> None:
    links = [FakeLink("a to b"), FakeLink("a to c", gone=True)]
    found = inject(PARTITIONS[0], OneTarget(links=links))
    assert found.outcome == "not_fired" and [link.impairment for link in links] == [None, None]


def test_a_partition_without_proof_on_one_connection_did_not_fire_and_is_healed() -> None:
    links = [FakeLink("a to b"), FakeLink("a to c", unimpressed=True)]
    found = connections.partition(PARTITIONS[0], OneTarget(links=links), lambda seconds: None)
    assert found.outcome == "not_fired" and "not in force" in found.reason
    assert [link.healed for link in links] == [1, 1]


def test_a_partition_with_nothing_between_its_sides_is_skipped() -> None:
    found = inject(PARTITIONS[0], OneTarget())
    assert found.outcome == "skipped" and "no connection" in found.reason


def test_one_connection_that_cannot_be_healed_does_not_keep_the_others_disturbed() -> None:
    class Stubborn(FakeLink):
        def heal(self) -> None:
            raise OSError("the proxy does not answer")

    healthy = FakeLink("a to c")
    found = inject(PARTITIONS[0], OneTarget(links=[Stubborn("a to b"), healthy]))
    assert found.heal is not None
    with pytest.raises(ExceptionGroup, match="1 of 2 connections"):
        found.heal()
    assert healthy.healed == 1


# --- copies of state ----------------------------------------------------------------------------------------


class OneCopy(FakeTargets):
    """Exposes the same copies as local and durable ones."""

    def __init__(self, copies: FakeCopies) -> None:
        super().__init__()
        self.copies = copies

    def local_copies_of(self, subtask: str) -> FakeCopies:
        return self.copies

    def primary_of(self, subtask: str) -> FakeCopies:
        return self.copies


@pytest.mark.parametrize(
    ("fault", "done"), list(zip(COPIES, (Damage.TRUNCATED, Damage.BIT_FLIPPED, 1, 2), strict=True))
)
def test_a_fault_of_copies_is_proved_by_asking_them_and_does_not_heal(fault: Fault, done: object) -> None:
    copies = FakeCopies("the copies")
    found = inject(fault, OneCopy(copies))
    assert found.fired and found.heal is None and copies.done == [done]


@pytest.mark.parametrize("fault", COPIES)
def test_copies_that_are_not_exposed_are_skipped_with_the_reason(fault: Fault) -> None:
    found = inject(fault, FakeTargets(missing=("local copies", "durable copy")))
    assert found.outcome == "skipped" and "a[0]" in found.reason


@pytest.mark.parametrize("fault", COPIES)
def test_copies_that_stay_intact_did_not_fire_after_a_bounded_wait(fault: Fault) -> None:
    found = harm_copies(fault, OneCopy(FakeCopies("the copies", stubborn=True)), lambda seconds: None)
    assert found.outcome == "not_fired" and "still" in found.reason


def test_where_there_is_no_copy_nothing_fired() -> None:
    found = inject(COPIES[0], OneCopy(FakeCopies("the copies", there=False)))
    assert found.outcome == "not_fired" and "there is none" in found.reason


# --- packages and vocabulary --------------------------------------------------------------------------------


def test_every_fault_of_the_vocabulary_has_a_kind_that_builds_it() -> None:
    assert {type(fault) for fault in FAULTS} == set(get_args(Fault))
    for fault in FAULTS:
        built = kind_of(fault).build(Aim("a[0]"))
        assert type(built) is type(fault) and kind_of(built).tag == tag_of(built)
    assert KILL.targets == ("executor", "worker", "coordinator")


def test_kinds_have_names_of_their_own_and_build_what_their_tag_says() -> None:
    assert len(KINDS) == sum(len(package.kinds) for package in PACKAGES)
    for kind in KINDS.values():
        built = kind.build(Aim("a[0]", "b[0]", duration_ms=7))
        assert tag_of(built) == kind.tag and duration_of(built) in (7, None)


def test_every_fault_names_its_subtasks_and_can_be_aimed_at_others() -> None:
    for fault in FAULTS:
        other = renamed(fault, lambda name: name.replace("[0]", "[1]"))
        assert subtasks_of(other) == tuple(name.replace("[0]", "[1]") for name in subtasks_of(fault))
        assert type(other) is type(fault) and (duration_of(other), label(other) != "") == (
            duration_of(fault),
            True,
        )
