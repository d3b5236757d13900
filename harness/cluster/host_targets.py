"""Hosts of a cluster as targets of faults: lost with their disks, paused, and taken off the network."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from barrier_tck.faults.packet_loss import PacketLoss
from barrier_tck.faults.targets import Direction, Impairment, LinkTarget, TargetGone
from barrier_tck.harness.cluster.host import Host
from barrier_tck.harness.cluster.signalled_process import Lose, SignalledProcess


class LostHost:
    """An executor together with the local disk of its host, which always comes back under its own name; implements
    ``barrier_tck.faults.targets.ReturningHost``."""

    def __init__(self, executor: SignalledProcess, local_directory: Path, host: Host | None) -> None:
        self._executor = executor
        self._host = host
        self._directory = local_directory
        self._wiped: list[Path] = []

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        whole = f", with all of {self._host.description}" if self._host is not None else ""
        return f"{self._executor.description}{whole}, with the local files in {self._directory.parent.name}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill the executor, or its whole host, and remove the files on its disk; raises TargetGone if the executor
        was already dead.

        A host that was killed starts again with an empty disk, as the operator of a cluster would see to it. What it
        wrote to shared storage and did not sync is lost, if there is a journal of it.
        """
        host = self._host
        lose_unsynced = lose_unsynced or self._executor.is_journaled
        if host is None:
            self._executor.kill(lose_unsynced)
            # The directories themselves belong to the Spark worker, which lives on and gives them to the next executor.
            kept = set(self._directory.glob("spark-*")) | set(self._directory.glob("spark-*/executor-*"))
        else:
            self._executor.end_by(lambda _: host.kill(), lose_unsynced)
            kept = set()
        places = [self._directory, *sorted(kept)]
        self._wiped = [entry for place in places for entry in sorted(place.iterdir()) if entry not in kept]
        for entry in self._wiped:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if host is not None:
            host.start()

    def come_back(self) -> None:
        """Do nothing: it comes back in any case."""

    def is_back(self) -> bool:
        """Return whether it was started again, or never stopped, and none of its files is left."""
        return not any(entry.exists() for entry in self._wiped)

    def is_dead(self) -> bool:
        """Return whether the executor is gone, and none of its files is left."""
        return self._executor.is_dead() and not any(entry.exists() for entry in self._wiped)


class LastingLoss:
    """An executor that nothing replaces once it is killed; implements ``barrier_tck.faults.targets.ProcessTarget``.

    Spark's worker would start another one, so the worker stands still from then on: it cannot learn that its executor
    is dead. If the host can be hit as a whole, it is killed and not started again.
    """

    def __init__(self, executor: SignalledProcess, worker: SignalledProcess, host: Host | None) -> None:
        self._executor = executor
        self._worker = worker
        self._host = host

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        with_it = self._host.description if self._host is not None else self._worker.description
        return f"{self._executor.description}, with {with_it}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Stop the worker and kill the executor, or kill their host; raises TargetGone if the executor was dead.

        What the host wrote to shared storage and did not sync is lost, if there is a journal of it.
        """
        host = self._host
        lose_unsynced = lose_unsynced or self._executor.is_journaled
        if host is not None:
            self._executor.end_by(lambda _: host.kill(), lose_unsynced)
            return
        self._worker.pause()
        try:
            self._executor.kill(lose_unsynced)
        except TargetGone:
            self._worker.resume()
            raise

    def is_dead(self) -> bool:
        """Return whether the executor is gone and no worker can start another one."""
        alone = not self._host.is_running() if self._host is not None else self._worker.is_paused()
        return self._executor.is_dead() and alone

    def undo(self) -> None:
        """Let Spark start another executor. Harmless twice."""
        if self._host is not None:
            self._host.start()
        self._worker.resume()


class ExecutorWithoutMemory:
    """An executor that the kernel kills because its host's memory limit is used up.

    Implements ``barrier_tck.faults.targets.ProcessTarget``.
    """

    def __init__(self, executor: SignalledProcess, pid: int, host: Host) -> None:
        self._executor = executor
        self._pid = pid
        self._host = host
        self._killed = 0

    @property
    def description(self) -> str:
        """Return what is hit and, once it was, what the kernel says."""
        cause = f", where the kernel killed {self._killed} for want of memory" if self._killed else ""
        return f"{self._executor.description}{cause}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Use up the host's memory; raises TargetGone if the executor was dead already."""
        before = self._host.kills_for_memory()
        self._executor.end_by(lambda _: self._host.exhaust_memory(self._pid), lose_unsynced)
        self._killed = self._host.kills_for_memory() - before

    def is_dead(self) -> bool:
        """Return whether the executor is gone, and the kernel has killed for want of memory meanwhile."""
        return self._executor.is_dead() and self._killed > 0


