"""Hosts as containers; grain: what needs no engine, then real containers, then a Spark cluster (marked `spark`).

Where no engine can be reached, the tests that need one are skipped with the reason that `barrier-tck doctor` gives.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from docker.errors import APIError, NotFound
from docker.types import Mount

from barrier_tck.faults.injectors.connections import BlackHole
from barrier_tck.faults.packet_loss import PacketLoss
from barrier_tck.faults.targets import Direction, Impairment, TargetGone
from barrier_tck.harness.cluster.cluster_choice import cluster_of
from barrier_tck.harness.cluster.cluster_config import (
    ClusterKind,
    DockerClusterConfig,
    LocalClusterConfig,
    config_for_trials,
)
from barrier_tck.harness.cluster.containers import packet_loss
from barrier_tck.harness.cluster.containers.container_host import ContainerHost
from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster
from barrier_tck.harness.cluster.containers.engine import connect, problem_of
from barrier_tck.harness.cluster.containers.host_files import (
    environment_of_host,
    files_of_machine,
    outermost,
)
from barrier_tck.harness.cluster.containers.image import host_image
from barrier_tck.harness.cluster.containers.labelled import CLUSTER_LABEL, remove_cluster, remove_orphans
from barrier_tck.harness.cluster.host import Host
from barrier_tck.harness.cluster.host_targets import ExecutorWithoutMemory, LinkOfHost
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import Java, find_java
from barrier_tck.harness.cluster.local_cluster import LocalCluster
from barrier_tck.harness.cluster.signalled_process import SignalledProcess
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.support.errors import EnvironmentProblem, OperatingError, UsageError
from barrier_tck.harness.support.owners import this_process
from tests.waiting import eventually

SMALL = DockerClusterConfig(workers=2, cores_per_worker=1, memory_per_worker_mb=512, quick_start=True)
HERE = {"OSType": "linux", "Name": platform.node(), "KernelVersion": platform.release(), "MemoryLimit": True}


# ---------------------------------------------------------------------- without an engine


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"OSType": "windows"}, "need Linux"),
        ({"Name": "far-away"}, "runs on far-away"),
        ({"KernelVersion": "0.0"}, "kernel 0.0"),
        ({"MemoryLimit": False}, "no MemoryLimit"),
    ],
)
def test_an_engine_that_cannot_run_hosts_is_refused(changed: dict[str, Any], text: str) -> None:
    assert problem_of(HERE) is None
    assert text in str(problem_of(HERE | changed))


def test_no_engine_is_an_environment_problem_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")
    with pytest.raises(EnvironmentProblem, match="apt-get install"):
        connect()


def test_a_host_is_not_shown_the_harness_environment() -> None:
    ours = {"TOKEN": "secret", "PATH": "/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    wanted = ours | {"SPARK_HOME": "/spark", "TMPDIR": "/cluster/tmp"}
    assert environment_of_host(wanted, ours) == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "SPARK_HOME": "/spark",
        "TMPDIR": "/cluster/tmp",
    }


def test_no_directory_is_mounted_within_another_and_never_the_root() -> None:
    places = [Path(name) for name in ("/usr/lib", "/", "/usr", "/srv/a", "/srv/ab", "/usr")]
    assert outermost(places) == (Path("/srv/a"), Path("/srv/ab"), Path("/usr"))


def test_hosts_see_spark_java_python_and_the_project_and_with_a_base_image_no_system_directories() -> None:
    java = Java(Path("/java/home/bin/java"), 17, "17")
    whole, own = files_of_machine(java, with_system=True), files_of_machine(java, with_system=False)
    for needed in (
        spark_home(),
        Path(sys.prefix),
        Path("/java/home"),
        Path(import_path().split(os.pathsep)[0]),
    ):
        assert any(needed.is_relative_to(place) for place in whole), needed
    assert Path("/usr") in whole
    assert not [place for place in own if place.is_relative_to("/usr")]


def test_the_kind_of_cluster_decides_what_is_made_and_which_settings_there_are() -> None:
    docker = config_for_trials(ClusterKind.DOCKER, 2, 1, 512, base_image="debian", host_memory_mb=2_000)
    assert isinstance(docker, DockerClusterConfig)
    assert (docker.base_image, docker.host_mb, docker.executor_mb) == ("debian", 2_000, 512)
    assert isinstance(cluster_of(docker), DockerCluster)
    local = config_for_trials(ClusterKind.LOCAL, 2, 1, 512)
    assert isinstance(local, LocalClusterConfig)
    assert isinstance(cluster_of(local), LocalCluster)
    with pytest.raises(UsageError, match="choose the cluster docker"):
        config_for_trials(ClusterKind.LOCAL, 2, 1, 512, base_image="debian")
    with pytest.raises(UsageError, match="host_memory_mb=600"):
        DockerClusterConfig(memory_per_worker_mb=512, host_memory_mb=600)


def test_a_cluster_that_does_not_run_has_no_addresses() -> None:
    with pytest.raises(UsageError, match="with DockerCluster"):
        DockerCluster(SMALL).worker_host(0)


class OneOf:
    """A container or network of a pretended engine."""

    def __init__(self, name: str, label: str, error: Exception | None = None) -> None:
        self.name, self.attrs, self._error = name, {"Labels": {CLUSTER_LABEL: label}}, error
        self.removed = False

    def remove(self, **_how: bool) -> None:
        self.removed = True
        if self._error is not None:
            raise self._error


def pretended(containers: list[OneOf], networks: list[OneOf]) -> Any:
    def listing(all_of_them: list[OneOf]) -> Any:
        return SimpleNamespace(list=lambda **_: [one for one in all_of_them if not one.removed])

    return SimpleNamespace(containers=listing(containers), networks=listing(networks))


def test_only_what_has_lost_its_harness_is_removed() -> None:
    us = this_process()
    alive, dead = f"a:{us.pid}:{us.created!r}", f"b:{us.pid}:{us.created - 1_000!r}"
    going = APIError("going", response=SimpleNamespace(status_code=409))
    containers = [
        OneOf("a-0", alive),
        OneOf("b-0", dead),
        OneOf("b-1", dead, NotFound("gone")),
        OneOf("b-2", dead, going),
    ]
    networks = [OneOf("a", alive), OneOf("b", dead)]
    assert remove_orphans(pretended(containers, networks)) == ["b-0", "b"]
    assert [one.name for one in [*containers, *networks] if not one.removed] == ["a-0", "a"]


def test_what_is_left_of_a_cluster_is_told() -> None:
    stays = OneOf("c-0", "c:1:1.0")
    engine = pretended([stays], [OneOf("c", "c:1:1.0")])
    engine.containers.list = lambda **_: [stays]
    assert remove_cluster(engine, "c") == ["container c-0"]


def test_a_network_with_other_addresses_is_made_if_some_are_taken() -> None:
    asked: list[str] = []

    def create(_name: str, **how: Any) -> object:
        asked.append(how["ipam"]["Config"][0]["Subnet"])
        if len(asked) < 3:
            raise APIError(
                "x", response=SimpleNamespace(status_code=403, url="", reason=""), explanation="Pool overlaps"
            )
        return "network"

    cluster = DockerCluster(SMALL)
    cluster._client = SimpleNamespace(networks=SimpleNamespace(create=create))
    assert cluster._made_network() == "network"
    assert len(set(asked)) == 3
    assert cluster.worker_host(1) == asked[2].replace("0/24", "11")


@pytest.mark.parametrize(("code", "answers"), [(0, True), (1, True), (124, False)])
def test_hosts_that_cannot_reach_one_another_are_a_problem_of_the_machine(code: int, answers: bool) -> None:
    """A refused connection is an answer. Only silence is none."""
    asked: list[list[str]] = []

    def execute(command: list[str]) -> tuple[int, bytes]:
        asked.append(command)
        return code, b""

    container = SimpleNamespace(exec_run=execute, short_id="0f", reload=lambda: None)
    cluster = DockerCluster(SMALL)
    cluster._prefix = "10.213.7."
    cluster._hosts = {number: ContainerHost(container, None, f"10.213.7.{number}") for number in (0, 1, 2)}
    with contextlib.nullcontext() if answers else pytest.raises(EnvironmentProblem, match="no answer from"):
        cluster._check_network()
    assert [command[-1] for command in asked] == ["exec 3<>/dev/tcp/10.213.7.11/9"]


class PretendedHost:
    """A host that notes what is done to it."""

    description = "host 10.0.0.1"

    def __init__(self) -> None:
        self.done: list[str] = []
        self.runs = True

    def disconnect(self) -> None:
        self.done.append("disconnect")

    def reconnect(self) -> None:
        self.done.append("reconnect")

    def is_running(self) -> bool:
        return self.runs

    def is_disconnected(self) -> bool:
        return self.done[-1:] == ["disconnect"]

    def lose_packets(self, per_mille: int) -> None:
        self.done.append(f"lose {per_mille}")

    def keep_packets(self) -> None:
        self.done.append("keep")

    def loses_packets(self) -> bool:
        return self.done[-1:] == ["lose 100"]


class PretendedLink:
    description = "link"

    def __init__(self) -> None:
        self.impairments: list[Impairment] = []

    def impair(self, impairment: Impairment) -> None:
        self.impairments.append(impairment)

    def is_impaired(self) -> bool:
        return bool(self.impairments)

    def heal(self) -> None:
        self.impairments.clear()


def test_a_host_cut_off_both_ways_is_taken_off_the_network_and_other_disturbances_go_through_proxies() -> (
    None
):
    host, link = PretendedHost(), PretendedLink()
    target = LinkOfHost(cast("Host", host), [link])
    target.impair(BlackHole())
    assert target.is_impaired()
    assert host.done == ["disconnect"]
    assert link.impairments == []
    target.heal()
    target.heal()
    assert host.done == ["disconnect", "reconnect"]
    target.impair(BlackHole(direction=Direction.FORWARD))
    assert target.is_impaired()
    assert link.impairments == [BlackHole(direction=Direction.FORWARD)]
    target.heal()
    assert link.impairments == []
    assert host.done == ["disconnect", "reconnect"]
    host.runs = False
    with pytest.raises(TargetGone):
        target.impair(BlackHole())


def test_packets_are_lost_on_the_network_of_a_host_and_not_by_proxies() -> None:
    host, link = PretendedHost(), PretendedLink()
    target = LinkOfHost(cast("Host", host), [link])
    target.impair(PacketLoss(per_mille=100, lasts_ms=1_000))
    assert target.is_impaired() and not link.impairments
    target.heal()
    target.heal()
    assert host.done == ["lose 100", "keep"]
    assert not target.is_impaired()


SENT = 300
_SENDER = f"""
import socket
receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
receiver.bind(("127.0.0.1", 0))
receiver.setblocking(False)
arrived = 0
for _ in range({SENT}):
    try:
        sender.sendto(b"x", receiver.getsockname())
        arrived += bool(receiver.recv(1))
    except (PermissionError, BlockingIOError):
        pass
