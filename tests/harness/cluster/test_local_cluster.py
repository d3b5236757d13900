"""The local Spark cluster; grain: configuration in tables, then real processes (marked `spark`)."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from barrier_tck.harness.cluster.class_archive import SharedClasses
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.process_identity import (
    ExecutorProcess,
    command_line,
    marked_processes,
)
from barrier_tck.harness.cluster.settings import application_conf, bind_problem, write_properties
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.support.errors import (
    ClusterDidNotStart,
    EnvironmentProblem,
    OperatingError,
    PortInUse,
    UsageError,
)
from barrier_tck.harness.support.owners import ProcessIdentity, owner_in_short
from barrier_tck.reference_impl.spark.spark_options import session_settings
from tests.waiting import eventually

SMALL = LocalClusterConfig(
    workers=2, cores_per_worker=1, memory_per_worker_mb=512, startup_timeout_s=120, quick_start=True
)


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# ---------------------------------------------------------------------- without processes


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": 300}, "workers=300"),
        ({"cores_per_worker": 0}, "cores_per_worker=0"),
        ({"memory_per_worker_mb": 100}, "too small"),
        ({"memory_per_worker_mb": 512, "executor_memory_mb": 600}, "does not fit"),
        ({"driver_memory_mb": 10}, "driver_memory_mb=10"),
        ({"startup_timeout_s": 0}, "startup_timeout_s=0"),
        ({"master_port": 80}, "master_port=80"),
        ({"applications": 0}, "applications=0"),
    ],
)
def test_impossible_configuration_is_refused_by_name(values: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        LocalClusterConfig(**values)


def test_executor_gets_its_workers_memory_unless_told_otherwise() -> None:
    assert LocalClusterConfig(memory_per_worker_mb=700).executor_mb == 700
    assert LocalClusterConfig(memory_per_worker_mb=700, executor_memory_mb=500).executor_mb == 500


def test_executors_are_told_apart_by_their_application(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ExecutorProcess(0, "127.0.0.2", pid, "0", f"app-{pid}") for pid in (7, 8)]
    monkeypatch.setattr("barrier_tck.harness.cluster.cluster.executors_of", lambda *arguments: found)
    cluster = LocalCluster(LocalClusterConfig(workers=1, applications=2))
    monkeypatch.setattr(cluster, "_pid_of_worker", lambda worker: 1)
    assert [one.pid for one in cluster.executors()] == [7, 8]
    assert [one.pid for one in cluster.executors("app-8")] == [8]
    assert cluster.wait_for_executors(1, application="app-7") == (found[0],)
    with pytest.raises(OperatingError, match="1 of 2 executors"):
        cluster.wait_for_executors(2, 0.0, "app-7")


def test_cluster_that_is_not_running_says_how_to_run_one() -> None:
    with pytest.raises(UsageError, match="with LocalCluster"):
        LocalCluster().spark_conf()


def test_a_setting_of_spark_is_the_clusters_or_the_runtimes(tmp_path: Path) -> None:
    classes = SharedClasses(tmp_path / "archive", "first.jar")
    of_cluster = application_conf(SMALL, tmp_path, "127.0.0.1", "spark://127.0.0.1:7077", "secret", classes)
    assert not of_cluster.keys() & session_settings().keys()


def test_master_port_in_use_is_named_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert bind_problem("127.0.0.1", port) is not None
        with pytest.raises(PortInUse, match=str(port)) as caught:
            LocalCluster(LocalClusterConfig(master_port=port)).start()
    assert caught.value.exit_code == 3


def test_directory_that_cannot_be_written_is_an_environment_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = LocalClusterConfig(directory=tmp_path / "file" / "below")
    with pytest.raises(EnvironmentProblem, match="directory cannot be written"):
        LocalCluster(config).start()


def test_properties_file_is_private_and_keeps_backslashes(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    write_properties(path, {"a.b": "c\\d"})
    assert path.read_text() == "a.b c\\\\d\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_import_path_holds_the_source_tree_and_no_site_packages() -> None:
    entries = import_path().split(os.pathsep)
    assert str(Path(__file__).resolve().parents[3]) in entries or "site-packages" in __file__
    assert not any(Path(entry).name == "site-packages" for entry in entries[1:])


def test_import_path_leaves_out_packages_of_another_environment_that_this_one_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of this environment's own, they would hide a release that is tried here (decision 0088)."""
    seen, source = tmp_path / "seen", tmp_path / "source"
    for folder in (seen, source):
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(seen)])
    assert {str(seen), str(source)} & {*import_path().split(os.pathsep)} == {str(source)}


