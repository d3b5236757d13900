"""The proxies of one trial on Spark: one before each data channel and one before each control connection.

The runtime asks for addresses (``Routes``) and is given those of proxies. For control connections there is one proxy
for each host and slot number, made once, because the coordinator's address stays the same. Data channels get their
proxies when an attempt is placed, because receivers listen on new ports, and lose them when it is over.

A *disturbance* names connections by their ends, not proxies: the connections of a later attempt are disturbed as soon
as they exist. The proxies of an attempt that is over stay as long as they are disturbed, so that a zombie behind a
partition learns nothing before the partition heals.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from barrier_tck.faults.targets import COORDINATOR, Direction, Impairment, Peers, TargetGone
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient
from barrier_tck.faults.toxiproxy.toxics import DOWNSTREAM, UPSTREAM, Toxic
from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.spark.routes import Address, ChannelEnds
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess

_NO_FAULT = 0
"""The number of the permanent disturbance; faults count from 1."""
_NOT_IN_URLS = re.compile(r"[^\w.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proxied:
    """One proxied connection, named by its ends; the end that connects is its client."""

    name: str
    """The proxy's name, unique on the server."""
    listen: Address
    client_host: str
    server_host: str
    """Empty if the coordinator is the server."""
    attempt: int = 0
    """0 if the connection lasts for the whole job."""
    channel: ChannelId | None = None
    slot: int | None = None
    subtask: SubtaskId | None = None
    """For control connections: the subtask that runs in the slot now."""


Matcher = Callable[[Proxied], bool | None]
"""Returns whether a connection is meant: True if its client is the end named first, False if its client is the other
end, None if it is not meant."""


class ProxiedLink:
    """Connections that can be disturbed together; implements ``barrier_tck.faults.targets.LinkTarget``."""

    def __init__(self, network: ProxyNetwork, what: str, matches: Matcher) -> None:
        self._network = network
        self._what = what
        self.matches = matches
        self.serial: int | None = None

    @property
    def description(self) -> str:
        """Return what is disturbed, with the proxies through which it runs now."""
        through = [f"{proxied.listen[0]}:{proxied.listen[1]}" for proxied in self._network.matching(self)]
        return f"{self._what} (proxy {', '.join(through)})" if through else f"{self._what} (no proxy)"

    def impair(self, impairment: Impairment) -> None:
        """Disturb its connections and those that will be opened; raises TargetGone if there is none now."""
        if not self._network.impair(self, impairment):
            raise TargetGone(self._what)

    def is_impaired(self) -> bool:
        """Return whether the server confirms the disturbance for every connection."""
        return self._network.is_impaired(self)

    def heal(self) -> None:
        """Undo the disturbance on every connection. Healing twice is harmless."""
        self._network.heal(self)


