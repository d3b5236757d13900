"""Lets the clocks of hosts be ahead of the coordinator's, or behind it, as a plan says.

What a subtask asks its clock, and for what times it sets timers, passes here. Each subtask that starts compares the
clock that it has got with the one that its host counts on from the coordinator's: the proof that the clocks differ.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from barrier_tck.harness.record.operations import ClockCompared
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import Clock, Timers
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

KeepComparison = Callable[[ClockCompared], None]
"""Keeps what was compared."""

_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def ahead_ms_of(host: str, skews_ms: Sequence[int]) -> int:
    """Return how far the clock of a host is ahead; those whose names end with neighbouring numbers get different
    ones."""
    found = _LAST_NUMBER.search(host)
    number = int(found[1]) if found is not None else zlib.crc32(host.encode())
    return skews_ms[number % len(skews_ms)]


@dataclass(frozen=True)
class _SkewedClock:
    inner: Clock
    ahead_ms: int

    def now_ms(self) -> float:
        return self.inner.now_ms() + self.ahead_ms


@dataclass(frozen=True)
class _TimersByIt:
    """Timers that are set by a clock that is ahead, or behind."""

    inner: Timers
    ahead_ms: int

    def set(self, name: str, at_ms: float) -> None:
        self.inner.set(name, at_ms - self.ahead_ms)


def _with_skewed_clock(
    parts: DriverParts, make: MakeDriver, skews_ms: tuple[int, ...], keep: KeepComparison
) -> SubtaskDriver:
    deployment, ports = parts.deployment, parts.ports
    ahead_ms = ahead_ms_of(ports.host, skews_ms)
    timers = _TimersByIt(ports.timers, ahead_ms) if ports.timers is not None else None
    skewed = parts.with_ports(clock=_SkewedClock(ports.clock, ahead_ms), timers=timers)
    # The clock that counts on from the coordinator's is asked first, and last: time passes meanwhile.
    before = ports.clock.now_ms()
    seen = skewed.ports.clock.now_ms()
    between = (before + ports.clock.now_ms()) / 2
    keep(ClockCompared(str(deployment.subtask), deployment.attempt, ports.host, round(seen - between)))
    return make(skewed)


def skewed(components: Components, skews_ms: tuple[int, ...], keep: KeepComparison) -> Components:
    """Return the components with drivers whose clocks differ from host to host; none of them, if none is to."""
    if not any(skews_ms):
        return components
    return with_driver_instrument(components, partial(_with_skewed_clock, skews_ms=skews_ms, keep=keep))
