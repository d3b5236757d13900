"""A host of a cluster that can be hit as a whole, with everything that runs on it."""

from __future__ import annotations

from typing import Protocol


class Host(Protocol):
    """One host. Its disk is a directory of the cluster's, so a fault that kills a host can take the disk with it.

    Every method raises OperatingError if the engine that runs the hosts cannot be reached, or refuses.
    """

    @property
    def description(self) -> str:
        """Return a phrase for logs, for instance ``host 10.213.7.11 (container 2f9e670c5700)``."""

    def kill(self) -> None:
        """End every process on it at once, and return when they are gone. Killing twice is harmless."""

    def start(self) -> None:
        """Start it again with the address that it had; harmless if it runs."""

    def is_running(self) -> bool:
        """Return whether it runs, paused or not."""

    def pause(self) -> None:
        """Let every process on it stand still, and return when they do."""

    def resume(self) -> None:
        """End the latest pause: they go on if it was the last. Harmless if it is not paused."""

    def is_paused(self) -> bool:
        """Return whether they stand still."""

    def exhaust_memory(self, victim: int) -> None:
        """Use up the memory limit of the host until the kernel has killed a process of it; return when it is gone.

        What took the memory gives it back. The kernel prefers this process, given by its pid, to all others.
        """

    def kills_for_memory(self) -> int:
        """Return how many processes the kernel has killed on it since it was started, because no memory was left."""

    def disconnect(self) -> None:
        """Take it off the network: no connection of any of its processes carries anything. Harmless twice."""

    def reconnect(self) -> None:
        """Put it back, with its address: connections that neither end gave up go on. Harmless twice."""

    def lose_packets(self, per_mille: int) -> None:
        """Lose so many of 1,000 packets that it sends, drawn one by one, until ``keep_packets``."""

    def keep_packets(self) -> None:
        """Lose none any more. Harmless twice."""

    def loses_packets(self) -> bool:
        """Return whether the kernel loses packets of it now."""

    def is_disconnected(self) -> bool:
        """Return whether it is off the network."""