# ---------------------------------------------------------------------- with real processes


@pytest.fixture(scope="module")
def temporary_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A TMPDIR only for this module, so that leftovers can be seen."""
    root = tmp_path_factory.mktemp("tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(root))
        patch.setattr("tempfile.tempdir", str(root))
        yield root


def marked_pids(cluster_id: str) -> set[int]:
    return {process.pid for process, _ in marked_processes(cluster_id)}


@pytest.mark.nightly
@pytest.mark.spark
def test_killed_executor_fails_the_stage_and_is_replaced_and_nothing_is_left(temporary_root: Path) -> None:
    def gang(_rows: Any) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        context.barrier()
        yield context.partitionId()

    flags = temporary_root / "flags"
    flags.mkdir()

    def hold(_rows: Any) -> Iterator[int]:
        from pyspark import BarrierTaskContext

        (flags / str(BarrierTaskContext.get().partitionId())).touch()
        # It is held until it is killed; if it ended by itself, the test would fail.
        time.sleep(120)
        yield 0

    cluster = LocalCluster(SMALL)
    with cluster:
        directory = cluster.directory
        identity = json.loads((directory / "cluster.json").read_text())["cluster"]
        pids = {cluster.master_pid(), cluster.worker_pid(0), cluster.worker_pid(1)}
        port = int(cluster.master_url.rpartition(":")[2])
        secret = cluster.spark_conf()["spark.authenticate.secret"]
        with spark_session(cluster, "test", session_settings()) as spark:
            context = spark.sparkContext
            assert context.parallelize(range(2), 2).barrier().mapPartitions(gang).collect() == [0, 1]
            before = cluster.wait_for_executors(2)
            assert [executor.host for executor in before] == ["127.0.0.2", "127.0.0.3"]
            victim = before[0]
            python = cluster.python_processes(victim.pid)
            assert python
            assert {cluster.worker_of(pid) for pid in (victim.pid, *python)} == {0}
            assert cluster.worker_of(os.getpid()) is None
            assert cluster.classes is not None
            for pid in (*marked_pids(identity), *driver_jvms()):
                process = psutil.Process(pid)
                if "java" in process.name():
                    # A JVM that cannot use the archive does not say so, and takes twice as long to start.
                    mapped = [region.path for region in process.memory_maps()]
                    assert str(cluster.classes.archive) in mapped, command_line(process)
            for pid in marked_pids(identity):
                arguments = command_line(psutil.Process(pid))
                assert secret not in " ".join(arguments)
                if any(argument.startswith("org.apache.spark") for argument in arguments):
                    # The files that a killed JVM leaves are in the cluster's directory, which is removed.
                    assert f"-Djava.io.tmpdir={directory / 'tmp'}" in arguments
                    assert "-XX:-UsePerfData" in arguments

            running_job = job_beside(
                lambda: context.parallelize(range(2), 2).barrier().mapPartitions(hold).collect()
            )
            eventually("both tasks run", lambda: len(list(flags.iterdir())) == 2)
            os.kill(victim.pid, signal.SIGKILL)
            assert "ExecutorLostFailure" in running_job(30.0)
            eventually("the dead executor's Python workers are gone", lambda: not any(map(running, python)))
            assert cluster.stray_python_processes() == ()

            def replaced() -> bool:
                now = cluster.executors()
                return len(now) == 2 and victim.pid not in {executor.pid for executor in now}

            eventually("a replacement runs", replaced)
            assert context.parallelize(range(2), 2).barrier().mapPartitions(gang).collect() == [0, 1]
            driver = eventually("the driver's JVM is a child", driver_jvms)
            pids |= marked_pids(identity)
        assert not driver_jvms(), f"the driver's JVM {driver} outlived its session"

        # Once more, with settings that are only read when the driver's JVM starts.
        with spark_session(cluster, "again", {"spark.driver.memory": "600m"}) as spark:
            assert spark.range(10).count() == 10
            assert spark.sparkContext._jvm is not None
            most = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
            assert 500 * 2**20 < most <= 620 * 2**20
            # A signal to the whole process group may end the JVM before the session: nothing else goes wrong then.
            for pid in driver_jvms():
                os.kill(pid, signal.SIGKILL)
        assert not driver_jvms()
    assert not any(map(running, pids))
    assert not marked_pids(identity)
    assert not directory.exists()
    assert bind_problem("127.0.0.1", port) is None
    assert not list(temporary_root.glob("barrier-tck-*"))
    cluster.stop()  # closing twice is harmless


def job_beside(job: Callable[[], Any]) -> Callable[[float], str]:
    """Run `job` on another thread; return a function that waits for its failure and returns the text."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(job)
    pool.shutdown(wait=False)

    def failure(within_s: float) -> str:
        error = future.exception(within_s)
        assert error is not None, "the job succeeded although its executor was killed"
        return str(error)

    return failure