class ProxyNetwork:
    """All proxies of one trial. Implements ``reference_impl.spark.routes.Routes``; may be used from any thread."""

    def __init__(self, client: ToxiproxyClient, prefix: str, hosts: Sequence[str], address: str) -> None:
        """Take the server's client, a prefix that makes names unique on the server, the hosts that may run executors,
        and the address of this machine that they all can reach.
        """
        self._address = address
        self._client = client
        self._prefix = prefix
        self._hosts = tuple(hosts)
        self._lock = threading.RLock()
        self._serials = itertools.count(1)
        self._proxies: dict[str, Proxied] = {}
        self._disturbed: dict[int, tuple[ProxiedLink, Impairment]] = {}
        self._detours: dict[tuple[str, int], Address] = {}
        self._coordinator: Address | None = None
        self._slow: tuple[ChannelId, Impairment] | None = None
        self._attempt = 0

    def slow_down(self, channel: ChannelId, impairment: Impairment) -> None:
        """Disturb one channel for the whole job, in every attempt; this is how the network is, not a fault."""
        self._slow = (channel, impairment)

    # --- reference_impl.spark.routes.Routes -----------------------------------------------------------------

    def to_coordinator(self, address: Address, slots: int) -> Mapping[tuple[str, int], Address]:
        """Return the address of a proxy for each host and slot number; they are made once for each coordinator."""
        with self._lock:
            if self._coordinator != address:
                self._abandon_detours(address)
                for host, slot in itertools.product(self._hosts, range(slots)):
                    proxied = self._make(
                        f"control-{address[1]}-{host}-{slot}",
                        address,
                        Proxied("", address, host, "", slot=slot),
                    )
                    self._detours[host, slot] = proxied.listen
            return dict(self._detours)

    def _abandon_detours(self, address: Address) -> None:
        """Take the way to a coordinator that is gone for one of its last attempt: it stays while it is disturbed."""
        self._coordinator = address
        self._detours.clear()
        old = [
            proxied for proxied in self._proxies.values() if proxied.slot is not None and not proxied.attempt
        ]
        for proxied in old:
            self._proxies[proxied.name] = replace(proxied, attempt=max(1, self._attempt))
        self._remove([self._proxies[proxied.name] for proxied in old], even=False)

    def to_channels(self, channels: Sequence[tuple[ChannelEnds, Address]]) -> Sequence[Address]:
        """Make a proxy for each channel and return the addresses on which they listen."""
        with self._lock:
            made = []
            for ends, address in channels:
                self._attempt = max(self._attempt, ends.attempt)
                wanted = Proxied(
                    "", address, ends.sender_host, ends.receiver_host, ends.attempt, channel=ends.channel
                )
                sender, receiver = ends.channel.sender, ends.channel.receiver
                name = f"a{ends.attempt}-{sender.vertex}-{sender.index}-{receiver.vertex}-{receiver.index}"
                if ends.channel.edge:
                    name += f"-edge{ends.channel.edge}"
                made.append(self._make(name, address, wanted).listen)
            return made

    # --- what happens to the job ----------------------------------------------------------------------------

    def placed(self, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        """Note which subtask runs in which slot; a disturbance of a subtask's control connection moves with the
        subtask."""
        by_slot = {(where.host, where.slot): subtask for subtask, where in processes.items()}
        with self._lock:
            for name, proxied in list(self._proxies.items()):
                if proxied.slot is None or proxied.attempt:
                    continue
                subtask = by_slot.get((proxied.client_host, proxied.slot))
                if subtask == proxied.subtask:
                    continue
                moved = self._proxies[name] = replace(proxied, subtask=subtask)
                for serial, (link, impairment) in self._disturbed.items():
                    was, now = link.matches(proxied), link.matches(moved)
                    if was is not None and now is None:
                        self._undo(proxied, serial, impairment)
                    elif was is None and now is not None:
                        self._do(moved, serial, impairment, now)

    def attempt_over(self, attempt: int) -> None:
        """Remove the proxies of an attempt's data channels, except those that are disturbed."""
        with self._lock:
            self._remove(
                [proxied for proxied in self._proxies.values() if 0 < proxied.attempt <= attempt], even=False
            )

    def close(self) -> None:
        """Remove every proxy, disturbed or not."""
        with self._lock:
            self._disturbed.clear()
            self._remove(list(self._proxies.values()), even=True)
            self._detours.clear()

    # --- links ----------------------------------------------------------------------------------------------

    def link(self, sender: str, receiver: str) -> ProxiedLink | None:
        """Return the connection between two subtasks, or a subtask's to the coordinator; None if there is none."""
        pair = (sender, receiver)
        found = ProxiedLink(self, f"{sender} → {receiver}", lambda proxied: _between(proxied, pair))
        return found if self.matching(found) else None

    def links_of_hosts(self, hosts: Iterable[str], peers: Peers) -> tuple[ProxiedLink, ...]:
        """Return the connections between some hosts and all others, seen from these hosts.

        One link stands for all connections to other hosts, another one for those to the coordinator. A link that has
        no connection now is left out.
        """
        ours = tuple(sorted(set(hosts)))
        others = [] if peers is Peers.COORDINATOR else [host for host in self._hosts if host not in ours]
        name = f"executor{'s' * (len(ours) > 1)} on {', '.join(ours)}"
        links = [_host_link(self, f"{name} ↔ other executors", ours, tuple(others))]
        if peers is not Peers.EXECUTORS:
            links.append(_host_link(self, f"{name} ↔ {COORDINATOR}", ours, ("",)))
        return tuple(link for link in links if self.matching(link))

    def matching(self, link: ProxiedLink) -> tuple[Proxied, ...]:
        """Return the connections of the current attempt that belong to a link."""
        with self._lock:
            return tuple(
                proxied
                for proxied in self._proxies.values()
                if proxied.attempt in (0, self._attempt) and link.matches(proxied) is not None
            )

    def impair(self, link: ProxiedLink, impairment: Impairment) -> bool:
        """Put a disturbance in force; returns False if it affects no connection of the current attempt."""
        with self._lock:
            if not self.matching(link):
                return False
            self.heal(link)
            link.serial = serial = next(self._serials)
            self._disturbed[serial] = (link, impairment)
            for proxied in self._proxies.values():
                seen = link.matches(proxied)
                if seen is not None:
                    self._do(proxied, serial, impairment, seen)
            return True

    def is_impaired(self, link: ProxiedLink) -> bool:
        """Ask the server whether a disturbance is in force on every connection that it affects."""
        with self._lock:
            serial = link.serial
            if serial is None or serial not in self._disturbed:
                return False
            impairment = self._disturbed[serial][1]
            return all(
                self._in_force(proxied, serial, impairment, bool(link.matches(proxied)))
                for proxied in self.matching(link)
            )

    def heal(self, link: ProxiedLink) -> None:
        """Undo a disturbance, and remove the proxies that stayed only because of it."""
        with self._lock:
            serial = link.serial
            if serial is None or serial not in self._disturbed:
                return
            _, impairment = self._disturbed.pop(serial)
            link.serial = None
            for proxied in list(self._proxies.values()):
                if link.matches(proxied) is not None:
                    self._undo(proxied, serial, impairment)
            self._remove([p for p in self._proxies.values() if 0 < p.attempt < self._attempt], even=False)

    # --- the server -----------------------------------------------------------------------------------------

    def _make(self, name: str, upstream: Address, wanted: Proxied) -> Proxied:
        name = _NOT_IN_URLS.sub("_", f"{self._prefix}-{name}")
        made = replace(wanted, name=name, listen=self._client.create(name, upstream, self._address))
        self._proxies[name] = made
        if self._slow is not None and made.channel == self._slow[0]:
            self._do(made, _NO_FAULT, self._slow[1], seen=True)
        for serial, (link, impairment) in self._disturbed.items():
            seen = link.matches(made)
            if seen is not None:
                self._do(made, serial, impairment, seen)
        return made

    def _remove(self, proxies: Sequence[Proxied], even: bool) -> None:
        for proxied in proxies:
            disturbed = any(link.matches(proxied) is not None for link, _ in self._disturbed.values())
            if even or not disturbed:
                self._client.delete(proxied.name)
                del self._proxies[proxied.name]

    def _do(self, proxied: Proxied, serial: int, impairment: Impairment, seen: bool) -> None:
        if impairment.closes:
            self._client.set_enabled(proxied.name, False)
        for toxic in toxics_of(impairment, serial, seen):
            self._client.add_toxic(proxied.name, toxic)

    def _undo(self, proxied: Proxied, serial: int, impairment: Impairment) -> None:
        if impairment.closes and not self._cut_by_another(proxied, serial):
            self._client.set_enabled(proxied.name, True)
        for toxic in toxics_of(impairment, serial, True) + toxics_of(impairment, serial, False):
            self._client.remove_toxic(proxied.name, toxic.name)

    def _cut_by_another(self, proxied: Proxied, serial: int) -> bool:
        return any(
            other != serial and impairment.closes and link.matches(proxied) is not None
            for other, (link, impairment) in self._disturbed.items()
        )

    def _in_force(self, proxied: Proxied, serial: int, impairment: Impairment, seen: bool) -> bool:
        state = self._client.state(proxied.name)
        wanted = [toxic.name for toxic in toxics_of(impairment, serial, seen)]
        return not state.enabled if impairment.closes else all(name in state.toxics for name in wanted)


def toxics_of(impairment: Impairment, serial: int, seen_from_client: bool) -> list[Toxic]:
    """Return the toxics that carry out a disturbance; none if it closes connections, because then the proxy stops
    listening.

    ``seen_from_client`` says whether FORWARD means from the proxy's client to its server, Toxiproxy's "upstream".
    """
    if impairment.closes:
        return []
    forward, backward = (UPSTREAM, DOWNSTREAM) if seen_from_client else (DOWNSTREAM, UPSTREAM)
    streams = {
        Direction.FORWARD: [forward],
        Direction.BACKWARD: [backward],
        Direction.BOTH: [UPSTREAM, DOWNSTREAM],
    }[impairment.direction]
    return [
        Toxic(impairment.toxic, f"fault{serial}-{stream}", stream, attributes=impairment.attributes())
        for stream in streams
    ]


def _between(proxied: Proxied, pair: tuple[str, str]) -> bool | None:
    if proxied.channel is not None:
        ends = (str(proxied.channel.sender), str(proxied.channel.receiver))
    elif proxied.subtask is not None:
        ends = (str(proxied.subtask), COORDINATOR)
    else:
        return None
    return ends == pair if ends in (pair, pair[::-1]) else None


def _host_link(network: ProxyNetwork, what: str, ours: Sequence[str], theirs: Sequence[str]) -> ProxiedLink:
    def matches(proxied: Proxied) -> bool | None:
        if proxied.client_host in ours and proxied.server_host in theirs:
            return True
        return False if proxied.client_host in theirs and proxied.server_host in ours else None

    return ProxiedLink(network, what, matches)