class ExecutorOnHost(SignalledProcess):
    """An executor that is paused together with its host, Spark's own processes included.

    Implements ``barrier_tck.faults.targets.PausableTarget``.
    """

    def __init__(
        self, pid: int, description: str, on_kill: Callable[[], None], host: Host, lose: Lose | None = None
    ) -> None:
        super().__init__(pid, description, on_kill, with_children=True, lose=lose)
        self._host = host
        self._pauses_host = False

    def pause(self) -> None:
        """Pause its host; raises TargetGone if the executor is dead."""
        if self.is_dead():
            raise TargetGone(self.description)
        self._host.pause()
        self._pauses_host = True

    def resume(self) -> None:
        """Let the host go on, unless another pause holds it. Harmless if it was not paused."""
        if self._pauses_host:
            self._pauses_host = False
            self._host.resume()

    def is_paused(self) -> bool:
        """Return whether everything on the host stands still."""
        return self._host.is_paused()


class LinkOfHost:
    """All connections of a host; implements ``barrier_tck.faults.targets.LinkTarget``.

    A host that nothing reaches, and that reaches nothing, is taken off the network: then Spark's own connections are
    lost too. Packets are lost on the host's network, whatever connection they belong to. Any other disturbance is one
    of the runtime's connections alone, which proxies carry out.
    """

    def __init__(self, host: Host, proxied: Sequence[LinkTarget]) -> None:
        self._host = host
        self._proxied = tuple(proxied)
        self._disturbed: tuple[LinkTarget, ...] = ()
        self._unplugged = False
        self._lossy = False

    @property
    def description(self) -> str:
        """Return what is disturbed."""
        if self._proxied and self._disturbed:
            return ", ".join(link.description for link in self._proxied)
        return f"network of {self._host.description}"

    def impair(self, impairment: Impairment) -> None:
        """Take the host off the network, or disturb its connections; raises TargetGone if it does not run."""
        if not self._host.is_running():
            raise TargetGone(self.description)
        if isinstance(impairment, PacketLoss):
            self._lossy = True
            self._host.lose_packets(impairment.per_mille)
            return
        if impairment.swallows and impairment.direction is Direction.BOTH:
            self._unplugged = True
            self._host.disconnect()
            return
        if not self._proxied:
            raise TargetGone(self.description)
        self._disturbed = self._proxied
        for link in self._disturbed:
            link.impair(impairment)

    def is_impaired(self) -> bool:
        """Return whether the host is off the network or loses packets, or every connection is disturbed."""
        if self._lossy:
            return self._host.loses_packets()
        if self._unplugged:
            return self._host.is_disconnected()
        return bool(self._disturbed) and all(link.is_impaired() for link in self._disturbed)

    def heal(self) -> None:
        """Put the host back, and heal what was disturbed. Healing twice is harmless."""
        if self._unplugged:
            self._unplugged = False
            self._host.reconnect()
        if self._lossy:
            self._lossy = False
            self._host.keep_packets()
        disturbed, self._disturbed = self._disturbed, ()
        for link in disturbed:
            link.heal()
