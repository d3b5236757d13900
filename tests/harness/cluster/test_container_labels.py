"""What a cluster makes in a container engine is removed, and nothing else is; grain: a pretended engine.

The engine refuses what a real one refuses: a network cannot go before what is attached to it.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from docker.errors import APIError, NotFound

from barrier_tck.harness.cluster.cluster_config import DockerClusterConfig
from barrier_tck.harness.cluster.containers import container_host, docker_cluster
from barrier_tck.harness.cluster.containers.container_host import ContainerHost
from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster
from barrier_tck.harness.cluster.containers.labelled import CLUSTER_LABEL, remove_orphans
from barrier_tck.harness.cluster.signalled_process import SignalledProcess
from barrier_tck.harness.support import owners
from barrier_tck.harness.support.errors import LeftBehind, OperatingError
from tests.waiting import eventually

SMALL = DockerClusterConfig(workers=2, cores_per_worker=1, memory_per_worker_mb=512, host_memory_mb=1_500)


def refused(status: int, text: str) -> APIError:
    response = SimpleNamespace(status_code=status, url="", reason="")
    return APIError(text, response=response, explanation=text)


@dataclass
class Made:
    """A container or network, with what was asked for."""

    engine: Engine
    name: str
    asked: dict[str, Any]
    kind: str = "container"
    removed: bool = False
    going: bool = False
    """Somebody else removes it just now."""
    running: bool = False
    short_id: str = "0f"

    @property
    def attrs(self) -> dict[str, Any]:
        labels = {"Labels": self.asked.get("labels") or {}}
        return {"Config": labels} if self.kind == "container" else labels

    def start(self) -> None:
        self.running = True

    def remove(self, **how: bool) -> None:
        if self.removed:
            raise NotFound("no such thing")
        if self.going:
            raise refused(409, f"removal of container {self.name} is already in progress")
        if self.kind == "container" and self.running and not how.get("force"):
            raise refused(409, "stop the container before you remove it")
        attached = [
            one for one in self.engine.made if one.asked.get("network") == self.name and not one.removed
        ]
        if self.kind == "network" and attached:
            raise refused(403, f"error while removing network: network {self.name} has active endpoints")
        self.removed = True


@dataclass
class Engine:
    """A container engine: what it was asked to make is there until it is removed."""

    made: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.containers = SimpleNamespace(create=self._container, list=self._lister("container"))
        self.networks = SimpleNamespace(create=self._network, list=self._lister("network"))
        self.images = SimpleNamespace(build=lambda **_: (SimpleNamespace(id="image"), ()))
        self.api = SimpleNamespace(create_endpoint_config=lambda **how: how)

    def close(self) -> None: ...

    def names(self) -> list[str]:
        return [one.name for one in self.made if not one.removed]

    def _container(self, image: str, command: list[str], *, name: str, **asked: Any) -> Made:
        self.made.append(Made(self, name, asked))
        return self.made[-1]

    def _network(self, name: str, **asked: Any) -> Made:
        self.made.append(Made(self, name, asked, "network"))
        return self.made[-1]

    def _lister(self, kind: str) -> Callable[..., list[Made]]:
        def listed(*, filters: dict[str, str], **_: bool) -> list[Made]:
            there = [one for one in self.made if one.kind == kind and not one.removed]
            return [one for one in there if filters["label"] in (one.asked.get("labels") or {})]

        return listed


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(docker_cluster, "connect", lambda: made)
    return made


def cluster_on(engine: Engine, directory: Path) -> DockerCluster:
    """Return a cluster whose hosts were made, and nothing else."""
    cluster = DockerCluster(SMALL)
    cluster._directory = directory
    directory.mkdir()
    cluster._check_machine()
    cluster._make_hosts()
    for worker in range(SMALL.workers):
        cluster._run_worker(worker, ["java", "Worker"], {"SPARK_HOME": "/spark"})
    return cluster


def test_all_that_a_cluster_makes_bears_its_label_and_a_host_has_its_limits(
    engine: Engine, tmp_path: Path
) -> None:
    cluster = cluster_on(engine, tmp_path / "one")
    assert [one.kind for one in engine.made] == ["network", "container", "container"]
    for one in engine.made:
        assert one.asked["labels"] == {CLUSTER_LABEL: cluster._marker()}, one.name
    hosts = engine.made[1:]
    for host in hosts:
        assert host.running
        assert host.asked["mem_limit"] == host.asked["memswap_limit"] == "1500m", "swap is no more memory"
        assert host.asked["cap_drop"] == ["ALL"] and host.asked["read_only"] is True
        assert host.asked["network"] == engine.made[0].name
    addresses = [next(iter(host.asked["networking_config"].values()))["ipv4_address"] for host in hosts]
    assert addresses == list(cluster.worker_hosts())


def test_a_cluster_that_stops_removes_its_own_hosts_and_those_of_no_other(
    engine: Engine, tmp_path: Path
) -> None:
    clusters = [cluster_on(engine, tmp_path / name) for name in ("one", "two", "three")]
    of_each = [engine.names()[3 * number : 3 * number + 3] for number in range(3)]
    left = list(itertools.chain(*of_each))
    for cluster, own in zip(clusters, of_each, strict=True):
        assert cluster._remove_hosts() == []
        left = [name for name in left if name not in own]
        assert engine.names() == left


def test_what_a_killed_harness_left_is_removed_by_the_next_start_and_what_runs_stays(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_on(engine, tmp_path / "alive")
    alive = engine.names()
    us = owners.this_process()
    killed = owners.ProcessIdentity(us.pid, us.created - 1_000)
    monkeypatch.setattr("barrier_tck.harness.cluster.cluster.this_process", lambda: killed)
    cluster_on(engine, tmp_path / "killed")
    monkeypatch.undo()
    monkeypatch.setattr(docker_cluster, "connect", lambda: engine)
    # While another start removes it, too.
    engine.made[-1].going = True
    assert remove_orphans(engine) == [engine.made[-2].name]
    assert engine.names() == [*alive, engine.made[3].name, engine.made[-1].name]
    engine.made[-1].going = False
    DockerCluster.reap_orphans()
    assert engine.names() == alive


def test_hosts_that_cannot_be_removed_keep_nothing_else_from_going(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is gone, for instance."""
    cluster = cluster_on(engine, tmp_path / "one")

    def gone(client: Any, cluster_id: str) -> list[str]:
        raise OperatingError("The container engine failed.")

    monkeypatch.setattr(docker_cluster, "remove_cluster", gone)
    with pytest.raises(LeftBehind, match="The container engine failed"):
        cluster.stop()
    assert not (tmp_path / "one").exists()


