"""A driver's process for tests: it answers, stands at points, and holds nothing."""

from __future__ import annotations

import socket
import sys
from typing import Protocol

from barrier_tck.harness.cluster.driver.peer import Peer
from barrier_tck.reference_impl.ids import SubtaskId


class EchoDriver(Protocol):
    """The interface of the driver."""

    def echo(self, subtask: SubtaskId, times: int) -> tuple[SubtaskId, ...]:
        """Return the subtask so many times."""

    def pass_points(self, count: int) -> int:
        """Stand at so many points, one after the other, and return how many there were."""

    def fail(self, text: str) -> None:
        """Raise an error with this text."""


class Reports(Protocol):
    """What the driver reports."""

    def at_point(self, number: int) -> None:
        """It stands at a point."""


class Echoing:
    """Implements ``EchoDriver``."""

    def __init__(self, reports: Reports) -> None:
        """``reports`` is told of points."""
        self._reports = reports

    def echo(self, subtask: SubtaskId, times: int) -> tuple[SubtaskId, ...]:
        """Return the subtask so many times."""
        return (subtask,) * times

    def pass_points(self, count: int) -> int:
        """Stand at points."""
        for number in range(1, count + 1):
            self._reports.at_point(number)
        return count

    def fail(self, text: str) -> None:
        """Raise an error."""
        raise LookupError(text)


def main() -> None:
    """Serve."""
    peer = Peer(socket.socket(fileno=int(sys.argv[1])), "the test")
    peer.offer("driver", EchoDriver, Echoing(peer.remote("reports", Reports)))  # type: ignore[type-abstract]
    peer.start()
    peer.work()


if __name__ == "__main__":
    main()
