"""Which proxies a disturbance affects, with an embedded server and without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barrier_tck.faults.injectors.connections import BlackHole, Closure
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.throttle_channel import RateLimit
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction, LinkTarget, Peers, TargetGone
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient
from barrier_tck.faults.toxiproxy.embedded import EmbeddedServer
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.spark.proxied_network import ProxiedLink, ProxyNetwork, toxics_of
from barrier_tck.harness.reference.spark.proxies import disturbs_connections
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark
from barrier_tck.harness.support.errors import EnvironmentProblem
from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, SubtaskId
from barrier_tck.reference_impl.spark.routes import Address, ChannelEnds
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess

SOURCE, TOTALS, SINK = SubtaskId("source", 0), SubtaskId("totals", 0), SubtaskId("sink", 0)
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
PLACES = {SOURCE: (HOSTS[0], 0), TOTALS: (HOSTS[1], 1), SINK: (HOSTS[1], 2)}
BLACK_HOLE = BlackHole()
CUT = Closure()


@pytest.fixture(name="client")
def _client() -> Iterator[ToxiproxyClient]:
    server = EmbeddedServer()
    server.start()
    yield ToxiproxyClient(server.url)
    server.close()


@pytest.fixture(name="network")
def _network(client: ToxiproxyClient) -> ProxyNetwork:
    made = ProxyNetwork(client, "t", HOSTS, "127.0.0.1")
    made.to_coordinator(("127.0.0.1", 9), 3)
    place(made, 1, PLACES)
    return made


def place(network: ProxyNetwork, attempt: int, places: dict[SubtaskId, tuple[str, int]]) -> list[Address]:
    """Do what the runtime does when an attempt is placed."""
    network.placed(
        {
            subtask: SubtaskProcess(subtask, attempt, host, 1, 2, "0", slot)
            for subtask, (host, slot) in places.items()
        }
    )
    channels = [ChannelId(SOURCE, TOTALS), ChannelId(TOTALS, SINK)]
    return list(
        network.to_channels(
            [
                (
                    ChannelEnds(
                        AttemptNumber(attempt),
                        channel,
                        places[channel.sender][0],
                        places[channel.receiver][0],
                    ),
                    ("127.0.0.1", 9),
                )
                for channel in channels
            ]
        )
    )


def disturbed(client: ToxiproxyClient) -> list[str]:
    states = [client.state(name) for name in client.names()]
    return [state.name for state in states if state.toxics or not state.enabled]


def link(network: ProxyNetwork, sender: str, receiver: str) -> ProxiedLink:
    found = network.link(sender, receiver)
    assert found is not None
    return found


def test_every_connection_has_a_proxy_and_none_stays(client: ToxiproxyClient, network: ProxyNetwork) -> None:
    names = client.names()
    assert "t-a1-source-0-totals-0" in names
    assert sum("control" in name for name in names) == len(HOSTS) * 3
    assert len(names) == 9 + 2
    network.close()
    assert client.names() == ()


def test_channels_of_parallel_edges_have_proxies_of_their_own_and_are_disturbed_together(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    first, second = ChannelId(SOURCE, SINK), ChannelId(SOURCE, SINK, 1)
    ends = [ChannelEnds(AttemptNumber(1), channel, HOSTS[0], HOSTS[1]) for channel in (first, second)]
    addresses = network.to_channels([(one, ("127.0.0.1", 9)) for one in ends])
    assert len(set(addresses)) == 2
    link(network, str(SOURCE), str(SINK)).impair(BLACK_HOLE)
    assert disturbed(client) == ["t-a1-source-0-sink-0", "t-a1-source-0-sink-0-edge1"]


def test_a_channel_alone_is_disturbed_and_healed(client: ToxiproxyClient, network: ProxyNetwork) -> None:
    target = link(network, "source[0]", "totals[0]")
    assert isinstance(target, LinkTarget)
    assert not target.is_impaired()
    target.impair(Latency(latency_ms=5, jitter_ms=1, direction=Direction.FORWARD))
    assert target.is_impaired()
    assert disturbed(client) == ["t-a1-source-0-totals-0"]
    assert client.state("t-a1-source-0-totals-0").toxics == ("fault1-upstream",)
    assert "source[0] → totals[0] (proxy 127.0.0.1:" in target.description
    target.heal()
    target.heal()
    assert not target.is_impaired()
    assert disturbed(client) == []


def test_the_proof_is_the_servers_word(client: ToxiproxyClient, network: ProxyNetwork) -> None:
    target = link(network, "source[0]", "totals[0]")
    target.impair(BLACK_HOLE)
    client.remove_toxic("t-a1-source-0-totals-0", "fault1-upstream")
    assert not target.is_impaired()
    other = link(network, "totals[0]", "coordinator")
    other.impair(CUT)
    client.set_enabled("t-control-9-127.0.0.3-1", True)
    assert not other.is_impaired()


def test_forward_is_seen_from_the_end_that_was_named_first(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    link(network, "totals[0]", "source[0]").impair(BlackHole(direction=Direction.FORWARD))
    assert client.state("t-a1-source-0-totals-0").toxics == ("fault1-downstream",)


def test_a_control_connection_is_found_by_its_subtask_and_followed_to_its_next_slot(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    target = link(network, "totals[0]", "coordinator")
    target.impair(BLACK_HOLE)
    assert disturbed(client) == ["t-control-9-127.0.0.3-1"]
    place(network, 2, {**PLACES, TOTALS: (HOSTS[2], 0)})
    assert disturbed(client) == ["t-control-9-127.0.0.4-0"]
    target.heal()
    assert disturbed(client) == []


def test_another_coordinator_has_ways_of_its_own_and_the_old_ones_stay_while_they_are_disturbed(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    link = network.link(str(TOTALS), "coordinator")
    assert link is not None
    link.impair(BLACK_HOLE)
    before = set(client.names())
    assert network.to_coordinator(("127.0.0.1", 9), 3) == network.to_coordinator(("127.0.0.1", 9), 3)
    assert set(client.names()) == before
    detours = network.to_coordinator(("127.0.0.1", 10), 3)
    assert len(detours) == 9
    old = [name for name in client.names() if "-control-9-" in name]
    assert len(old) == 1, "only the disturbed one"
    assert len([name for name in client.names() if "-control-10-" in name]) == 9
    place(network, 2, PLACES)
    assert link.is_impaired(), "the way to the new coordinator is disturbed, too"
    link.heal()
    assert not any("-control-9-" in name for name in client.names())
    network.close()
    assert not client.names()


def test_a_later_attempt_is_disturbed_as_soon_as_its_proxies_exist(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    target = link(network, "source[0]", "totals[0]")
    target.impair(CUT)
    network.attempt_over(1)
    assert "t-a1-source-0-totals-0" in client.names(), "a zombie must learn nothing before it heals"
    assert "t-a1-totals-0-sink-0" not in client.names()
    place(network, 2, PLACES)
    assert disturbed(client) == ["t-a1-source-0-totals-0", "t-a2-source-0-totals-0"]
    assert target.is_impaired()
    target.heal()
    assert disturbed(client) == []
    assert "t-a1-source-0-totals-0" not in client.names(), (
        "a proxy that stayed only because of the fault is removed with it"
    )


def test_the_slow_channel_of_a_plan_is_slow_in_every_attempt_and_is_no_fault(client: ToxiproxyClient) -> None:
    network = ProxyNetwork(client, "t", HOSTS, "127.0.0.1")
    network.to_coordinator(("127.0.0.1", 9), 3)
    late = Latency(latency_ms=50, jitter_ms=50, direction=Direction.FORWARD)
    network.slow_down(ChannelId(SOURCE, TOTALS), late)
    place(network, 1, PLACES)
    assert disturbed(client) == ["t-a1-source-0-totals-0"]
    fault = link(network, "source[0]", "totals[0]")
    fault.impair(Latency(latency_ms=5))
    fault.heal()
    assert client.state("t-a1-source-0-totals-0").toxics == ("fault0-upstream",), "healing leaves it slow"
    network.attempt_over(1)
    place(network, 2, PLACES)
    assert disturbed(client) == ["t-a2-source-0-totals-0"], (
        "proxies of an attempt that is over do not stay for it"
    )
    network.close()
    assert client.names() == ()


def test_a_connection_that_was_cut_twice_opens_when_the_last_cut_heals(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    first, second = (link(network, "source[0]", "totals[0]") for _ in range(2))
    first.impair(CUT)
    second.impair(CUT)
    first.heal()
    assert second.is_impaired()
    second.heal()
    assert disturbed(client) == []


@pytest.mark.parametrize(
    ("peers", "controls", "channels"),
    [(Peers.EXECUTORS, 0, 1), (Peers.COORDINATOR, 3, 0), (Peers.EVERYONE, 3, 1)],
)
def test_a_partition_leaves_out_connections_within_one_side(
    client: ToxiproxyClient, network: ProxyNetwork, peers: Peers, controls: int, channels: int
) -> None:
    for target in network.links_of_hosts([HOSTS[1]], peers):
        target.impair(BLACK_HOLE)
        assert target.is_impaired()
    names = disturbed(client)
    # totals and sink are on one host: their channel is within it.
    assert "t-a1-totals-0-sink-0" not in names
    assert sum("control-9-127.0.0.3" in name for name in names) == controls
    assert sum("a1-source-0-totals-0" in name for name in names) == channels
    assert len(names) == controls + channels


def test_a_partition_also_holds_for_subtasks_that_are_placed_behind_it_later(
    client: ToxiproxyClient, network: ProxyNetwork
) -> None:
    (target,) = network.links_of_hosts([HOSTS[1]], Peers.EXECUTORS)
    target.impair(BLACK_HOLE)
    place(network, 2, {SOURCE: (HOSTS[0], 0), TOTALS: (HOSTS[2], 0), SINK: (HOSTS[1], 0)})
    assert disturbed(client) == ["t-a1-source-0-totals-0", "t-a2-totals-0-sink-0"]


def test_subtasks_without_a_connection_are_no_target(network: ProxyNetwork) -> None:
    assert network.link("source[0]", "sink[0]") is None
    assert network.link("source[7]", "coordinator") is None
    assert network.links_of_hosts([HOSTS[2]], Peers.EXECUTORS) == ()
    target = link(network, "source[0]", "totals[0]")
    network.close()
    with pytest.raises(TargetGone, match=r"source\[0\] → totals\[0\]"):
        target.impair(CUT)


def test_a_throttle_below_the_servers_smallest_rate_is_no_black_hole() -> None:
    slow = RateLimit(bytes_per_second=10)
    assert [toxic.attributes for toxic in toxics_of(slow, 1, True)] == [{"rate": 1}, {"rate": 1}]


def test_only_plans_that_disturb_connections_need_proxies() -> None:
    def plan(*faults: ScheduledFault) -> TrialPlan:
        return TrialPlan(faults=faults)

    delay = ScheduledFault(DelayChannel("source[0]", "totals[0]", 1, 1), At(1))
    cut = ScheduledFault(CutChannel("source[0]", "totals[0]", 1), At(1))
    kill = ScheduledFault(KillWorker("source[0]"), At(1))
    assert not disturbs_connections(plan())
    assert not disturbs_connections(plan(kill))
    assert disturbs_connections(plan(kill, delay))
    assert disturbs_connections(plan(cut))


def test_a_proxy_url_that_does_not_answer_stops_a_campaign_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", "http://127.0.0.1:1")
    system = ReferenceSpark()
    with pytest.raises(EnvironmentProblem, match=r"no Toxiproxy server answers at http://127\.0\.0\.1:1"):
        system.prepare()
    system.close()
