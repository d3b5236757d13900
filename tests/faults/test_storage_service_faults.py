"""The faults of the service that holds checkpoints, on a fake one: carried out, proved, healed, skipped."""

from __future__ import annotations

import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.injectors.connections import Closure
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.throttle_object_store import ThrottleObjectStore
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction, Impairment
from barrier_tck.faults.upload_moment import UploadMoment
from tests.harness.fake_system import FakeStore, FakeTargets

STORE: tuple[Fault, ...] = (
    KillObjectStore(20),
    ThrottleObjectStore(20),
    DelayObjectStore(30, 20),
    CutObjectStore(20),
    FailRequest(),
)


class OneStore(FakeTargets):
    """Exposes the same object store."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__()
        self.store = store

    def object_store(self) -> FakeStore:
        return self.store


@pytest.mark.parametrize("moment", UploadMoment)
def test_a_server_that_died_in_an_upload_is_proved_dead_and_heals_by_starting(moment: UploadMoment) -> None:
    store = FakeStore("the store")
    found = KillObjectStore(20, moment).inject(OneStore(store))
    assert found.fired and found.target == "the store" and store.dies_at is moment and found.heal is not None
    found.heal()
    assert not store.is_dead() and store.started == 1


def test_throttling_is_proved_by_a_refused_request_and_heals() -> None:
    store = FakeStore("the store")
    found = ThrottleObjectStore(20).inject(OneStore(store))
    assert found.fired and store.throttles and found.heal is not None
    found.heal()
    assert not store.throttles


@pytest.mark.parametrize(
    ("fault", "impairment"),
    [
        (DelayObjectStore(30, 20), Latency(latency_ms=30, direction=Direction.BACKWARD)),
        (CutObjectStore(20), Closure()),
    ],
)
def test_connections_with_a_store_are_disturbed_and_healed(fault: Fault, impairment: Impairment) -> None:
    store = FakeStore("the store")
    found = fault.inject(OneStore(store))
    assert found.fired and store.link.impairment == impairment and found.heal is not None
    found.heal()
    assert store.link.impairment is None


def test_what_no_upload_and_no_request_met_did_not_fire_and_is_undone() -> None:
    store = FakeStore("the store", stubborn=True)
    found = KillObjectStore(20).inject(OneStore(store), lambda seconds: None)
    assert found.outcome == "not_fired" and "still alive" in found.reason and store.started == 1
    found = ThrottleObjectStore(20).inject(OneStore(store), lambda seconds: None)
    assert found.outcome == "not_fired" and "none was refused" in found.reason and not store.throttles
    found = KillObjectStore(20).inject(OneStore(FakeStore("the store", gone=True)))
    assert found.outcome == "not_fired" and "no server" in found.reason


@pytest.mark.parametrize("fault", [KillObjectStore(20), ThrottleObjectStore(20)])
def test_where_the_world_stands_still_a_fault_of_a_service_lies_in_wait_for_a_request(fault: Fault) -> None:
    store = FakeStore("the store", stubborn=True, strikes_later=True)
    found = fault.inject(OneStore(store))
    assert found.fired and found.heal is not None and found.met is not None
    assert not found.met()
    store.struck = True
    assert found.met()
    found.heal()
    assert store.dies_at is None and not store.throttles


def test_a_request_that_is_to_fail_is_waited_for_in_either_world_and_nothing_heals() -> None:
    store = FakeStore("the store")
    found = FailRequest(3, carried_out=True).inject(OneStore(store))
    assert found.fired and found.heal is None and found.met is not None and store.failing == (3, True)
    assert not found.met()
    store.struck = True
    assert found.met()


@pytest.mark.parametrize("fault", STORE)
def test_a_store_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault) -> None:
    found = fault.inject(FakeTargets(missing=("object store",)))
    assert found.outcome == "skipped" and "service that holds checkpoints" in found.reason
