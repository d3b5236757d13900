"""The page about the protocol's machines shows today's tables. Grain: text."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.reference_impl import protocol
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.alignment_states import AlignmentState
from barrier_tck.reference_impl.protocol.messages import NotifyCheckpointAborted
from barrier_tck.reference_impl.protocol.table import TableMachine
from barrier_tck.reference_impl.protocol_page import MACHINES, as_markdown, diagram

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == as_markdown(), (
        "run: python -m barrier_tck.reference_impl.protocol_page > docs/protocol.md"
    )


def test_every_machine_of_the_protocol_is_on_the_page() -> None:
    for module in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
        importlib.import_module(module.name)
    kinds = [kind for direct in TableMachine.__subclasses__() for kind in (direct, *direct.__subclasses__())]
    found = [kind for kind in kinds if kind.__module__.startswith(protocol.__name__) and kind.TABLE]
    assert sorted(kind.__name__ for kind in found) == sorted(machine.__name__ for machine in MACHINES)


def test_a_diagram_begins_with_the_first_state_and_draws_every_arrow_once() -> None:
    assert diagram(BarrierAligner) == [
        "stateDiagram-v2",
        "    [*] --> IDLE",
        "    IDLE --> ALIGNING: BarrierArrived",
        "    IDLE --> HOLDING: BarrierArrived, TriggerCheckpoint",
        "    ALIGNING --> IDLE: BarrierArrived, NotifyCheckpointAborted",
        "    ALIGNING --> HOLDING: BarrierArrived, ChannelClosed",
        "    HOLDING --> IDLE: SnapshotTaken, SnapshotFailed",
    ]


def without_an_arrow(table: dict[Any, dict[type, Any]]) -> dict[Any, dict[type, Any]]:
    return {**table, AlignmentState.HOLDING: {}}


def without_an_event(table: dict[Any, dict[type, Any]]) -> dict[Any, dict[type, Any]]:
    idle = {
        event: entry
        for event, entry in table[AlignmentState.IDLE].items()
        if event is not NotifyCheckpointAborted
    }
    return {**table, AlignmentState.IDLE: idle}


@pytest.mark.parametrize("change", [without_an_arrow, without_an_event])
def test_the_page_changes_with_a_table(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BarrierAligner, "TABLE", change(BarrierAligner.TABLE))
    assert as_markdown() != PAGE.read_text()


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_rules_of_a_machine_are_sentences(machine: type[TableMachine[Any, Any]]) -> None:
    assert machine.RULES
    for rule in machine.RULES:
        assert re.match(r"[A-Z].*\.$", (rule.__doc__ or "").strip(), re.DOTALL), rule.__name__