print(arrived)
"""


def test_the_kernel_loses_packets_in_the_network_of_a_process_and_nowhere_else() -> None:
    if (why := packet_loss.why_no_packets_are_lost()) is not None:
        pytest.skip(f"no packets can be lost here: {why}")

    def arrived() -> int:
        inside = ["nsenter", f"--net=/proc/{alone.pid}/ns/net", sys.executable, "-c", _SENDER]
        return int(subprocess.run(inside, capture_output=True, check=True).stdout)

    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep 60"],
        stdout=subprocess.PIPE,
    ) as alone:
        assert alone.stdout is not None and alone.stdout.readline() == b"ready\n"
        try:
            assert not packet_loss.lasts(alone.pid) and arrived() == SENT
            packet_loss.begin(alone.pid, 100)
            packet_loss.begin(alone.pid, 500)
            assert packet_loss.lasts(alone.pid) and 0 < arrived() < SENT
            assert not packet_loss.lasts(os.getpid())
            packet_loss.end(alone.pid)
            packet_loss.end(alone.pid)
            assert not packet_loss.lasts(alone.pid) and arrived() == SENT
        finally:
            alone.kill()


# ---------------------------------------------------------------------- containers


@pytest.fixture
def engine() -> Iterator[Any]:
    try:
        client = connect()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    with contextlib.closing(client):
        yield client


@pytest.fixture
def pretended_owner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for another harness."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def owned_by(process: psutil.Process, cluster: str) -> dict[str, str]:
    return {CLUSTER_LABEL: f"{cluster}:{process.pid}:{process.create_time()!r}"}


LIMIT_MB, TAKEN_MB = 64, 24
HOLDER = f"import time; held = b'1' * ({TAKEN_MB} << 20); time.sleep(600)"
SLEEPERS = ["/bin/bash", "-c", f'"{sys.executable}" -I -S -c "{HOLDER}" & exec sleep 600']


@pytest.fixture
def host(engine: Any) -> Iterator[ContainerHost]:
    """A container as clusters make them, in which two processes sleep, and one of them holds memory."""
    cluster = DockerCluster(SMALL)
    cluster._client = engine
    labels = {CLUSTER_LABEL: cluster._marker()}
    try:
        cluster._network = network = cluster._made_network()
        address = cluster.worker_host(0)
        container = engine.containers.create(
            host_image(engine, ""),
            SLEEPERS,
            labels=labels,
            pid_mode="host",
            mounts=mounts_of_machine(),
            mem_limit=f"{LIMIT_MB}m",
            memswap_limit=f"{LIMIT_MB}m",
            network=network.name,
            networking_config={network.name: engine.api.create_endpoint_config(ipv4_address=address)},
        )
        container.start()
        yield ContainerHost(container, network, address)
    finally:
        assert remove_cluster(engine, cluster._id) == []


def mounts_of_machine() -> list[Mount]:
    places = files_of_machine(find_java(), with_system=True)
    return [Mount(str(place), str(place), "bind", read_only=True) for place in places]


def family(host: ContainerHost) -> list[psutil.Process]:
    assert host.pid is not None
    first = psutil.Process(host.pid)
    return [first, *first.children(recursive=True)]


def both_of(host: ContainerHost) -> tuple[psutil.Process, psutil.Process]:
    """Return the host's first process and the one that it starts, which begins a moment later."""
    found = eventually("its child has begun", lambda: family(host)[1:])
    return family(host)[0], found[0]


