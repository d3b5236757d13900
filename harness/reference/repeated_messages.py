"""Messages about checkpoints that arrive twice: which ones, and how much later the second copy comes. Each world
delivers the copies. A subtask whose messages can be repeated can also have an acknowledgement forged.

Messages that name a checkpoint are repeated, because a protocol must tolerate this. Messages saying that a subtask is
running, has failed or has consumed its input arrive once while their attempt lasts. Where connections outlive an
attempt, they may come once more when it is over: they are what a process of it still had to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args

from barrier_tck.faults.targets import Direction, Forgery
from barrier_tck.harness.reference.forged_messages import Forger
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import FromSubtask, StateRestored, ToSubtask

REPEATED = tuple(
    kind
    for kind in (*get_args(ToSubtask), *get_args(FromSubtask))
    if "checkpoint" in kind.__struct_fields__ and kind is not StateRestored
)
"""Every message between a subtask and the coordinator about the course of a checkpoint. ``StateRestored`` is not among
them: it arrives once, when the subtask begins to run."""

REPORTS = tuple(kind for kind in get_args(FromSubtask) if kind not in (*REPEATED, StateRestored))
"""Every other message of a subtask to the coordinator, but for ``StateRestored``."""


class Repeated(Protocol):
    """One subtask whose messages are repeated."""

    @property
    def subtask(self) -> str:
        """Its name."""

    @property
    def direction(self) -> Direction:
        """Which of its messages are repeated; FORWARD: those to the coordinator."""

    @property
    def late_ms(self) -> float:
        """How much later the second copy comes."""


def _not_requested() -> None:
    return None


class RepeatedMessages:
    """The subtasks whose messages are repeated at present."""

    def __init__(self, on_change: Callable[[], None] = _not_requested) -> None:
        self.in_force: tuple[Repeated, ...] = ()
        self._on_change = on_change

    def put_in_force(self, in_force: tuple[Repeated, ...]) -> None:
        """From now on, repeat the messages of these subtasks and of no others."""
        self.in_force = in_force
        self._on_change()

    def copies(self, subtask: str, direction: Direction, message: Any) -> Iterator[float]:
        """Yield for each copy of a message its delay in milliseconds; FORWARD means to the coordinator."""
        if isinstance(message, REPEATED):
            for target in self.in_force:
                if target.subtask == subtask and target.direction in (direction, Direction.BOTH):
                    yield target.late_ms

    def reports(self, subtask: str, message: Any) -> Iterator[float]:
        """Yield for each copy of another message to the coordinator when it comes, in ms, if its attempt is over."""
        if isinstance(message, REPORTS):
            for target in self.in_force:
                if (
                    target.subtask == subtask
                    and target.direction is not Direction.BACKWARD
                    and target.late_ms
                ):
                    yield target.late_ms


class RepeatableMessages:
    """The messages of one subtask; implements ``barrier_tck.faults.targets.MessagesTarget``."""

    def __init__(self, repeats: RepeatedMessages, subtask: str, forger: Forger) -> None:
        self._repeats = repeats
        self._forger = forger
        self._forged = False
        self.subtask = subtask
        self.direction = Direction.BOTH
        self.late_ms = 0.0

    @property
    def description(self) -> str:
        """Return whose messages are repeated, for the fault log."""
        return f"messages of {self.subtask}"

    def repeat(self, direction: Direction, late_ms: float) -> None:
        """Make each message in one direction, or in both, arrive a second time."""
        self.direction, self.late_ms = direction, late_ms
        self._repeats.put_in_force((*self._repeats.in_force, self))

    def is_repeating(self) -> bool:
        return any(target is self for target in self._repeats.in_force)

    def forge(self, forgery: Forgery) -> None:
        self._forger.forge(forgery, SubtaskId.parse(self.subtask))
        self._forged = True

    def is_forged(self) -> bool:
        """Return whether a forged acknowledgement is on its way to the coordinator, or has arrived."""
        return self._forged

    def stop(self) -> None:
        """Stop repeating messages; copies in transit still arrive."""
        self._repeats.put_in_force(tuple(target for target in self._repeats.in_force if target is not self))
