"""The service that keeps the checkpoints of a simulated trial: what becomes of requests, and what faults do to it."""

from __future__ import annotations

import random

import pytest

from barrier_tck.faults.injectors.connections import BlackHole, Closure
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import ObjectStoreTarget, TargetGone
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.storage_service import (
    Fate,
    Server,
    ServiceTarget,
    StorageService,
    ThroughService,
    service_of,
)


def service(seed: int = 0) -> StorageService:
    return StorageService("service", SimulatedDisk().host(), random.Random(seed))


def test_of_what_is_under_way_when_connections_are_closed_some_is_carried_out_and_nothing_later() -> None:
    first = {service_cut(seed).fate() for seed in range(20)}
    assert first == {Fate.UNANSWERED, Fate.LOST}
    one = service_cut(0)
    one.fate()
    assert {one.fate() for _ in range(20)} == {Fate.LOST}


def service_cut(seed: int) -> StorageService:
    made = service(seed)
    made.impair(Closure())
    return made


def test_connections_that_are_open_again_carry_requests() -> None:
    made = service()
    target = ServiceTarget(made)
    target.link.impair(Closure())
    assert target.link.is_impaired()
    made.fate()
    target.link.heal()
    assert not target.link.is_impaired() and made.fate() is Fate.ANSWERED


def test_late_answers_make_a_task_end_later_by_as_much_as_it_made_requests() -> None:
    made = service()
    made.impair(Latency(latency_ms=7))
    assert [made.fate() for _ in range(3)] == [Fate.ANSWERED] * 3
    assert (made.take_late_ms(), made.take_late_ms()) == (21.0, 0.0)


@pytest.mark.parametrize(("carried_out", "fate"), [(True, Fate.UNANSWERED), (False, Fate.LOST)])
def test_one_of_the_requests_that_change_something_gets_no_answer_and_those_behind_it_do(
    carried_out: bool, fate: Fate
) -> None:
    made = service()
    met = ServiceTarget(made).fail_request(2, carried_out)
    assert [made.fate(), made.fate(repeatable=True), made.fate()] == [Fate.ANSWERED] * 3
    assert not met()
    assert made.fate(repeatable=True) is fate
    assert met()
    assert made.fate(repeatable=True) is Fate.ANSWERED


def test_what_no_service_suffers_is_told() -> None:
    with pytest.raises(TargetGone, match="BlackHole"):
        service().impair(BlackHole())


def test_requests_are_refused_until_every_refusal_is_over() -> None:
    made = service()
    first, second = ServiceTarget(made), ServiceTarget(made)
    first.throttle()
    second.throttle()
    assert not first.has_throttled() and made.fate() is Fate.REFUSED and second.has_throttled()
    first.stop_throttling()
    first.stop_throttling()
    assert made.fate() is Fate.REFUSED
    second.stop_throttling()
    assert made.fate() is Fate.ANSWERED and first.has_struck()


@pytest.mark.parametrize("moment", UploadMoment)
def test_a_death_waits_for_its_moment_and_comes_once(moment: UploadMoment) -> None:
    made, server = service(), Server("server")
    target: ObjectStoreTarget = ServiceTarget(made)
    target.kill_in_upload(moment)
    other = next(one for one in UploadMoment if one is not moment)
    assert made.due(other) is None and not target.has_struck()
    strike = made.due(moment)
    assert strike is not None and made.due(moment) is None
    server.die(strike)
    assert (target.is_dead(), server.alive) == (True, False)
    target.start_again()
    assert (target.is_dead(), server.alive) == (False, True) and target.has_struck()


def test_a_death_that_nobody_met_comes_no_more_when_it_is_healed() -> None:
    made = service()
    target = ServiceTarget(made)
    target.kill_in_upload(UploadMoment.PART)
    target.start_again()
    assert made.due(UploadMoment.PART) is None and not target.has_struck()


def test_judges_reach_no_troubles() -> None:
    made, files = service(), SimulatedDisk().host()
    assert service_of(ThroughService(files, made)) is made
    assert service_of(files) is None