def driver_jvms() -> list[int]:
    """Return the pids of this process's JVM children."""
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "org.apache.spark.deploy.SparkSubmit" in command_line(child)]


CHILD = """
import sys, time
from pathlib import Path
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.spark_session import spark_session
cluster = LocalCluster(LocalClusterConfig(workers=1, cores_per_worker=1, memory_per_worker_mb=512, quick_start=True))
cluster.start()
with spark_session(cluster, "orphan") as spark:
    assert spark.range(3).rdd.map(lambda row: row.id).collect() == [0, 1, 2]
    print((cluster.directory / "cluster.json").read_text().replace(chr(10), " "), flush=True)
    print(cluster.directory, flush=True)
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("guard_dies_too", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_cluster_of_a_killed_harness_goes_away(temporary_root: Path, guard_dies_too: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            state = json.loads(child.stdout.readline())
            directory = Path(child.stdout.readline().strip())
            # The owner is alive, so nothing in its cluster is an orphan.
            assert not set(LocalCluster.reap_orphans()) & marked_pids(state["cluster"])
            assert directory.exists()
            family = {process.pid for process in psutil.Process(child.pid).children(recursive=True)}
            assert {process["pid"] for process in state["processes"].values()} <= family
            assert len(marked_pids(state["cluster"])) >= 4, "master, worker, executor, Python daemon"
            child.kill()
            if guard_dies_too:
                psutil.Process(state["processes"]["guard"]["pid"]).kill()
                eventually("its owner is dead", lambda: not running(child.pid))
                LocalCluster.reap_orphans()
            eventually("all its processes are gone", lambda: not any(map(running, family)))
            eventually("its directory is gone", lambda: not directory.exists())
            assert not marked_pids(state["cluster"])
        finally:
            child.kill()


def test_a_directory_is_removed_when_its_owner_is_dead_though_nothing_in_it_tells_the_owner(
    temporary_root: Path,
) -> None:
    """A driver lives a moment longer than its guard, and may write after the guard has removed everything."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        identity = ProcessIdentity(owner.pid, psutil.Process(owner.pid).create_time())
        assert owner_in_short(identity.short) == ProcessIdentity(owner.pid, float(int(identity.created)))
        directory = temporary_root / f"barrier-tck-cluster-{identity.short}-x_y"
        (directory / "tmp").mkdir(parents=True)
        LocalCluster.reap_orphans()
        assert directory.exists()
        owner.communicate(b"\n")
    LocalCluster.reap_orphans()
    assert not directory.exists()
    assert owner_in_short("driver") is None


@pytest.mark.spark
def test_worker_that_does_not_register_in_time_shows_the_end_of_its_log(temporary_root: Path) -> None:
    config = LocalClusterConfig(workers=1, startup_timeout_s=0.2)
    with pytest.raises(ClusterDidNotStart, match=r"did not come up within 0\.2 s"):
        LocalCluster(config).start()
    assert not list(temporary_root.glob("barrier-tck-cluster-*"))


@pytest.mark.long
@pytest.mark.spark
def test_given_directory_keeps_the_logs_and_loses_the_secret(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with LocalCluster(LocalClusterConfig(workers=1, directory=directory)) as cluster:
        assert [path.name for path in cluster.log_files()] == ["guard.log", "master.log", "worker-0.log"]
        with pytest.raises(EnvironmentProblem, match="belongs to a running cluster"):
            LocalCluster(LocalClusterConfig(workers=1, directory=directory)).start()
        secret = cluster.authentication_secret
    assert "Starting Spark master" in (directory / "master.log").read_text()
    for path in directory.rglob("*"):
        assert not path.is_file() or secret not in path.read_text(errors="replace"), path
