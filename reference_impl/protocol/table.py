"""What the state machines of the protocol share: a transition table, and the story of what happened.

Theory of operation. A machine's ``TABLE`` says, for each of its states, which events may come and what follows:

    =============================  ========================================================================
    a method                       handles the event; the machine stays in its state
    ``leads(method, A, B)``        handles the event; the machine goes to A or B, or stays
    ``IGNORED``                    the event may come and nothing follows from it
    no entry                       the event is illegal: ProtocolError with the story, the machine unchanged
    =============================  ========================================================================

A handler that finds an event illegal for a reason that the state does not show raises ``illegal`` before it changes
anything. Such rules stand beside the table, as methods that ``RULES`` lists. A handler that leads to a state which its
entry does not name is an error, too. So the diagrams in `docs/protocol.md`, which are drawn from the tables, are right.

To add a machine: write its states, events and commands in modules of their own, derive from ``TableMachine``, and add
it to ``MACHINES`` in `reference_impl/protocol_page.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

from barrier_tck.reference_impl.runtime_errors import ProtocolError

StateT = TypeVar("StateT", bound=StrEnum)
CommandT = TypeVar("CommandT")

STORY_MAX = 200
"""Most transitions that a machine remembers."""
STORY_SHOWN_MAX = 12
"""Most transitions that the text of an error shows."""

Handler = Callable[..., tuple[Any, ...]]
"""A method of the machine: takes the event, and whatever else comes through the machine's entry point."""


class Ignored(Enum):
    """The type of ``IGNORED``."""

    IGNORED = "ignored"


IGNORED: Final = Ignored.IGNORED
"""The event may come and nothing follows from it."""


class Leads(NamedTuple):
    """A handler, and the states to which it may lead."""

    handler: Handler
    states: tuple[StrEnum, ...]


def leads(handler: Handler, *states: StrEnum) -> Leads:
    """Return the entry for a handler that may leave the machine's state for one of ``states``."""
    return Leads(handler, states)


Entry = Handler | Leads | Literal[Ignored.IGNORED]
Table = Mapping[Any, Mapping[type, Entry]]
"""State -> type of the event -> what follows. States are members of a StrEnum, whose hash is quick."""


class TableMachine(Generic[StateT, CommandT]):
    """A state machine with a table. A subclass has one entry point, ``handle``, which calls ``_take``."""

    TABLE: ClassVar[Table] = {}
    RULES: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """Methods whose docstrings are the rules that do not fit the table."""
    _rows: ClassVar[dict[Any, dict[type, tuple[Handler, tuple[StrEnum, ...]]]]]

    def __init__(self, name: str, state: StateT) -> None:
        self.name = name
        self.state = state
        self._story: deque[tuple[StrEnum, object, tuple[CommandT, ...]]] = deque(maxlen=STORY_MAX)

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Normalize every entry of the table: a handler, and the states to which it may lead."""
        super().__init_subclass__(**keywords)
        cls._rows = {
            state: {event: cls._normalized(entry) for event, entry in row.items()}
            for state, row in cls.TABLE.items()
        }

    @classmethod
    def _normalized(cls, entry: Entry) -> tuple[Handler, tuple[StrEnum, ...]]:
        if isinstance(entry, Ignored):
            return cls._ignore, ()
        return entry if isinstance(entry, Leads) else (entry, ())

    def state_for(self, event: Any) -> StateT:
        """Return the state that decides what follows from an event."""
        return self.state

    def _take(self, event: Any, *context: Any) -> tuple[CommandT, ...]:
        """Look up the handler of an event, call it, and keep the transition; raises ProtocolError if it is illegal."""
        state = self.state_for(event)
        found = self._rows[state].get(type(event))
        if found is None:
            raise self.illegal(event, "the table has no entry for it")
        handler, states = found
        commands = handler(self, event, *context)
        after = self.state_for(event)
        if after is not state and after not in states:
            raise self.illegal(event, f"it led from {state.value} to {after.value}, against the table")
        self._story.append((state, event, commands))
        return commands

    def _ignore(self, event: Any, *context: Any) -> tuple[CommandT, ...]:
        return ()

    def illegal(self, event: object, why: str) -> ProtocolError:
        """Return the error for an event that must not come now."""
        story = "\n  ".join(self.story()[-STORY_SHOWN_MAX:])
        state = self.state_for(event).value
        return ProtocolError(
            f"{self.name}: {event} is illegal in state {state} ({why}). The story so far:\n  {story}"
        )

    def story(self) -> tuple[str, ...]:
        """Return the latest transitions, oldest first."""
        return tuple(f"{state.value}: {event} -> {commands}" for state, event, commands in self._story)
