"""Connecting to a peer that may be out of reach for a while: again and again, within a bound.

Nothing crossed a connection that could not be opened, so trying again is safe; a connection that breaks later is
never opened again, because what was on its way is lost. A handshake without an answer lies between the two: whether
it may be tried again depends on how the peer takes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from barrier_tck.reference_impl.spark.control_wire import ConnectionLost
from barrier_tck.reference_impl.spark.handshake import HandshakeRefused, NotAdmitted

_PAUSE_S = 0.1

ConnectionT = TypeVar("ConnectionT")


def connect_with_retries(
    connect: Callable[[float], ConnectionT],
    bound_s: float,
    stopped_within: Callable[[float], bool],
    final: tuple[type[HandshakeRefused], ...] = (NotAdmitted,),
) -> ConnectionT:
    """Call ``connect(seconds left)`` until it succeeds and return its result; raises its last error at the bound.

    ``stopped_within(seconds)`` waits between two tries, and tells whether to give up. A peer that proved itself and
    gave a reason for its refusal (``NotAdmitted``) is not asked again; ``final`` lists the errors that end the tries.
    """
    deadline = time.monotonic() + bound_s
    while True:
        try:
            return connect(max(_PAUSE_S, deadline - time.monotonic()))
        except final:
            raise
        except (ConnectionLost, HandshakeRefused):
            if time.monotonic() + _PAUSE_S >= deadline or stopped_within(_PAUSE_S):
                raise
