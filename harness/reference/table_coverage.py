"""Which entries of the protocol's tables trials reach: an event in a state of a machine.

An entry that no drawn trial reaches is under no campaign, whatever the number of trials. Entries that ignore their
event are left out, because nothing follows from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from barrier_tck.reference_impl.protocol.table import IGNORED, TableMachine
from barrier_tck.reference_impl.protocol_page import MACHINES


class TableEntry(NamedTuple):
    """An event that a machine handles in a state."""

    machine: str
    state: str
    event: str


IMPOSSIBLE: Mapping[TableEntry, str] = {
    TableEntry("SubtaskMachine", "snapshotting", event): (
        "in the simulator nothing comes amid the synchronous part of a snapshot; on Spark it may"
    )
    for event in ("SnapshotStored", "OutputsPassed", "ChannelStateStored")
}
"""Entry -> why no simulated trial can reach it."""


def handled_entries() -> tuple[TableEntry, ...]:
    """Return every entry of every machine that does not ignore its event."""
    return tuple(
        _entry(machine, state, event)
        for machine in MACHINES
        for state, row in machine.TABLE.items()
        for event, follows in row.items()
        if follows is not IGNORED
    )


def _entry(machine: type[TableMachine[Any, Any]], state: Any, event: type) -> TableEntry:
    return TableEntry(machine.__name__, str(state.value), event.__name__)


@contextmanager
def transitions() -> Iterator[Callable[[], tuple[str, ...]]]:
    """Note what the machines of this process come through meanwhile; the function that is given names it.

    There are two kinds of names: which event led from which state to which, with which commands, and which event
    followed on which in one machine.
    """
    found: dict[tuple[str, ...], None] = {}
    with ExitStack() as stack:
        for machine in MACHINES:
            noting = _noting_transitions(machine.__name__, machine.handle, found)  # type: ignore[attr-defined]
            stack.enter_context(patch.object(machine, "handle", noting))
        yield lambda: tuple(map(" ".join, found))


def _noting_transitions(
    machine: str, handle: Callable[..., Any], found: dict[tuple[str, ...], None]
) -> Callable[..., Any]:
    def noted(self: TableMachine[Any, Any], event: Any, *context: Any) -> Any:
        story, state = self._story, self.state_for(event)
        before = type(story[-1][1]).__name__ if story else "nothing"
        commands = handle(self, event, *context)
        name, after = type(event).__name__, self.state_for(event)
        led = dict.fromkeys(type(command).__name__ for command in commands)
        found[machine, state, "--", name, "->", after, *led] = None
        found[machine, state, "--", before, "then", name] = None
        return commands

    return noted


class TableCoverage:
    """Counts in how many trials each entry was reached."""

    def __init__(self) -> None:
        self.trials = 0
        self.reached: Counter[TableEntry] = Counter()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Count what the machines of this process handle meanwhile as reached by one trial."""
        found: dict[TableEntry, None] = {}
        with ExitStack() as stack:
            for machine in MACHINES:
                noting = _noting(machine, machine.handle, found)  # type: ignore[attr-defined]
                stack.enter_context(patch.object(machine, "handle", noting))
            yield
        self.trials += 1
        self.reached.update(list(found))

    @property
    def never(self) -> tuple[TableEntry, ...]:
        """Return the entries that no trial reached, and that no reason excuses."""
        return tuple(
            entry for entry in handled_entries() if not self.reached[entry] and entry not in IMPOSSIBLE
        )


def _noting(
    machine: type[TableMachine[Any, Any]], handle: Callable[..., Any], found: dict[TableEntry, None]
) -> Callable[..., Any]:
    def noted(self: TableMachine[Any, Any], event: Any, *context: Any) -> Any:
        found[_entry(machine, self.state_for(event), type(event))] = None
        return handle(self, event, *context)

    return noted
