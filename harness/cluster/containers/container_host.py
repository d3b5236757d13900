"""One host of a cluster of containers."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from barrier_tck.harness.cluster.containers import memory_filler, packet_loss
from barrier_tck.harness.cluster.containers.engine import problems
from barrier_tck.harness.cluster.containers.memory_limit import first_to_die, kills_for_memory
from barrier_tck.harness.cluster.stopped_processes import go_on, stop
from barrier_tck.harness.support.errors import OperatingError

_END_TIMEOUT_S = 20
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.002
_ANSWER_S = 30
_TIMED_OUT = 124
"""The exit code of ``timeout``."""
_DISCARD = 9
"""A port on which nothing listens. A refusal is an answer, too."""
_STANDING = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class ContainerHost:
    """A container with one address; implements ``barrier_tck.harness.cluster.host.Host``."""

    def __init__(self, container: Any, network: Any, address: str) -> None:
        self._container = container
        self._network = network
        self._address = address
        self._pauses: list[list[psutil.Process]] = []
        """The processes that each pause holds which is not over."""

    @property
    def description(self) -> str:
        """Return address and container."""
        return f"host {self._address} (container {self._container.short_id})"

    @property
    def pid(self) -> int | None:
        """The pid of its first process on this machine; None if it does not run."""
        return int(self._state()["Pid"]) or None

    @property
    def exit_code(self) -> int | None:
        """How its first process has ended; None if it runs."""
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def kill(self) -> None:
        if not self.is_running():
            return
        with problems():
            self._container.kill()
            self._container.wait(timeout=_END_TIMEOUT_S, condition="not-running")

    def start(self) -> None:
        """Start the container again, on the network."""
        self.reconnect()
        with problems():
            self._container.start()

    def is_running(self) -> bool:
        """Ask the engine."""
        return bool(self._state()["Running"])

    def pause(self) -> None:
        """Send SIGSTOP to every process in the container.

        The engine's own pause needs a freezer that gives up on busy processes (decision 0050).
        """
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        held: list[psutil.Process] = []
        self._pauses.append(held)
        # Those that stand already are held, too: another pause may end before this one.
        while new := [process for process in self._processes() if not _stands(process, held)]:
            # Again and again: what was forked meanwhile is stopped in the next round.
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process in held:
                        process.suspend()
                    else:
                        stop(process)
                        held.append(process)
            if time.monotonic() > deadline:
                self.resume()
                raise OperatingError(f"Processes of the {self.description} do not stop.")
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """End the latest pause: every process that no other pause holds goes on. Harmless if it is not paused."""
        for process in self._pauses.pop() if self._pauses else ():
            go_on(process)

    def is_paused(self) -> bool:
        """Return whether there are processes, and the system shows each as stopped."""
        processes = self._processes()
        return bool(processes) and all(_status(process) in _STANDING for process in processes)

    def _processes(self) -> list[psutil.Process]:
        """What runs in the container: all that its keeper, a process of the engine's, has below it."""
        pid = self.pid
        try:
            keeper = psutil.Process(pid).parent() if pid is not None else None
            return list(keeper.children(recursive=True)) if keeper is not None else []
        except psutil.NoSuchProcess:
            return []

    def reaches(self, address: str) -> bool:
        """Return whether another host answers it, if only by refusing a connection."""
        call = f"exec 3<>/dev/tcp/{address}/{_DISCARD}"
        with problems():
            code, _ = self._container.exec_run(["timeout", str(_ANSWER_S), "/bin/bash", "-c", call])
        return bool(code != _TIMED_OUT)

    def exhaust_memory(self, victim: int) -> None:
        """Run a process in the container that takes memory until the kernel kills the victim.

        Raises OperatingError also if this machine has not as much memory left as the host may use.
        """
        limit = int(self._looked_at()["HostConfig"]["Memory"])
        left = psutil.virtual_memory().available
        if not 0 < limit < left:
            raise OperatingError(
                f"The {self.description} may use {limit >> 20} MiB, and this machine has {left >> 20} MiB left: it "
                "would run out of memory itself. Set host_memory_mb."
            )
        first_to_die(victim)
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(memory_filler.__file__).resolve()),
            str(victim),
            str(limit),
        ]
        with problems():
            code, output = self._container.exec_run(command)
        # Whatever became of the process that took the memory: what counts is whether the victim is dead.
        if code != 0 and not memory_filler.ends(victim):
            raise OperatingError(
                f"The memory of the {self.description} was used up, and process {victim} still runs (exit code "
                f"{code}): {output.decode(errors='replace').strip()}"
            )

    def kills_for_memory(self) -> int:
        """Ask the kernel."""
        return kills_for_memory(self._first_process())

    def lose_packets(self, per_mille: int) -> None:
        """Have the kernel drop packets at random where they leave the container's network."""
        packet_loss.begin(self._first_process(), per_mille)

    def keep_packets(self) -> None:
        if (pid := self.pid) is not None:
            packet_loss.end(pid)

    def loses_packets(self) -> bool:
        """Ask the kernel."""
        return (pid := self.pid) is not None and packet_loss.lasts(pid)

    def _first_process(self) -> int:
        pid = self.pid
        if pid is None:
            raise OperatingError(f"The {self.description} does not run.")
        return pid

    def disconnect(self) -> None:
        """Take its end of the network away."""
        if not self.is_disconnected():
            with problems():
                self._network.disconnect(self._container, force=True)

    def reconnect(self) -> None:
        """Give it a new one with the same address."""
        if self.is_disconnected():
            with problems():
                self._network.connect(self._container, ipv4_address=self._address)

    def is_disconnected(self) -> bool:
        """Ask the engine."""
        networks: dict[str, Any] = self._looked_at()["NetworkSettings"]["Networks"]
        return self._network.name not in networks

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._looked_at()["State"]
        return state

    def _looked_at(self) -> dict[str, Any]:
        with problems(OperatingError, f"The {self.description} cannot be looked at."):
            self._container.reload()
        attributes: dict[str, Any] = self._container.attrs
        return attributes


def _stands(process: psutil.Process, held: list[psutil.Process]) -> bool:
    """Return whether a pause holds a process, and it has stopped; one that has ended needs no pause."""
    status = _status(process)
    return status in _STANDING and (process in held or status != psutil.STATUS_STOPPED)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)
