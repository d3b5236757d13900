"""A Spark cluster on hosts that are containers of this machine's engine.

Each worker has a container of its own: a network interface with one address, a memory limit, and processes that live
and die with it. Master and drivers run on this machine, at the network's gateway. The network is internal: nothing
outside the machine reaches it.

The hosts see this machine's Spark, Java and Python under the same names, and have its process ids (decision 0050): what
a worker reports as its pid can be signalled from here, and a path means the same everywhere.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Mapping
from typing import Any, Self

from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool, Mount

from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_config import DockerClusterConfig
from barrier_tck.harness.cluster.containers.container_host import ContainerHost
from barrier_tck.harness.cluster.containers.engine import connect, problems
from barrier_tck.harness.cluster.containers.host_files import (
    environment_of_host,
    files_of_machine,
    written_by_hosts,
)
from barrier_tck.harness.cluster.containers.image import host_image
from barrier_tck.harness.cluster.containers.labelled import (
    CLUSTER_LABEL,
    remove_cluster,
    remove_orphans,
)
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.settings import bind_problem
from barrier_tck.harness.support.errors import EnvironmentProblem, OperatingError, PortInUse, UsageError

__all__ = ["DockerCluster", "DockerClusterConfig"]

_NETWORKS = 256
"""So many networks are tried, 10.213.0.0/24 and on: several harnesses may run on one machine."""
_FIRST_HOST = 10
_NETWORK_TAKEN = (403, 409, 500)
"""What an engine answers if the addresses overlap with another network's, depending on its version."""
_SCRATCH = "/tmp"


class DockerCluster(Cluster):
    """A Spark standalone cluster with a container for each worker; a context manager."""

    config: DockerClusterConfig

    def __init__(self, config: DockerClusterConfig | None = None) -> None:
        super().__init__(config or DockerClusterConfig())
        self._client: Any = None
        self._network: Any = None
        self._prefix = ""
        """The first three numbers of every address, with a full stop at the end."""
        self._image = ""
        self._hosts: dict[int, ContainerHost] = {}

    @classmethod
    def reap_orphans(cls) -> tuple[int, ...]:
        """Remove containers and networks whose harness is dead, then do as every cluster does."""
        client = connect()
        with contextlib.closing(client):
            remove_orphans(client)
        return super().reap_orphans()

    def start(self) -> Self:
        """Start, as every cluster does; raises EnvironmentProblem also if the hosts cannot reach one another."""
        super().start()
        try:
            self._check_network()
        except BaseException:
            self.stop()
            raise
        return self

    def _check_network(self) -> None:
        """Let the first host reach the second: a firewall that drops what passes between them would drop all of it."""
        for first, second in itertools.islice(itertools.pairwise(self._hosts), 1):
            address = self.worker_host(second)
            if not self._hosts[first].reaches(address):
                raise EnvironmentProblem(
                    f"The {self._hosts[first].description} gets no answer from {address}. A firewall of this machine "
                    "drops what passes between containers (see iptables -S FORWARD). Allow it for 10.213.0.0/16, or "
                    "let the container engine manage the rules."
                )

    @property
    def driver_host(self) -> str:
        """The gateway of the hosts' network, an address of this machine."""
        return f"{self._addresses()}1"

    def worker_host(self, worker: int) -> str:
        return f"{self._addresses()}{_FIRST_HOST + worker}"

    def host(self, address: str) -> ContainerHost | None:
        return next(
            (host for worker, host in self._hosts.items() if self.worker_host(worker) == address), None
        )

    def _addresses(self) -> str:
        if not self._prefix:
            raise UsageError("The hosts have no addresses yet; use `with DockerCluster(...) as cluster:`.")
        return self._prefix

    def _check_machine(self) -> None:
        self._client = connect()

    def _make_hosts(self) -> None:
        self._image = host_image(self._client, self.config.base_image)
        self._network = self._made_network()
        port = self.config.master_port
        if port is not None and (problem := bind_problem(self.driver_host, port)) is not None:
            raise PortInUse(
                f"Port {port} on {self.driver_host} cannot be used for the Spark master: {problem}."
            )

    def _made_network(self) -> Any:
        """Make a network with addresses that no other one has."""
        start = secrets.randbelow(_NETWORKS)
        refusal: APIError | None = None
        for number in range(_NETWORKS):
            prefix = f"10.213.{(start + number) % _NETWORKS}."
            pool = IPAMPool(subnet=f"{prefix}0/24", gateway=f"{prefix}1")
            try:
                with problems():
                    made = self._create_network(IPAMConfig(pool_configs=[pool]))
            except _Taken as taken:
                refusal = taken.refusal
                continue
            self._prefix = prefix
            return made
        raise EnvironmentProblem(f"The container engine makes no network within 10.213.0.0/16: {refusal}")

    def _create_network(self, addresses: IPAMConfig) -> Any:
        try:
            return self._client.networks.create(
                f"barrier-tck-{self._id}",
                driver="bridge",
                internal=True,
                ipam=addresses,
                labels={CLUSTER_LABEL: self._marker()},
            )
        except APIError as error:
            if error.status_code in _NETWORK_TAKEN and "overlap" in str(error):
                raise _Taken(error) from error
            raise

    def _run_worker(self, worker: int, command: list[str], environment: Mapping[str, str]) -> None:
        name, address = f"worker-{worker}", self.worker_host(worker)
        log = self.directory / f"{name}.log"
        log.touch()
        network = self._network.name
        with problems():
            container = self._client.containers.create(
                self._image,
                ["/bin/bash", "-c", 'exec "$@" >>"$0" 2>&1', str(log), *command],
                name=f"barrier-tck-{self._id}-{worker}",
                hostname=name,
                labels={CLUSTER_LABEL: self._marker()},
                environment=environment_of_host(environment, os.environ),
                working_dir=str(self.directory),
                user=f"{os.getuid()}:{os.getgid()}",
                pid_mode="host",
                mounts=self._mounts(),
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                mem_limit=f"{self.config.host_mb}m",
                memswap_limit=f"{self.config.host_mb}m",
                network=network,
                networking_config={network: self._client.api.create_endpoint_config(ipv4_address=address)},
            )
            self._hosts[worker] = ContainerHost(container, self._network, address)
            container.start()

    def _mounts(self) -> list[Mount]:
        files = files_of_machine(find_java(), with_system=not self.config.base_image)
        mounts = [Mount(str(place), str(place), "bind", read_only=True) for place in files]
        if _SCRATCH not in map(str, files):
            mounts.append(Mount(_SCRATCH, None, "tmpfs"))
        own = (written_by_hosts(), self.directory)
        return mounts + [Mount(str(place), str(place), "bind") for place in own]

    def _exit_code(self, name: str) -> int | None:
        kind, _, number = name.rpartition("-")
        return self._hosts[int(number)].exit_code if kind == "worker" else super()._exit_code(name)

    def _pid_of_worker(self, worker: int) -> int | None:
        host = self._hosts.get(worker)
        return host.pid if host is not None else None

    def _remove_hosts(self) -> list[str]:
        client, self._client = self._client, None
        self._hosts.clear()
        if client is None:
            return []
        with contextlib.closing(client):
            try:
                return remove_cluster(client, self._id)
            except OperatingError as error:  # the engine is gone, for instance; all else must go nevertheless
                return [f"its hosts ({error})"]


class _Taken(Exception):
    """Another network has these addresses."""

    def __init__(self, refusal: APIError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
