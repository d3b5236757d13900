"""The timers of one subtask: those of barriers that wait for alignment, and those that its operators set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import Operator, Payload
from barrier_tck.reference_impl.operators.timed_process import HasTimers
from barrier_tck.reference_impl.runtime.ports import Clock, Timers

OF_OPERATORS = "timers of operators"
"""The name of the world's timer for all that the operators set."""
AT_ONCE_MAX, AT_ONCE_MS = 100, 10.0
"""After so many timers of an operator, or so much time, others have their turn: messages, barriers and records."""
_LATER_MS = 5.0
"""After this time it is looked again whether there is room for what timers emit."""


class SubtaskTimers:
    """Sets the timers of the world, and knows what each is for."""

    def __init__(
        self, operators: Sequence[Operator], timers: Timers | None, clock: Clock, has_room: Callable[[], bool]
    ) -> None:
        self._timed = [
            (place, operator) for place, operator in enumerate(operators) if isinstance(operator, HasTimers)
        ]
        self._timers = timers
        self._clock = clock
        self._has_room = has_room
        self._alignments: dict[str, CheckpointId] = {}
        self._set_for: float | None = None
        """The time for which the world's timer of the operators is set."""
        self._held = False
        self.used = bool(self._timed)
        """Whether an operator may set timers."""

    def start_alignment(self, checkpoint: CheckpointId, timeout_ms: float) -> None:
        """Have ``due`` return a checkpoint after a time, unless it is asked earlier."""
        name = f"alignment of checkpoint {checkpoint}"
        self._alignments[name] = checkpoint
        self._set(name, self._clock.now_ms() + timeout_ms)

    def due(self, name: str, run_chain: Callable[[int, Payload | None], None]) -> CheckpointId | None:
        """A timer of the world has gone off; return the checkpoint whose alignment has timed out, if any.

        ``run_chain`` passes a batch through the chain from a position on.
        """
        if name != OF_OPERATORS:
            return self._alignments.pop(name, None)
        self._set_for = None
        if self._held:
            return None
        now_ms = self._clock.now_ms()
        if not self._has_room():
            self._set_at(now_ms + _LATER_MS)
            return None
        for place, operator in self._timed:
            for _ in range(AT_ONCE_MAX):
                payloads = operator.fire_timer(now_ms)
                for payload in payloads or ():
                    run_chain(place + 1, payload)
                if payloads is None or self._clock.now_ms() - now_ms > AT_ONCE_MS:
                    break
        next_ms = self._next_ms()
        if next_ms is not None and next_ms <= now_ms:
            self._set_at(now_ms + 1)
        else:
            self.arm()
        return None

    def arm(self) -> None:
        """Set the world's timer for the next one of the operators, which have opened or processed something."""
        next_ms = self._next_ms()
        if next_ms is not None and not self._held and (self._set_for is None or next_ms < self._set_for):
            self._set_at(next_ms)

    def hold(self, held: bool) -> None:
        """Let no timer of an operator go off behind a terminal barrier; if the job goes on, they do so then."""
        self._held = held
        if not held:
            self.arm()

    def _next_ms(self) -> int | None:
        times = [at_ms for _, operator in self._timed if (at_ms := operator.next_timer_ms()) is not None]
        return min(times, default=None)

    def _set_at(self, at_ms: float) -> None:
        self._set_for = at_ms
        self._set(OF_OPERATORS, at_ms)

    def _set(self, name: str, at_ms: float) -> None:
        assert self._timers is not None, "this job needs timers"
        self._timers.set(name, at_ms)
