"""The main function of the harness's processes with PySpark: serve until the harness hangs up or is gone."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import psutil

from barrier_tck.harness.cluster.driver.peer import Peer
from barrier_tck.harness.streaming.query_definition import QueryDefinition
from barrier_tck.harness.support.errors import UsageProblem

_END_TIMEOUT_S = 15.0
"""After the harness is gone, the process ends within this time, with all that it started."""


class Closes(Protocol):
    """What is served; it may hold a session."""

    def close(self) -> None:
        """End it."""


def serve(name: str, interface: type, make: Callable[[Peer], Closes]) -> None:
    """Offer what ``make`` makes, on the connection whose number is the first argument of the command line."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    peer = Peer(socket.socket(fileno=int(sys.argv[1])), "the harness")
    served = make(peer)
    peer.offer(name, interface, served)
    peer.start()
    try:
        peer.work()
    finally:
        # If the harness was killed its cluster is ending too, and a session may wait for it in vain.
        last = threading.Timer(_END_TIMEOUT_S, _end_at_once)
        last.daemon = True
        last.start()
        served.close()


def job_at(address: str) -> QueryDefinition:
    """Import the job that ``module:name`` names."""
    module, _, name = address.partition(":")
    found = getattr(import_module(module), name)
    if not isinstance(found, QueryDefinition):
        raise UsageProblem(f"{address} is no StreamingJob, but {type(found).__name__}")
    return found


def _end_at_once() -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)
