"""Injectors prove what they did and say how it heals; every fault says everything that belongs to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from barrier_tck.faults import catalogue
from barrier_tck.faults.catalogue import BY_TAG, KINDS, PACKAGES
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends, Fault, tag_of
from barrier_tck.faults.injectors import injection
from barrier_tck.faults.injectors.connections import BlackHole, Closure
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.exhaust_memory import ExhaustMemory
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.kinds.fail_snapshot import FailSnapshot
from barrier_tck.faults.kinds.forge_acknowledgement import ForgeAcknowledgement
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.limit_channel import ByteLimit, LimitChannel
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.lose_packets import LosePackets
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.refuse_deletions import RefuseDeletions
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.kinds.throttle_channel import RateLimit, ThrottleChannel
from barrier_tck.faults.kinds.throttle_object_store import ThrottleObjectStore
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.packet_loss import PacketLoss
from barrier_tck.faults.targets import (
    COORDINATOR,
    CopiesTarget,
    Damage,
    Direction,
    Forgery,
    Impairment,
    PassingMessage,
    Peers,
    ProcessTarget,
    WriteFault,
)
from tests.harness.fake_system import (
    FakeCopies,
    FakeHost,
    FakeLink,
    FakeMessages,
    FakePausable,
    FakeProcess,
    FakeSavepointStarter,
    FakeStorageUser,
    FakeTargets,
)

KILLS: tuple[Fault, ...] = (
    *(KillExecutor("a[0]"), KillWorker("a[0]"), CrashCoordinator()),
    *(LoseHost("a[0]"), LoseExecutor("a[0]"), ExhaustMemory("a[0]")),
)
PAUSES: tuple[Fault, ...] = (PauseWorker("a[0]", 20), PauseExecutor("a[0]", 20))
CHANNELS: tuple[tuple[Fault, Impairment], ...] = (
    (
        DelayChannel("a[0]", "b[0]", 30, 20, 5),
        Latency(latency_ms=30, jitter_ms=5, direction=Direction.FORWARD),
    ),
    (
        ThrottleChannel("a[0]", COORDINATOR, 900, 20, Direction.BACKWARD),
        RateLimit(bytes_per_second=900, direction=Direction.BACKWARD),
    ),
    (CutChannel("a[0]", "b[0]", 20), Closure()),
    (BlackHoleChannel("a[0]", "b[0]", 20), BlackHole()),
    (LimitChannel("a[0]", "b[0]", 500, 20), ByteLimit(bytes_max=500, direction=Direction.FORWARD)),
)
PARTITIONS: tuple[Fault, ...] = (
    PartitionExecutor("a[0]", Peers.EXECUTORS, 20),
    PartitionHalves(("a[0]", "b[0]"), 20),
)
LOSS = LosePackets("a[0]", 100, 20)
COPIES: tuple[Fault, ...] = (
    DamageLocalCopy("a[0]", Damage.TRUNCATED),
    DamagePrimary("a[0]"),
    FailLocalWrites("a[0]"),
    FailPrimaryWrites("a[0]", 2),
    FailPrimaryWrites("a[0]", 3, metadata=True),
)
MESSAGES = RepeatMessages("a[0]", 3, 20, Direction.FORWARD)
FORGED = ForgeAcknowledgement("a[0]", Forgery.UNKNOWN_SUBTASK)
STORE: tuple[Fault, ...] = (
    KillObjectStore(20),
    ThrottleObjectStore(20),
    DelayObjectStore(30, 20),
    CutObjectStore(20),
    FailRequest(2, carried_out=True),
)
WRITES: tuple[Fault, ...] = (DisturbWrites(WriteFault.FULL, 2), DisturbWrites(WriteFault.SLOW, 2, 40))
DELETIONS = RefuseDeletions(2)
SNAPSHOT = FailSnapshot("totals[0]", 2)
FAULTS: tuple[Fault, ...] = (
    *KILLS,
    *PAUSES,
    *(fault for fault, _ in CHANNELS),
    *PARTITIONS,
    LOSS,
    *COPIES,
    MESSAGES,
    FORGED,
    *STORE,
    *WRITES,
    DELETIONS,
    SNAPSHOT,
)


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
    found = fault.inject(OneTarget(process))
    assert process.dead and found.fired and found.target == "the victim" and found.heal is None


def test_storage_is_hidden_only_from_a_process_that_can_be_kept_from_it() -> None:
    plain, user = FakeProcess("the victim"), FakeStorageUser("the victim")
    fault = CrashCoordinator(unreadable_ms=20)
    found = fault.inject(OneTarget(plain))
    assert found.outcome == "skipped" and "storage" in found.reason and not plain.dead
    assert fault.inject(OneTarget(user)).fired and user.dead and user.hidden_ms == 20
    assert fault.description() == "crash coordinator, storage unreadable for 20 ms"


def test_a_host_comes_back_only_if_it_can_and_an_empty_one_is_there() -> None:
    fault = LoseHost("a[0]", returns=True)
    plain = FakeProcess("the host")
    found = fault.inject(OneTarget(plain))
    assert found.outcome == "skipped" and "come back" in found.reason and not plain.dead
    back, gone = FakeHost("the host"), FakeHost("the host", stays_away=True)
    assert fault.inject(OneTarget(back)).fired and back.dead and back.returns
    found = fault.inject(OneTarget(gone), lambda seconds: None)
    assert found.outcome == "not_fired" and "no empty host" in found.reason
    assert LoseHost("a[0]").inject(OneTarget(back_again := FakeHost("the host"))).fired
    assert not back_again.returns
    assert fault.description() == "lose host of a[0], which comes back empty"


def test_single_files_are_refused_only_by_copies_that_can_do_so() -> None:
    fault = FailLocalWrites("totals[0]", files=2)
    found = fault.inject(FakeTargets())
    assert found.outcome == "skipped" and "single files" in found.reason
    refused: list[int] = []

    class Copies(FakeCopies):
        def refuse_files(self, files: int) -> Callable[[], bool]:
            refused.append(files)
            return lambda: True

    class WithCopies(FakeTargets):
        def local_copies_of(self, subtask: str) -> CopiesTarget:
            return Copies(f"local copies of {subtask}")

    found = fault.inject(WithCopies())
    assert found.fired and found.met is not None and found.met() and refused == [2]
    assert fault.description() == "no local room for 2 files of totals[0]"


def test_deletions_are_refused_if_a_system_lets_them_be() -> None:
    found = RefuseDeletions().inject(FakeTargets(missing=("deletions",)))
    assert found.outcome == "skipped" and "deletions" in found.reason
    found = RefuseDeletions(3).inject(FakeTargets())
    assert found.fired and found.met is not None and not found.met()
    assert RefuseDeletions().description() == "the coordinator's next deletion of checkpoints fails"
    assert RefuseDeletions(3).description() == "the coordinator's next 3 deletions of checkpoints fail"


def test_snapshots_fail_if_a_system_lets_them() -> None:
    found = FailSnapshot("totals[0]").inject(FakeTargets(missing=("snapshots",)))
    assert found.outcome == "skipped" and "snapshots of totals[0]" in found.reason
    found = SNAPSHOT.inject(FakeTargets())
    assert found.fired and found.met is not None and not found.met()
    assert FailSnapshot("totals[0]").description() == "the next snapshot of totals[0] fails"
    assert SNAPSHOT.description() == "the next 2 snapshots of totals[0] fail"


def test_only_a_process_whose_job_can_start_from_a_savepoint_is_started_from_one() -> None:
    plain, starter = FakeProcess("the victim"), FakeSavepointStarter("the victim")
    fault = CrashCoordinator(from_savepoint=True)
    found = fault.inject(OneTarget(plain))
    assert found.outcome == "skipped" and "started again" in found.reason and not plain.dead
    assert fault.inject(OneTarget(starter)).fired and starter.dead and starter.from_savepoint
    assert fault.description() == "crash coordinator, started again from the newest savepoint"


@pytest.mark.parametrize(
    ("fault", "role"),
    list(
        zip(
            KILLS,
            ("executor", "worker", "coordinator", "host", "spare executor", "memory limit"),
            strict=True,
        )
    ),
)
def test_a_target_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault, role: str) -> None:
    found = fault.inject(FakeTargets(missing=(role,)))
    assert found.outcome == "skipped" and role in found.reason


@pytest.mark.parametrize("fault", [fault for fault, _ in CHANNELS] + [*PARTITIONS, LOSS])
def test_a_connection_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault) -> None:
    found = fault.inject(FakeTargets(missing=("connection", "connections")))
    assert found.outcome == "skipped" and "connection" in found.reason and "a[0]" in found.reason


def test_a_target_that_was_dead_already_did_not_fire() -> None:
    process = FakePausable("the victim")
    process.dead = True
    for fault in (KillWorker("a[0]"), PauseWorker("a[0]", 20)):
        found = fault.inject(OneTarget(process))
        assert found.outcome == "not_fired" and "already dead" in found.reason


def test_a_target_that_outlives_the_kill_did_not_fire_after_a_bounded_wait() -> None:
    waits: list[float] = []
    process = FakeProcess("the victim", immortal=True)
    found = KillWorker("a[0]").inject(OneTarget(process), waits.append)
    assert found.outcome == "not_fired" and "still alive" in found.reason
    assert len(waits) == injection.PROOF_POLLS_MAX


def test_unsynced_writes_are_lost_only_where_the_fault_says_so() -> None:
    for fault, lost in (
        (KillExecutor("a[0]", True), True),
        (CrashCoordinator(), False),
        (KillWorker("a[0]"), False),
    ):
        process = FakeProcess("the victim")
        fault.inject(OneTarget(process))
        assert process.lost_unsynced is lost


# --- pauses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", PAUSES)
def test_a_pause_is_proved_by_a_target_that_stands_still_and_heals_by_going_on(fault: Fault) -> None:
    process = FakePausable("the victim")
    found = fault.inject(OneTarget(process))
    assert found.fired and process.paused and found.heal is not None
    found.heal()
    assert not process.paused


def test_a_pause_under_which_the_target_goes_on_did_not_fire_and_is_undone() -> None:
    process = FakePausable("the victim", restless=True)
    found = PAUSES[0].inject(OneTarget(process), lambda seconds: None)
    assert found.outcome == "not_fired" and "still ran" in found.reason and process.resumed == 1


def test_a_process_that_can_only_be_killed_is_not_paused_but_skipped() -> None:
    found = PAUSES[0].inject(OneTarget(FakeProcess("the victim")))
    assert found.outcome == "skipped" and "cannot be paused" in found.reason


# --- connections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "impairment"), CHANNELS)
def test_a_disturbed_connection_is_proved_and_healed(fault: Fault, impairment: Impairment) -> None:
    link = FakeLink("a to b")
    found = fault.inject(OneTarget(links=[link]))
    assert found.fired and found.target == "a to b" and link.impairment == impairment
    assert found.heal is not None
    found.heal()
    assert link.impairment is None


@pytest.mark.parametrize("fault", PARTITIONS)
def test_a_partition_swallows_what_passes_on_every_connection(fault: Fault) -> None:
    links = [FakeLink("a to b"), FakeLink("a to c")]
    found = fault.inject(OneTarget(links=links))
    assert found.fired and found.target == "a to b, a to c"
    assert {link.impairment for link in links} == {BlackHole()}


def test_a_partition_with_one_connection_gone_did_not_fire_and_leaves_nothing() -> None:
    links = [FakeLink("a to b"), FakeLink("a to c", gone=True)]
    found = PARTITIONS[0].inject(OneTarget(links=links))
    assert found.outcome == "not_fired" and [link.impairment for link in links] == [None, None]


def test_packets_are_lost_on_every_connection_of_a_host_until_the_fault_heals() -> None:
    links = [FakeLink("a to b"), FakeLink("a to c")]
    found = LOSS.inject(OneTarget(links=links))
    assert found.fired and {link.impairment for link in links} == {
        PacketLoss(per_mille=100, lasts_ms=LOSS.duration_ms)
    }
    assert found.heal is not None
    found.heal()
    assert {link.impairment for link in links} == {None}
    with pytest.raises(ValueError, match="partition the executor"):
        LosePackets("a[0]", 901, 20)


def test_what_was_lost_comes_later_each_time_after_twice_as_long() -> None:
    message = PassingMessage(sent_ms=0.0, arrives_ms=5.0, line_free_ms=0.0, size=1, passed=0)
    draws = iter([0.05, 0.09, 0.5])
    loss = PacketLoss(per_mille=100, lasts_ms=1_000)
    assert loss.fate(message, lambda: next(draws)) == 5.0 + 20.0 + 40.0
    assert loss.fate(message, lambda: 0.1) == 5.0


@pytest.mark.parametrize("lasts_ms", [1, 19, 20, 56, 61, 500])
def test_what_is_sent_again_after_packets_were_lost_arrives(lasts_ms: int) -> None:
    message = PassingMessage(sent_ms=0.0, arrives_ms=5.0, line_free_ms=0.0, size=1, passed=0)
    late_ms = PacketLoss(per_mille=900, lasts_ms=lasts_ms).fate(message, lambda: 0.0) - 5.0
    # It is sent again after 20, 60, 140, ... ms: the first time that is not before the end of the fault.
    again_ms = next(20.0 * (2**times - 1) for times in range(1, 10) if 20.0 * (2**times - 1) >= lasts_ms)
    assert late_ms == again_ms <= LosePackets("a[0]", 900, lasts_ms).lingers_ms


def test_a_partition_without_proof_on_one_connection_did_not_fire_and_is_healed() -> None:
    links = [FakeLink("a to b"), FakeLink("a to c", unimpressed=True)]
    found = PARTITIONS[0].inject(OneTarget(links=links), lambda seconds: None)
    assert found.outcome == "not_fired" and "not in force" in found.reason
    assert [link.healed for link in links] == [1, 1]


def test_a_partition_with_nothing_between_its_sides_is_skipped() -> None:
    found = PARTITIONS[0].inject(OneTarget())
    assert found.outcome == "skipped" and "no connection" in found.reason


def test_one_connection_that_cannot_be_healed_does_not_keep_the_others_disturbed() -> None:
    class Stubborn(FakeLink):
        def heal(self) -> None:
            raise OSError("the proxy does not answer")

    healthy = FakeLink("a to c")
    found = PARTITIONS[0].inject(OneTarget(links=[Stubborn("a to b"), healthy]))
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

    def metadata(self) -> FakeCopies:
        return self.copies


@pytest.mark.parametrize(
    ("fault", "done"), list(zip(COPIES, (Damage.TRUNCATED, Damage.BIT_FLIPPED, 1, 2, 3), strict=True))
)
def test_a_fault_of_copies_is_proved_by_asking_them_and_does_not_heal(fault: Fault, done: object) -> None:
    copies = FakeCopies("the copies")
    found = fault.inject(OneCopy(copies))
    assert found.fired and found.heal is None and copies.done == [done]


@pytest.mark.parametrize("fault", COPIES)
def test_copies_that_are_not_exposed_are_skipped_with_the_reason(fault: Fault) -> None:
    found = fault.inject(FakeTargets(missing=("local copies", "durable copy")))
    assert found.outcome == "skipped" and ("metadata" if fault.fails_metadata else "a[0]") in found.reason


@pytest.mark.parametrize("fault", COPIES)
def test_copies_that_stay_intact_did_not_fire_after_a_bounded_wait(fault: Fault) -> None:
    found = fault.inject(OneCopy(FakeCopies("the copies", stubborn=True)), lambda seconds: None)
    assert found.outcome == "not_fired" and "still" in found.reason


def test_damage_did_not_fire_if_there_is_no_copy() -> None:
    found = COPIES[0].inject(OneCopy(FakeCopies("the copies", there=False)))
    assert found.outcome == "not_fired" and "there is none" in found.reason


# --- messages -----------------------------------------------------------------------------------------------


class OneSubtask(FakeTargets):
    """Exposes the same messages for every subtask."""

    def __init__(self, messages: FakeMessages) -> None:
        super().__init__()
        self.messages = messages

    def messages_of(self, subtask: str) -> FakeMessages:
        return self.messages


def test_messages_that_come_twice_are_proved_by_asking_and_come_once_when_healed() -> None:
    messages = FakeMessages("the messages")
    found = MESSAGES.inject(OneSubtask(messages))
    assert found.fired and messages.repeated == (Direction.FORWARD, 3.0) and found.heal is not None
    found.heal()
    assert not messages.is_repeating() and messages.stopped == 1


def test_messages_that_still_come_once_did_not_fire_after_a_bounded_wait() -> None:
    messages = FakeMessages("the messages", stubborn=True)
    found = MESSAGES.inject(OneSubtask(messages), lambda seconds: None)
    assert found.outcome == "not_fired" and "not repeated" in found.reason and messages.stopped == 1


def test_a_forged_acknowledgement_is_proved_by_asking_and_does_not_heal() -> None:
    messages = FakeMessages("the messages")
    found = FORGED.inject(OneSubtask(messages))
    assert found.fired and messages.forged == [Forgery.UNKNOWN_SUBTASK] and found.heal is None


def test_a_forged_acknowledgement_that_is_not_handed_over_did_not_fire() -> None:
    found = FORGED.inject(OneSubtask(FakeMessages("the messages", stubborn=True)), lambda seconds: None)
    assert found.outcome == "not_fired" and "not handed over" in found.reason


@pytest.mark.parametrize("fault", [MESSAGES, FORGED])
def test_messages_that_are_not_exposed_are_skipped_with_the_reason(fault: Fault) -> None:
    found = fault.inject(FakeTargets(missing=("messages",)))
    assert found.outcome == "skipped" and "messages of a[0]" in found.reason


# --- what a fault says of itself ----------------------------------------------------------------------------

AIM = Aim("a[0]", ("b[0]", COORDINATOR), duration_ms=(7, 7))


def test_every_fault_of_the_catalogue_is_tried_here() -> None:
    assert {type(fault) for fault in FAULTS} == set(catalogue.FAULTS)


def test_kinds_have_distinct_names_and_draw_their_own_fault() -> None:
    assert len(KINDS) == sum(len(fault.drawn_as) for fault in catalogue.FAULTS)
    assert sum(len(kinds) for kinds in PACKAGES.values()) == len(KINDS)
    for kind in KINDS.values():
        drawn = kind.fault.drawn(Plainest(), AIM)
        assert type(drawn) is kind.fault and drawn.heals_after_ms in (7, None)
    assert [kind.fault.needs.value for kind in PACKAGES["kill"]] == ["executor", "worker", "coordinator"]


@pytest.mark.parametrize("fault", catalogue.FAULTS)
def test_every_fault_says_its_contract_its_names_and_its_looks(fault: type[Fault]) -> None:
    assert fault.__doc__ is not None and "Contract" in fault.__doc__
    assert fault.label and re.fullmatch("#[0-9a-f]{6}", fault.colour)
    assert fault.drawn_as and BY_TAG[tag_of(fault)] is fault
    assert bool(fault.shown_as) is ("duration_ms" in fault.__struct_fields__)


def test_no_two_faults_look_alike_or_share_a_label() -> None:
    for looks in ([fault.colour for fault in catalogue.FAULTS], [fault.label for fault in catalogue.FAULTS]):
        assert len(set(looks)) == len(looks)


def test_only_faults_that_end_a_process_at_once_are_drawn_to_cause_a_restore() -> None:
    ending = [fault for fault in FAULTS if fault.ends is not None]
    assert ending == list(KILLS)
    assert [fault for fault in FAULTS if fault.ends is Ends.COORDINATOR] == [CrashCoordinator()]


def test_every_fault_names_its_subtasks_and_can_be_aimed_at_others() -> None:
    for fault in FAULTS:
        other = fault.renamed(lambda name: name.replace("[0]", "[1]"))
        assert other.subtasks == tuple(name.replace("[0]", "[1]") for name in fault.subtasks)
        assert (
            type(other) is type(fault)
            and other.heals_after_ms == fault.heals_after_ms
            and other.description()
        )


def test_a_partition_whose_subtasks_get_one_name_names_it_once() -> None:
    assert PartitionHalves(("a[0]", "b[0]"), 20).renamed(lambda name: "c[0]").subtasks == ("c[0]",)


def test_times_and_bytes_grow_with_the_world_and_nothing_else() -> None:
    delay = DelayChannel("a[0]", "b[0]", 30, 20, 5).scaled(10, 100)
    assert delay == DelayChannel("a[0]", "b[0]", 300, 200, 50)
    assert ThrottleChannel("a[0]", COORDINATOR, 900, 20).scaled(10, 100) == ThrottleChannel(
        "a[0]", COORDINATOR, 90_000, 200
    )
    assert FailPrimaryWrites("a[0]", 2).scaled(10, 100) == FailPrimaryWrites("a[0]", 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_simpler_faults_are_of_their_kind_and_do_less(fault: Fault) -> None:
    for simpler in fault.simpler():
        assert type(simpler) is type(fault) and simpler.subtasks == fault.subtasks
        assert simpler.magnitudes() < fault.magnitudes()


def test_a_simpler_fault_loses_nothing_lasts_less_or_comes_less_often() -> None:
    crash = CrashCoordinator(lose_unsynced=True, unreadable_ms=4)
    assert CrashCoordinator(unreadable_ms=4) in list(crash.simpler())
    assert [fault.unreadable_ms for fault in crash.simpler()] == [4, 0, 2, 3]
    assert [fault.checkpoints for fault in FailPrimaryWrites("a[0]", 3).simpler()] == [1, 2]
    assert list(KillWorker("a[0]").simpler()) == []
    # Fewer bytes per second do not make the fault smaller.
    assert {fault.bytes_per_second for fault in ThrottleChannel("a[0]", "b[0]", 9, 3).simpler()} == {9}
