"""The page of the protocol's machines, from their tables: diagrams, entries, and the rules that stand beside them.

`docs/protocol.md` is generated from this module (``python -m barrier_tck.reference_impl.protocol_page >
docs/protocol.md``), and a test holds the two together.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.loop_termination import LoopTermination
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.source_alignment import SourceAlignment
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.table import IGNORED, Entry, Leads, Table, TableMachine
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker

MACHINES: dict[type[TableMachine[Any, Any]], str] = {
    CoordinatorMachine: "The job",
    SubtaskMachine: "A subtask",
    BarrierAligner: "Alignment of a subtask, exactly-once",
    BarrierTracker: "One checkpoint at a subtask, at-least-once",
    BarrierRecorder: "One checkpoint at a subtask whose channels are recorded: unaligned, Chandy-Lamport",
    LoopTermination: "The end of a loop",
    SourceAlignment: "A group of aligned sources",
}
"""Every machine, and what its states describe. The first state of a table is the initial one."""

_HEAD = """\
# The machines of the protocol

<!-- Generated: python -m barrier_tck.reference_impl.protocol_page > docs/protocol.md -->

Each machine takes an event and returns commands; it does no I/O. Its table says for each state which events may come
and what follows. This page is generated from those tables (`reference_impl/protocol/table.py`).

In a diagram, an arrow is labelled with the events that may lead along it. Events after which a machine stays in its
state have no arrow. In a table, `A / B` means that the event is handled and may lead to A or B; **handled** means
that the machine stays in its state; *ignored* means that the event may come and nothing follows. An empty cell means
that the event is illegal: it raises ProtocolError with the latest transitions, and the machine does not change.
"""


def as_markdown() -> str:
    """Return the text of ``docs/protocol.md``."""
    return "\n".join([_HEAD, *("\n".join(_section(machine)) for machine in MACHINES)])


def diagram(machine: type[TableMachine[Any, Any]]) -> list[str]:
    """Return the lines of a Mermaid state diagram of a machine's table."""
    table = machine.TABLE
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(table)).name}"]
    for state in table:
        arrows = _arrows(table, state)
        lines += [f"    {state.name} --> {goal.name}: {', '.join(events)}" for goal, events in arrows.items()]
        if not arrows:
            lines.append(f"    {state.name} --> [*]")
    return lines


def _arrows(table: Table, state: StrEnum) -> dict[StrEnum, list[str]]:
    """Return the states that a state may lead to, in the order of the table, each with the events that do."""
    found: dict[StrEnum, list[str]] = {goal: [] for goal in table}
    for event, entry in table[state].items():
        for goal in entry.states if isinstance(entry, Leads) else ():
            found[goal].append(event.__name__)
    return {goal: events for goal, events in found.items() if events}


def _section(machine: type[TableMachine[Any, Any]]) -> Iterator[str]:
    table = machine.TABLE
    path = f"reference_impl/{'/'.join(machine.__module__.split('.')[2:])}.py"
    yield f"## {MACHINES[machine]}\n"
    yield f"`{machine.__name__}` in `{path}`. {_summary(machine)}\n"
    yield "```mermaid"
    yield from diagram(machine)
    yield "```\n"
    yield f"| event | {' | '.join(state.name for state in table)} |"
    yield "|---" * (len(table) + 1) + "|"
    for event in dict.fromkeys(event for row in table.values() for event in row):
        cells = (_cell(table[state].get(event)) for state in table)
        yield f"| {event.__name__} | {' | '.join(cells)} |"
    yield "\nRules that the table does not show:\n"
    for rule in machine.RULES:
        yield f"- {_summary(rule)} (`{rule.__name__}`)"
    yield ""


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry is IGNORED:
        return "*ignored*"
    return " / ".join(state.name for state in entry.states) if isinstance(entry, Leads) else "**handled**"


def _summary(documented: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].replace("``", "`").split())


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