# --- one host ---------------------------------------------------------------------------------------------------


class HostContainer:
    """A container with the answers of a real engine, which refuses what makes no sense."""

    short_id, name = "0f", "host"

    def __init__(self) -> None:
        self.runs, self.dies = True, False
        self.address: str | None = "10.0.0.7"
        self.attrs: dict[str, Any] = {}

    def reload(self) -> None:
        networks: dict[str, Any] = {"hosts": {}} if self.address is not None else {}
        state = {"Running": self.runs, "Pid": 0, "ExitCode": 137}
        self.attrs = {"State": state, "NetworkSettings": {"Networks": networks}}

    def kill(self) -> None:
        if not self.runs:
            raise refused(409, "container is not running")
        self.dies = True

    def wait(self, **how: object) -> None:
        self.runs, self.dies = self.runs and not self.dies, False

    def start(self) -> None:
        assert not self.dies, "it has not ended yet"
        self.runs = True


class HostNetwork:
    """Its network, in which every address but one is somebody else's."""

    name = "hosts"

    def connect(self, container: HostContainer, ipv4_address: str = "10.0.0.99") -> None:
        if container.address is not None:
            raise refused(403, "endpoint with name host already exists in network hosts")
        container.address = ipv4_address

    def disconnect(self, container: HostContainer, force: bool = False) -> None:
        if container.address is None:
            raise refused(404, "container is not connected to network hosts")
        if not (container.runs or force):
            raise refused(409, "container is not running")
        container.address = None


