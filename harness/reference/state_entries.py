"""What each kind of operator keeps in its state, as the state SPI shows it: the states' names, and how to read
entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.reference.lineage_operators import SEEN
from barrier_tck.harness.reference.loop_operators import BALANCE, LABEL, NEIGHBOURS
from barrier_tck.harness.workloads.meaning import WAITING, WINDOW
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE
from barrier_tck.reference_impl.operators.encoding import decode_accumulator
from barrier_tck.reference_impl.operators.join import JOIN_STATES
from barrier_tck.reference_impl.operators.keyed_process import TIMERS

WITNESSED = "seen"
"""Name of the state of ``witness``: how many records each key had."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """One state of a kind of operator."""

    name: str
    read: Callable[[bytes], list[Any]]
    """Turns an entry's bytes into JSON types."""


def _alone(value: bytes) -> list[Any]:
    return [msgspec.msgpack.decode(value)]


STATES: dict[str, tuple[KeptState, ...]] = {
    "totals": (KeptState(AGGREGATE_STATE, lambda value: list(decode_accumulator(value))),),
    "witness": (KeptState(WITNESSED, _alone),),
    "join": tuple(KeptState(side, msgspec.msgpack.decode) for side in JOIN_STATES),
    "keep": (KeptState(SEEN, msgspec.msgpack.decode),),
    WINDOW: tuple(KeptState(name, msgspec.msgpack.decode) for name in (SEEN, WAITING, TIMERS)),
    "account": (KeptState(BALANCE, _alone),),
    "node": (KeptState(LABEL, _alone), KeptState(NEIGHBOURS, msgspec.msgpack.decode)),
}
"""Kind of operator -> what it keeps; kinds without state are left out."""


def _listed(entry: bytes) -> tuple[str, list[Any]]:
    number, identifier, key, path = msgspec.msgpack.decode(entry)
    return key, [number, identifier, path]


def _owned(entry: bytes) -> tuple[str, list[Any]]:
    _, number, identifier, key, path = msgspec.msgpack.decode(entry)
    return key, [number, identifier, path]


LISTS: dict[str, Callable[[bytes], tuple[str, list[Any]]]] = {"list": _listed, "union": _owned}
"""Kind of operator that keeps a list without keys -> how to read an entry: a key, and what ``keep`` has for it."""