@pytest.mark.long
def test_a_host_is_killed_with_all_its_processes_and_starts_again_with_its_address(
    host: ContainerHost,
) -> None:
    before = family(host)
    assert host.is_running()
    host.kill()
    assert not host.is_running() and host.exit_code == 137
    assert not any(process.is_running() for process in before)
    assert not host.is_paused(), "nothing stands still where nothing is"
    host.kill()
    host.disconnect()
    host.start()
    assert host.is_running() and not host.is_disconnected()
    assert family(host)[0] not in before


def test_a_paused_host_stands_still_and_goes_on(host: ContainerHost) -> None:
    assert not host.is_paused()
    host.pause()
    assert host.is_paused()
    assert {process.status() for process in family(host)} == {psutil.STATUS_STOPPED}
    host.resume()
    assert not host.is_paused()
    assert psutil.STATUS_STOPPED not in {process.status() for process in family(host)}
    host.pause()
    host.kill()
    assert not host.is_running(), "a paused host can be killed"


def test_a_disconnected_host_has_no_network_and_comes_back_with_its_address(host: ContainerHost) -> None:
    def addresses() -> str:
        return Path(f"/proc/{host.pid}/net/fib_trie").read_text()

    address = host.description.split()[1]
    assert address in addresses()
    host.disconnect()
    host.disconnect()
    assert host.is_disconnected() and host.is_running()
    assert address not in addresses()
    host.reconnect()
    host.reconnect()
    assert not host.is_disconnected()
    assert address in addresses()