STEPS = ("kill", "start", "disconnect", "reconnect")


@pytest.mark.parametrize("steps", list(itertools.product(STEPS, repeat=3)), ids="-".join)
def test_a_host_is_as_it_was_left_whatever_was_done_to_it_before(steps: tuple[str, ...]) -> None:
    """Faults come one after the other, also on a host that is down or off the network; each may come twice."""
    container = HostContainer()
    host = ContainerHost(container, HostNetwork(), "10.0.0.7")
    runs, connected = True, True
    for step in steps:
        getattr(host, step)()
        runs = {"kill": False, "start": True}.get(step, runs)
        connected = {"start": True, "disconnect": False, "reconnect": True}.get(step, connected)
        assert (host.is_running(), host.is_disconnected()) == (runs, not connected)
        assert container.address == ("10.0.0.7" if connected else None)


# --- processes of a host that stand still -------------------------------------------------------------------------

KEEPER = "sleep 600 & echo $!; sleep 600 & echo $!; sleep 600 & echo $!; wait"


@pytest.fixture
def processes() -> Iterator[list[psutil.Process]]:
    """Three processes below one keeper, as an engine has them; the first one is the container's."""
    with subprocess.Popen(["bash", "-c", KEEPER], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        below = [psutil.Process(int(keeper.stdout.readline())) for _ in range(3)]
        yield below
        for process in below:
            process.kill()
        keeper.kill()


def host_of(processes: list[psutil.Process]) -> ContainerHost:
    attrs = {"State": {"Running": True, "Pid": processes[0].pid}}
    return ContainerHost(
        SimpleNamespace(short_id="0f", reload=lambda: None, attrs=attrs), HostNetwork(), "10.0.0.7"
    )


def stands_still(process: psutil.Process) -> bool:
    return bool(process.status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize("standing", list(itertools.product([False, True], repeat=3)))
def test_a_host_is_paused_if_each_of_its_processes_stands_still_and_goes_on_with_all_of_them(
    processes: list[psutil.Process], standing: tuple[bool, ...]
) -> None:
    host = host_of(processes)
    for process, stands in zip(processes, standing, strict=True):
        if stands:
            process.suspend()
            eventually("it stands still", partial(stands_still, process))
    assert host.is_paused() == all(standing)
    host.pause()
    assert host.is_paused()
    host.resume()
    assert not [process for process in processes if process.status() == psutil.STATUS_STOPPED]


@pytest.mark.parametrize("host_first", [False, True])
def test_a_process_that_is_paused_twice_with_its_host_goes_on_when_both_pauses_are_over(
    processes: list[psutil.Process], host_first: bool
) -> None:
    host, worker = host_of(processes), SignalledProcess(processes[1].pid, "a worker", lambda: None)
    for pause in (host.pause, worker.pause) if host_first else (worker.pause, host.pause):
        pause()
    host.resume()
    assert [stands_still(process) for process in processes] == [False, True, False]
    host.pause()
    worker.resume()
    assert host.is_paused()
    host.resume()
    assert not any(stands_still(process) for process in processes)


@pytest.mark.parametrize("stubborn", range(3))
def test_a_host_that_cannot_be_paused_as_a_whole_goes_on_as_a_whole(
    processes: list[psutil.Process], stubborn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend = psutil.Process.suspend
    monkeypatch.setattr(container_host, "_STOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(
        psutil.Process, "suspend", lambda one: suspend(one) if one != processes[stubborn] else None
    )
    with pytest.raises(OperatingError, match="do not stop"):
        host_of(processes).pause()
    assert not [process for process in processes if process.status() == psutil.STATUS_STOPPED]
