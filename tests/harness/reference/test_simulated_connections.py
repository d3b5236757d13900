"""One simulated connection under one disturbance: what arrives, when, and what is lost."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from barrier_tck.faults.injectors.connections import BlackHole
from barrier_tck.faults.kinds.limit_channel import ByteLimit
from barrier_tck.faults.kinds.throttle_channel import RateLimit
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction, Impairment
from barrier_tck.harness.reference.simulated.network import (
    MESSAGE_BYTES,
    ChannelBroken,
    DataChannel,
    Disturbance,
    Link,
)
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.simulated_targets import _LinkTarget


def disturbed(*impairments: Impairment) -> Disturbance:
    return Disturbance(random.Random(5).random, impairments)


def arrivals(channel: Link | DataChannel, scheduler: Scheduler, count: int = 20) -> list[tuple[float, int]]:
    """Send all numbers at once, on a channel as batches of two rows; return when each arrived."""
    seen: list[tuple[float, int]] = []
    if isinstance(channel, Link):
        for number in range(count):
            channel.send(number, lambda n: seen.append((scheduler.now, n)))
        scheduler.run(100_000.0)
        return seen
    for number in range(count):
        channel.send(True, [number, number])
    return [(arrival, element[0]) for arrival, _, element in channel.queue]


def channel_on(scheduler: Scheduler) -> DataChannel:
    return DataChannel("a->b", scheduler, random.Random(3), latency_ms=5.0, capacity=100)


def link_on(scheduler: Scheduler) -> Link:
    return Link(scheduler, random.Random(3), 5.0, lambda message: None)


@pytest.mark.parametrize("make", [channel_on, link_on])
def test_a_delayed_connection_is_late_by_its_latency_and_stays_in_order(make: Any) -> None:
    scheduler = Scheduler()
    connection = make(scheduler)
    connection.disturbance = disturbed(Latency(latency_ms=40, jitter_ms=10))
    found = arrivals(connection, scheduler)
    assert [number for _, number in found] == list(range(20))
    assert all(30.0 <= time <= 55.0 for time, _ in found)
    assert len({time for time, _ in found}) > 1, "the jitter is drawn per message"


@pytest.mark.parametrize(("make", "size"), [(channel_on, 2 * MESSAGE_BYTES), (link_on, MESSAGE_BYTES)])
def test_a_throttled_connection_lets_its_rate_through_and_no_more(make: Any, size: int) -> None:
    scheduler = Scheduler()
    connection = make(scheduler)
    connection.disturbance = disturbed(RateLimit(bytes_per_second=2_000))
    found = arrivals(connection, scheduler)
    assert [number for _, number in found] == list(range(20))
    assert found[-1][0] == pytest.approx(20 * size / 2.0)


def test_late_credits_keep_the_sender_waiting_and_a_disturbed_way_back_delays_no_element() -> None:
    scheduler = Scheduler()
    channel = channel_on(scheduler)
    channel.disturb(None, disturbed(Latency(latency_ms=40)))
    assert max(time for time, _ in arrivals(channel, scheduler, channel.capacity)) <= 5.0
    for _ in range(channel.capacity):
        channel.take()
    assert channel.full, "the sender does not know yet that there is room"
    scheduler.run(39.0)
    assert channel.full
    scheduler.run(41.0)
    assert channel.occupied == 0


@pytest.mark.parametrize("make", [channel_on, link_on])
def test_a_black_hole_swallows_and_remembers_that_it_did(make: Any) -> None:
    scheduler = Scheduler()
    connection = make(scheduler)
    connection.disturbance = disturbed(BlackHole())
    assert arrivals(connection, scheduler) == [] and connection.swallowed
    if isinstance(connection, DataChannel):
        assert connection.occupied == 0, "a reader that drops everything exerts no backpressure"


@pytest.mark.parametrize(("make", "size"), [(channel_on, 2 * MESSAGE_BYTES), (link_on, MESSAGE_BYTES)])
def test_a_limited_connection_lets_its_bytes_through_and_closes_behind_them(make: Any, size: int) -> None:
    scheduler = Scheduler()
    connection = make(scheduler)
    closed: list[float] = []

    def close() -> None:
        connection.broken = True
        closed.append(connection.last_arrival_ms)

    connection.disturbance = Disturbance(
        random.Random(5).random, [ByteLimit(bytes_max=3 * size + size // 2)], close
    )
    with contextlib.suppress(ChannelBroken):
        arrivals(connection, scheduler)
    scheduler.run(100_000.0)
    assert closed == [connection.last_arrival_ms], (
        "half of the fourth message was let through, which does not count as a message"
    )


def test_a_limit_counts_from_its_beginning_and_continues_when_something_else_begins() -> None:
    scheduler = Scheduler()
    channel = channel_on(scheduler)
    limit = ByteLimit(bytes_max=3 * MESSAGE_BYTES)
    channel.send(True, [0])
    channel.disturbance = disturbed(limit)
    channel.send(True, [1])
    channel.disturbance = Disturbance(
        random.Random(5).random, [limit, Latency(latency_ms=3)], before=channel.disturbance
    )
    for number in (2, 3, 4):
        channel.send(True, [number])
    assert [element for _, _, element in channel.queue] == [[0], [1], [2], [3]]


def test_a_broken_channel_refuses_what_is_sent_and_a_broken_link_drops_it() -> None:
    scheduler = Scheduler()
    channel, link = channel_on(scheduler), link_on(scheduler)
    channel.broken = link.broken = True
    with pytest.raises(ChannelBroken, match="a->b"):
        channel.send(True, [1])
    assert arrivals(link, scheduler) == []


def test_an_impairment_seen_from_the_receiving_end_is_reversed() -> None:
    seen: list[Impairment] = []

    class World:
        class disturbances:  # noqa: N801 - stands for an attribute
            @staticmethod
            def add(pair: tuple[str, str], impairment: Impairment) -> None:
                seen.append(impairment)

    link = _LinkTarget(World, "a", "b", from_receiver=True)  # type: ignore[arg-type]
    link.impair(BlackHole(direction=Direction.FORWARD))
    assert [impairment.direction for impairment in seen] == [Direction.BACKWARD]