def test_the_kernel_kills_whom_it_shall_when_a_host_has_no_memory_left(host: ContainerHost) -> None:
    first, other = both_of(host)
    eventually("it holds memory", lambda: other.memory_info().rss > TAKEN_MB << 20)
    assert host.kills_for_memory() == 0
    target = ExecutorWithoutMemory(SignalledProcess(other.pid, "it", lambda: None), other.pid, host)
    target.kill()
    assert target.is_dead()
    killed = host.kills_for_memory()
    assert killed > 0 and target.description == f"it, where the kernel killed {killed} for want of memory"
    assert host.is_running() and first.status() == psutil.STATUS_SLEEPING
    with pytest.raises(TargetGone):
        target.kill()


def test_a_host_that_may_use_more_memory_than_there_is_does_not_use_it_up(
    host: ContainerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = both_of(host)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=LIMIT_MB << 20))
    with pytest.raises(OperatingError, match="Set host_memory_mb"):
        host.exhaust_memory(other.pid)
    assert other.is_running() and host.kills_for_memory() == 0


def test_containers_and_networks_of_a_killed_harness_are_removed_and_others_stay(
    engine: Any, pretended_owner: subprocess.Popen[bytes]
) -> None:
    labels = owned_by(psutil.Process(pretended_owner.pid), "killed")
    try:
        network = engine.networks.create("barrier-tck-test-killed", internal=True, labels=labels)
        container = engine.containers.create(
            host_image(engine, ""), ["/none"], labels=labels, network=network.name
        )
        assert not {container.name, network.name} & set(remove_orphans(engine)), "its owner is alive"
        pretended_owner.kill()
        pretended_owner.wait()
        assert {container.name, network.name} <= set(remove_orphans(engine))
        with pytest.raises(NotFound):
            container.reload()
    finally:
        remove_cluster(engine, "killed")


