"""The proxy server of a system on Spark: it is started with the first plan that disturbs connections, not before."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Sequence

import psutil

from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient, ToxiproxyProblem
from barrier_tck.faults.toxiproxy.server import URL_VARIABLE, proxy_server
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.spark.proxied_network import ProxyNetwork
from barrier_tck.harness.support.errors import EnvironmentProblem

_FAMILY = "barrier-tck"


def disturbs_connections(plan: TrialPlan) -> bool:
    """Return whether a plan needs proxies: without them, nothing slows its connections down."""
    kinds = (TargetKind.CHANNEL, TargetKind.PARTITION)
    return plan.network.slow_channel is not None or any(
        planned.fault.needs in kinds for planned in plan.faults
    )


class ProxyServers:
    """Gives each trial its own network of proxies on one server."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._client: ToxiproxyClient | None = None
        self._serials = itertools.count(1)

    def check(self) -> None:
        """Raise EnvironmentProblem if ``TOXIPROXY_URL`` names a server that does not answer; starts nothing."""
        if os.environ.get(URL_VARIABLE):
            self._server()

    def forget(self) -> None:
        """Drop the server, which the stack has ended."""
        self._client = None

    @contextlib.contextmanager
    def network(self, plan: TrialPlan, hosts: Sequence[str], address: str) -> Iterator[ProxyNetwork | None]:
        """Yield the network of one trial, or None if its plan needs none; its proxies are removed at exit.

        They listen at an address of this machine that all hosts can reach.
        Raises EnvironmentProblem if the server cannot be started or reached, or is lost before the end.
        """
        if not disturbs_connections(plan):
            yield None
            return
        made = ProxyNetwork(self._server(), f"{_own_prefix()}{next(self._serials)}", hosts, address)
        try:
            yield made
        finally:
            with _environment_problems():
                made.close()

    @contextlib.contextmanager
    def before(
        self, upstream: tuple[str, int], address: str
    ) -> Iterator[tuple[ToxiproxyClient, str, tuple[str, int]]]:
        """Yield a proxy before one server, as its own server's client, its name and where it listens; it is removed at
        exit. Raises EnvironmentProblem as ``network`` does.
        """
        with _environment_problems():
            client, name = self._server(), f"{_own_prefix()}{next(self._serials)}"
            listens = client.create(name, upstream, address)
        try:
            yield client, name, listens
        finally:
            with _environment_problems():
                client.delete(name)

    def _server(self) -> ToxiproxyClient:
        if self._client is None:
            with _environment_problems():
                client = self._stack.enter_context(proxy_server())
                _sweep(client)
                self._client = client
        return self._client


@contextlib.contextmanager
def _environment_problems() -> Iterator[None]:
    try:
        yield
    except ToxiproxyProblem as problem:
        raise EnvironmentProblem(str(problem)) from problem


def _own_prefix() -> str:
    return f"{_FAMILY}-{socket.gethostname()}-{os.getpid()}-"


def _sweep(client: ToxiproxyClient) -> None:
    """Remove the proxies that a killed harness of this machine left on a server that outlived it."""
    ours = f"{_FAMILY}-{socket.gethostname()}-"
    for name in client.names():
        pid = name.removeprefix(ours).partition("-")[0]
        if name.startswith(ours) and pid.isdigit() and not psutil.pid_exists(int(pid)):
            client.delete(name)
