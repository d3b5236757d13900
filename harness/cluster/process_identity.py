"""Finds and ends the processes of local clusters: by identity, by marker, by command line."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from barrier_tck.harness.support.errors import InternalError, LeftBehind
from barrier_tck.harness.support.owners import ProcessIdentity

#: Every process of a cluster carries this variable: `<cluster id>:<owner's pid>:<owner's start time>`.
MARKER = "BARRIER_TCK_CLUSTER"

_KILL_TIMEOUT_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ExecutorProcess:
    """One running executor JVM: where it runs and what Spark calls it."""

    worker: int
    host: str
    pid: int
    executor_id: str
    application: str
    """The id of the application that it works for."""


def marked_processes(cluster_id: str | None = None) -> Iterator[tuple[psutil.Process, ProcessIdentity]]:
    """Every process that carries the marker of one cluster, or of any, with the cluster's owner."""
    for process in psutil.process_iter():
        try:
            marker = process.environ().get(MARKER)
            if marker is None or process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
        except (psutil.AccessDenied, psutil.NoSuchProcess, OSError):
            # Another user's process, or one that just ended: neither is ours.
            continue
        identity, _, owner = marker.partition(":")
        pid, _, created = owner.partition(":")
        if cluster_id is None or identity == cluster_id:
            yield process, ProcessIdentity(int(pid), float(created))


def kill_until_gone(find: Callable[[], Iterator[psutil.Process]]) -> tuple[int, ...]:
    """SIGKILL what `find` finds until it finds nothing (a worker may just have started an executor)."""
    killed: dict[int, None] = {}
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while found := list(find()):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed[process.pid] = None
        if time.monotonic() > deadline:
            raise LeftBehind(f"These processes survive SIGKILL: {[process.pid for process in found]}.")
        psutil.wait_procs(found, timeout=_POLL_S)
    return tuple(killed)


def owner_in_state_file(path: Path) -> ProcessIdentity | None:
    """The owner that a state file names; None if there is no such file or it was not finished."""
    try:
        owner = json.loads(path.read_text())["owner"]
        return ProcessIdentity(int(owner["pid"]), float(owner["created"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def command_line(process: psutil.Process) -> list[str]:
    """Its arguments; none if it has just ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def is_python_worker(process: psutil.Process) -> bool:
    """Whether it is a PySpark daemon or one of the workers that the daemon forks."""
    return any(argument.startswith("pyspark.") for argument in command_line(process))


def executors_of(daemon: int, worker: int, host: str) -> list[ExecutorProcess]:
    """The executor JVMs that a worker's daemon runs now, in order of pid."""
    try:
        children = psutil.Process(daemon).children()
    except psutil.NoSuchProcess:
        # A killed worker has no executors: they end when their worker's connection closes.
        return []
    found = []
    for child in children:
        arguments = command_line(child)
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in arguments:
            names = (_option(arguments, option) for option in ("--executor-id", "--app-id"))
            found.append(ExecutorProcess(worker, host, child.pid, *names))
    return sorted(found, key=lambda executor: executor.pid)


def _option(arguments: list[str], name: str) -> str:
    """The value after option `name` on a command line that Spark made."""
    try:
        return arguments[arguments.index(name) + 1]
    except (ValueError, IndexError) as error:
        raise InternalError(f"A Spark executor's command line has no {name}: {arguments}") from error