def test_a_base_image_that_nobody_has_is_an_environment_problem(engine: Any) -> None:
    with pytest.raises(EnvironmentProblem, match="docker import"):
        host_image(engine, "localhost:1/barrier-tck/nobody-has-this")


@pytest.mark.spark
@pytest.mark.nightly
def test_spark_goes_on_when_a_host_is_killed_or_unplugged_and_nothing_is_left(engine: Any) -> None:
    with DockerCluster(SMALL) as cluster, spark_session(cluster, "hosts") as spark:

        def total() -> int:
            return int(spark.sparkContext.parallelize(range(100), 2).map(lambda number: number * 2).sum())

        assert total() == 9_900
        executors = cluster.wait_for_executors(2)
        assert [executor.host for executor in executors] == list(cluster.worker_hosts())
        assert cluster.worker_of(executors[1].pid) == 1
        assert cluster.python_processes(executors[0].pid)
        limits = [one.attrs["HostConfig"]["Memory"] >> 20 for one in of_cluster(engine, cluster)]
        assert limits == [SMALL.host_mb] * 2

        killed = cluster.host(executors[0].host)
        assert killed is not None
        killed.kill()
        assert total() == 9_900, "the other executor takes over"
        assert [executor.worker for executor in cluster.executors()] == [1]
        killed.start()
        cluster.wait_for_executors(2, 60)

        unplugged = cluster.host(executors[1].host)
        assert unplugged is not None
        unplugged.disconnect()
        assert unplugged.is_disconnected()
        unplugged.reconnect()
        assert total() == 9_900
        directory = cluster.directory
    assert not directory.exists()
    assert of_cluster(engine, cluster) == []
    assert not engine.networks.list(names=[f"barrier-tck-{cluster._id}"])


def of_cluster(engine: Any, cluster: DockerCluster) -> list[Any]:
    return [
        one for one in engine.containers.list(all=True) if one.labels.get(CLUSTER_LABEL) == cluster._marker()
    ]
