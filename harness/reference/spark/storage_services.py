"""The service that holds the checkpoints of one trial: an HTTP proxy that knows requests stands before it, and a TCP
proxy that knows connections. The job reaches it through both; judges ask the service itself.

An object store's server belongs to one trial. The nodes of HDFS start once and take much longer, so the trials of a
system share them, each with a directory of its own, and every trial finds both nodes alive.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from barrier_tck.faults.targets import Impairment, TargetGone, TargetKind
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.hdfs.hdfs_nodes import HdfsNodes
from barrier_tck.harness.cluster.hdfs.webhdfs_requests import WebHdfsRequests
from barrier_tck.harness.cluster.http_fault_proxy import HttpFaultProxy, Requests
from barrier_tck.harness.cluster.object_store.object_server import ObjectServer
from barrier_tck.harness.cluster.object_store.s3_requests import S3Requests
from barrier_tck.harness.plan.storage_targets import SERVED, storage_target
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.checkpoint_storages import is_given
from barrier_tck.harness.reference.external_storage import ExternalStorage
from barrier_tck.harness.reference.spark.proxied_network import toxics_of
from barrier_tck.harness.reference.spark.proxies import ProxyServers
from barrier_tck.harness.support.errors import EnvironmentProblem

_IN_OBJECTS = "barrier_tck.harness.reference.served_storage:served_storage"
_SERIAL = 1


class StoreLink:
    """All connections with the service; implements ``barrier_tck.faults.targets.LinkTarget``."""

    def __init__(self, client: ToxiproxyClient | None, name: str) -> None:
        """Take the proxy; None: the plan disturbs nothing, so there is none."""
        self._client = client
        self._name = name
        self._impairment: Impairment | None = None

    @property
    def description(self) -> str:
        """Return what is disturbed, with the proxy."""
        return f"connections with the storage service (proxy {self._name})"

    def impair(self, impairment: Impairment) -> None:
        """Disturb them; raises TargetGone without a proxy."""
        if self._client is None:
            raise TargetGone("no proxy stands before the service that holds the checkpoints")
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
        impairment, self._impairment = self._impairment, None
        if self._client is None or impairment is None:
            return
        if impairment.closes:
            self._client.set_enabled(self._name, True)
        for toxic in toxics_of(impairment, _SERIAL, True):
            self._client.remove_toxic(self._name, toxic.name)


class ServingProcesses(Protocol):
    """Who holds the checkpoints: one process, or several."""

    @property
    def outlives_a_kill(self) -> bool:
        """Whether what it has stored is there after it was killed."""

    @property
    def name(self) -> str:
        """Return which it is."""

    @property
    def running(self) -> bool:
        """Whether all of it is alive."""

    def start(self) -> None:
        """Start what does not run, with what it had stored, and return when it answers."""

    def strike(self, moment: UploadMoment) -> None:
        """Kill (SIGKILL) the server at this moment of an upload, and return when it is dead."""


class TrialStore:
    """The service of one trial; implements ``barrier_tck.faults.targets.ObjectStoreTarget``."""

    strikes_later = False

    def __init__(
        self,
        server: ServingProcesses,
        fault_proxy: HttpFaultProxy,
        link: StoreLink,
        of_job: ExternalStorage,
        of_judges: ExternalStorage,
    ) -> None:
        self._server = server
        self._fault_proxy = fault_proxy
        self._killed = threading.Event()
        self._struck = False
        self.link = link
        self.of_job = of_job
        self.of_judges = of_judges

    @property
    def description(self) -> str:
        """Return which service it is."""
        return self._server.name

    def kill_in_upload(self, moment: UploadMoment) -> None:
        """Kill the server of the next upload at this moment of it."""
        if not self._server.outlives_a_kill:
            raise TargetGone(f"{self._server.name} keeps everything in memory; a kill would lose it all")
        if not self._server.running:
            raise TargetGone(self._server.name)
        self._killed.clear()
        self._fault_proxy.strike(moment, lambda: self._kill(moment))

    def is_dead(self) -> bool:
        """Return whether a server was killed in an upload, and is dead."""
        return self._killed.is_set() and not self._server.running

    def start_again(self) -> None:
        """Start it, and wait for no upload."""
        self._fault_proxy.strike(None)
        self._server.start()

    def throttle(self) -> None:
        """Refuse every request."""
        self._fault_proxy.throttle(True)

    def has_throttled(self) -> bool:
        """Return whether a request was refused."""
        self._struck = self._struck or self._fault_proxy.refused > 0
        return self._fault_proxy.refused > 0

    def stop_throttling(self) -> None:
        """Refuse no more."""
        self._fault_proxy.throttle(False)

    def fail_request(self, nth: int, carried_out: bool) -> Callable[[], bool]:
        """Let one request get no answer."""
        failing = self._fault_proxy.fail(nth, carried_out)
        return lambda: failing.met

    def has_struck(self) -> bool:
        """Return whether a server was killed or a request refused."""
        return self._struck or self._killed.is_set()

    def _kill(self, moment: UploadMoment) -> None:
        self._server.strike(moment)
        self._killed.set()


class StorageServices:
    """Gives each trial of a system the service that its plan names."""

    def __init__(self, stack: contextlib.ExitStack, proxies: ProxyServers) -> None:
        self._stack = stack
        self._proxies = proxies
        self._nodes: HdfsNodes | None = None
        self._trials = itertools.count(1)

    def forget(self) -> None:
        """Drop the nodes, which the stack has ended."""
        self._nodes = None

    @contextlib.contextmanager
    def of(self, plan: TrialPlan, directory: Path, address: str) -> Iterator[TrialStore | None]:
        """Yield the service of one trial, or None if its checkpoints are in files, or in an HDFS that is given.

        Both proxies listen at an address of this machine that all hosts can reach. Raises EnvironmentProblem if the
        servers are not on this machine, or do not start.
        """
        name = plan.checkpoints.storage
        if name not in SERVED or is_given(name):
            yield None
            return
        with contextlib.ExitStack() as stack:
            if name == "s3":
                server = ObjectServer(directory / "objects")
                stack.callback(server.close)
                server.start()
                _prepare(server.url)
                requests: Requests = S3Requests(server.address)
                made: ServingProcesses = server
                stored = partial(_in_objects, server.url)
            else:
                nodes = self._present_nodes(directory.parent)
                requests = WebHdfsRequests(nodes.name_node, nodes.data_node)
                made, stored = nodes, partial(_in_hdfs, nodes.url, f"trial-{next(self._trials)}")
            fault_proxy = HttpFaultProxy(address, requests)
            stack.callback(fault_proxy.close)
            fault_proxy.start()
            entry, link = fault_proxy.address, StoreLink(None, "")
            if any(planned.fault.needs is TargetKind.OBJECT_STORE for planned in plan.faults):
                client, proxy, entry = stack.enter_context(self._proxies.before(fault_proxy.address, address))
                link = StoreLink(client, proxy)
            yield TrialStore(made, fault_proxy, link, stored(entry), stored(None))

    def _present_nodes(self, directory: Path) -> HdfsNodes:
        """Return the nodes of HDFS, which run; the first call makes them, below the cluster's directory."""
        if self._nodes is None:
            self._nodes = HdfsNodes(directory / "hdfs")
            self._stack.callback(self._nodes.close)
        self._nodes.start()
        return self._nodes


def _in_objects(url: str, entry: tuple[str, int] | None) -> ExternalStorage:
    return ExternalStorage(_IN_OBJECTS, url if entry is None else f"http://{entry[0]}:{entry[1]}")


def _in_hdfs(url: str, directory: str, entry: tuple[str, int] | None) -> ExternalStorage:
    there = url if entry is None else f"webhdfs://{entry[0]}:{entry[1]}"
    return ExternalStorage(storage_target("hdfs"), f"{there}/{directory}")


def _prepare(url: str) -> None:
    try:
        from barrier_tck.harness.reference import served_storage
    except ImportError as error:
        raise EnvironmentProblem(
            f"checkpoints in an object store need boto3 ({error}); install barrier-tck[s3]"
        ) from error
    served_storage.prepare(url)
