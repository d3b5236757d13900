"""The object store of one trial: a server of its own, a gate that knows requests, and a proxy that knows connections.

The job reaches the store through both; judges ask the server itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from barrier_tck.faults.targets import Impairment, TargetGone, TargetKind, UploadMoment
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient
from barrier_tck.harness.cluster.object_store.object_gate import Gate
from barrier_tck.harness.cluster.object_store.object_server import ObjectServer
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.spark.proxied_network import toxics_of
from barrier_tck.harness.reference.spark.proxies import ProxyServers
from barrier_tck.harness.reference.stored_elsewhere import StoredElsewhere
from barrier_tck.harness.support.errors import EnvironmentProblem

_STORAGE = "barrier_tck.harness.reference.served_storage:served_storage"
_SERIAL = 1


class StoreLink:
    """The connections of everybody with the store; implements ``barrier_tck.faults.targets.LinkTarget``."""

    def __init__(self, client: ToxiproxyClient | None, name: str) -> None:
        """Take the proxy; None: the plan disturbs nothing, so there is none."""
        self._client = client
        self._name = name
        self._impairment: Impairment | None = None

    @property
    def description(self) -> str:
        """Return what is disturbed, with the proxy."""
        return f"connections with the object store (proxy {self._name})"

    def impair(self, impairment: Impairment) -> None:
        """Disturb them; raises TargetGone without a proxy."""
        if self._client is None:
            raise TargetGone("no proxy stands before the object store")
        self._impairment = impairment
        if impairment.closes:
            self._client.set_enabled(self._name, False)
        for toxic in toxics_of(impairment, _SERIAL, True):
            self._client.add_toxic(self._name, toxic)

    def is_impaired(self) -> bool:
        """Ask the proxy server whether the disturbance is in force."""
        impairment = self._impairment
        if self._client is None or impairment is None:
            return False
        state = self._client.state(self._name)
        wanted = [toxic.name for toxic in toxics_of(impairment, _SERIAL, True)]
        return not state.enabled if impairment.closes else all(name in state.toxics for name in wanted)

    def heal(self) -> None:
        """Undo it. Healing twice is harmless."""
        impairment, self._impairment = self._impairment, None
        if self._client is None or impairment is None:
            return
        if impairment.closes:
            self._client.set_enabled(self._name, True)
        for toxic in toxics_of(impairment, _SERIAL, True):
            self._client.remove_toxic(self._name, toxic.name)


class TrialStore:
    """The store of one trial; implements ``barrier_tck.faults.targets.ObjectStoreTarget``."""

    def __init__(self, server: ObjectServer, gate: Gate, entry: tuple[str, int], link: StoreLink) -> None:
        """Take the running server, the gate before it, the address that the job is told, and the connections."""
        self._server = server
        self._gate = gate
        self._killed = threading.Event()
        self.link = link
        self.of_job = StoredElsewhere(_STORAGE, f"http://{entry[0]}:{entry[1]}")
        """The storage as the job reaches it."""
        self.of_judges = StoredElsewhere(_STORAGE, server.url)

    @property
    def description(self) -> str:
        """Return which server it is."""
        return self._server.name

    def kill_in_upload(self, moment: UploadMoment) -> None:
        """Kill the server at this moment of the next upload."""
        if not self._server.outlives_a_kill:
            raise TargetGone(f"{self._server.name} keeps everything in memory; a kill would lose it all")
        if not self._server.running:
            raise TargetGone(self._server.name)
        self._killed.clear()
        self._gate.strike(moment, self._kill)

    def is_dead(self) -> bool:
        """Tell whether it was killed in an upload, and is dead."""
        return self._killed.is_set() and not self._server.running

    def start_again(self) -> None:
        """Start it, and wait for no upload."""
        self._gate.strike(None)
        self._server.start()

    def throttle(self) -> None:
        """Refuse every request."""
        self._gate.throttle(True)

    def has_throttled(self) -> bool:
        """Tell whether a request was refused."""
        return self._gate.refused > 0

    def stop_throttling(self) -> None:
        """Refuse no more."""
        self._gate.throttle(False)

    def _kill(self) -> None:
        self._server.kill()
        self._killed.set()


@contextlib.contextmanager
def store_of(
    plan: TrialPlan, proxies: ProxyServers, directory: Path, address: str
) -> Iterator[TrialStore | None]:
    """Yield the store of one trial, or None if its checkpoints are in files; it ends at exit.

    Gate and proxy listen at an address of this machine that all hosts can reach. Raises EnvironmentProblem if there is
    no server on this machine, or it does not start.
    """
    if plan.checkpoints.storage != "s3":
        yield None
        return
    with contextlib.ExitStack() as stack:
        server = ObjectServer(directory)
        stack.callback(server.close)
        server.start()
        _prepare(server.url)
        gate = Gate(address, server.address)
        stack.callback(gate.close)
        gate.start()
        entry, link = gate.address, StoreLink(None, "")
        if any(planned.fault.needs is TargetKind.OBJECT_STORE for planned in plan.faults):
            client, name, entry = stack.enter_context(proxies.before(gate.address, address))
            link = StoreLink(client, name)
        yield TrialStore(server, gate, entry, link)


def _prepare(url: str) -> None:
    try:
        from barrier_tck.harness.reference import served_storage
    except ImportError as error:
        raise EnvironmentProblem(
            f"checkpoints in an object store need boto3 ({error}); install barrier-tck[s3]"
        ) from error
    served_storage.prepare(url)
