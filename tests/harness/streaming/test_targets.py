"""What faults hit while a query runs; grain: real processes without Spark, on hosts that are pretended."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.exhaust_memory import ExhaustMemory
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import Peers, WriteFault
from barrier_tck.harness.cluster import signalled_process
from barrier_tck.harness.cluster.host_targets import LastingLoss
from barrier_tck.harness.cluster.process_identity import ExecutorProcess
from barrier_tck.harness.cluster.signalled_process import SignalledProcess
from barrier_tck.harness.streaming.checkpoint_outages import CheckpointOutages
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites
from barrier_tck.harness.streaming.query_targets import TASKS, QueryTargets
from tests.waiting import PATIENCE_S, eventually

APPLICATION = "app-1"
# As Spark has it: the executor starts a daemon, and the daemon forks the Python worker of a task.
LINEAGE = "bash -c 'sleep 600 & echo $!; wait' & wait"


class Task:
    """An executor, and the Python worker of a task two generations below it."""

    def __init__(self, number: int) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", LINEAGE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.worker = int(self.process.stdout.readline())
        self.family = [
            *psutil.Process(self.process.pid).children(recursive=True),
            psutil.Process(self.process.pid),
        ]
        self.executor = ExecutorProcess(
            number, f"10.0.0.{number}", self.process.pid, str(number), APPLICATION
        )

    def kill(self) -> None:
        for process in self.family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@pytest.fixture
def tasks() -> Iterator[list[Task]]:
    started = [Task(number) for number in range(3)]
    yield started
    for task in started:
        task.kill()
        assert task.process.stdout is not None
        task.process.stdout.close()


@dataclass
class Host:
    """A host on which a task runs; what it fails to do, it does not do and does not tell."""

    task: Task
    fails: frozenset[str] = frozenset()
    standing: bool = False
    unplugged: bool = False
    lossy: bool = False
    killed_for_memory: int = 0
    description: str = "a host"
    started: list[str] = field(default_factory=list)
    hit: bool = False
    """Whether anything was done to it that a fault does."""

    def kill(self) -> None:
        self.hit = True
        if "kill" not in self.fails:
            self.task.kill()

    def start(self) -> None:
        self.started.append("again")

    def is_running(self) -> bool:
        return True

    def pause(self) -> None:
        self.hit = True
        self.standing = "pause" not in self.fails

    def resume(self) -> None:
        self.standing = False

    def is_paused(self) -> bool:
        return self.standing

    def exhaust_memory(self, victim: int) -> None:
        assert victim == self.task.process.pid
        self.hit = True
        if "exhaust" not in self.fails:
            self.task.kill()
        self.killed_for_memory += not {"exhaust", "count"} & self.fails

    def kills_for_memory(self) -> int:
        return self.killed_for_memory

    def lose_packets(self, per_mille: int) -> None:
        self.hit = True
        self.lossy = "lose" not in self.fails

    def keep_packets(self) -> None:
        self.lossy = False

    def loses_packets(self) -> bool:
        return self.lossy

    def disconnect(self) -> None:
        self.hit = True
        self.unplugged = "disconnect" not in self.fails

    def reconnect(self) -> None:
        self.unplugged = False

    def is_disconnected(self) -> bool:
        return self.unplugged


class PretendedCluster:
    """Executors that run, and hosts if there are any."""

    def __init__(self, directory: Path, tasks: list[Task], hosts: dict[str, Host]) -> None:
        self.directory, self.tasks, self.hosts = directory, tasks, hosts

    def executors(self, application: str | None = None) -> tuple[ExecutorProcess, ...]:
        return tuple(task.executor for task in self.tasks if application in (None, APPLICATION))

    def host(self, address: str) -> Host | None:
        return self.hosts.get(address)

    def local_directory(self, address: str) -> Path:
        return self.directory / address / "local"


def targets_of(
    directory: Path, tasks: list[Task], hosts: dict[str, Host], writes: DisturbedWrites | None = None
) -> QueryTargets:
    cluster: Any = PretendedCluster(directory, tasks, hosts)
    storage = CheckpointOutages(directory / "checkpoint")
    return QueryTargets(cluster, lambda: tasks[0].process.pid, lambda: APPLICATION, storage, writes)


def test_each_task_that_stands_at_a_point_is_hit_in_its_own_worker_and_executor(
    tasks: list[Task], tmp_path: Path
) -> None:
    """Tasks stand at points at the same time, each served by a thread of its own."""
    targets = targets_of(tmp_path, tasks, {})
    all_stand, hit = threading.Barrier(len(tasks)), dict[int, tuple[str, str]]()

    def stand(task: Task) -> None:
        with targets.standing_in(task.worker):
            all_stand.wait(PATIENCE_S)
            worker, executor = targets.worker_of(TASKS), targets.executor_of(TASKS)
            assert worker is not None and executor is not None
            hit[task.worker] = worker.description, executor.description
            all_stand.wait(PATIENCE_S)

    threads = [threading.Thread(target=stand, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert hit == {
        task.worker: (
            f"Python worker of a task (pid {task.worker})",
            f"executor (pid {task.process.pid}) on {task.executor.host}",
        )
        for task in tasks
    }


def test_between_tasks_the_one_that_began_last_is_hit_and_another_executor_if_it_is_gone(
    tasks: list[Task], tmp_path: Path
) -> None:
    targets = targets_of(tmp_path, tasks, {})
    with targets.standing_in(tasks[2].worker):
        pass
    found = targets.executor_of(TASKS)
    assert found is not None and f"pid {tasks[2].process.pid}" in found.description
    tasks[2].kill()
    # It is not our child: nobody can wait for its end.
    eventually("its worker is gone", lambda: (last := targets.worker_of(TASKS)) is None or last.is_dead())
    found = targets.executor_of(TASKS)
    assert found is not None and f"pid {tasks[0].process.pid}" in found.description


# --- the proof that a fault struck -----------------------------------------------------------------------------

NOTHING_KILLS, NOTHING_STOPS, NOTHING_IS_REMOVED = "signals kill nobody", "signals stop nobody", "files stay"
NOT_TAKEN_AWAY, NOT_DISTURBED = "storage stays", "writes go through"
CASES: list[tuple[Fault, bool, str]] = [
    (CrashCoordinator(), False, NOTHING_KILLS),
    (KillExecutor(TASKS), False, NOTHING_KILLS),
    (KillWorker(TASKS), False, NOTHING_KILLS),
    (PauseExecutor(TASKS, 100), False, NOTHING_STOPS),
    (PauseWorker(TASKS, 100), False, NOTHING_STOPS),
    (FailPrimaryWrites(TASKS), False, NOT_TAKEN_AWAY),
    (FailPrimaryWrites(TASKS, metadata=True), False, NOT_TAKEN_AWAY),
    (DisturbWrites(WriteFault.FULL), False, NOT_DISTURBED),
    (PauseExecutor(TASKS, 100), True, "pause"),
    (PartitionExecutor(TASKS, Peers.EVERYONE, 100), True, "disconnect"),
    (LoseHost(TASKS), True, "kill"),
    (LoseHost(TASKS), True, NOTHING_IS_REMOVED),
    (ExhaustMemory(TASKS), True, "exhaust"),
    (ExhaustMemory(TASKS), True, "count"),
]
"""A fault, whether hosts can be hit as a whole, and what does not happen although it is asked for."""


@pytest.mark.parametrize(
    ("fault", "whole_hosts", "what_fails"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}, {case[2]}") for case in CASES],
)
@pytest.mark.parametrize("struck", [True, False], ids=["it happens", "it does not"])
def test_a_fault_counts_as_fired_if_it_happened_and_never_otherwise(
    tasks: list[Task],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    whole_hosts: bool,
    what_fails: str,
    struck: bool,
) -> None:
    monkeypatch.setattr(signalled_process, "_SIGNAL_TIMEOUT_S", 5.0 if struck else 0.02)
    fails = frozenset() if struck else frozenset({what_fails})
    hosts = {task.executor.host: Host(task, fails) for task in tasks} if whole_hosts else {}
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    for task in tasks:
        (tmp_path / task.executor.host / "local" / "blocks").mkdir(parents=True)

    def try_write(path: str) -> str:
        if NOT_DISTURBED not in fails:
            token = max(writes.directory.glob("token-*"))
            token.unlink()
            with open(log, "a") as proofs:
                proofs.write(f"{token.name.partition('.')[0]} full {path}\n")
        return ""

    writes = DisturbedWrites(tmp_path / "writes", try_write)
    log = writes.directory / "struck"
    log.write_text("token-9999 full offsets/0\n")  # an earlier fault of the same trial has left its proof
    targets = targets_of(tmp_path, tasks, hosts, writes)
    if NOTHING_KILLS in fails:
        monkeypatch.setattr(psutil.Process, "kill", lambda process: None)
    if NOTHING_STOPS in fails:
        monkeypatch.setattr(psutil.Process, "suspend", lambda process: None)
    if NOT_TAKEN_AWAY in fails:
        monkeypatch.setattr(CheckpointOutages, "take_away", lambda *_, **__: None)
    if NOTHING_IS_REMOVED in fails:
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with targets.standing_in(tasks[1].worker):
        injection = fault.inject(targets, time.sleep if struck else lambda seconds: None)
    monkeypatch.undo()
    if injection.heal is not None:
        injection.heal()
    assert injection.outcome == ("fired" if struck else "not_fired"), injection
    assert [host.task for host in hosts.values() if host.hit] == (tasks[1:2] if hosts else []), "its own host"
    assert not [host for host in hosts.values() if host.standing or host.unplugged], (
        "nothing stays as it was hit"
    )


def test_a_lasting_loss_ends_with_a_host_that_runs_again(tasks: list[Task]) -> None:
    host, worker = Host(tasks[0]), SignalledProcess(tasks[1].process.pid, "a worker", lambda: None)
    executor = SignalledProcess(tasks[0].process.pid, "an executor", lambda: None, with_children=True)
    loss = LastingLoss(executor, worker, host)
    loss.kill()
    assert executor.is_dead() and host.started == []
    loss.undo()
    assert host.started == ["again"]
