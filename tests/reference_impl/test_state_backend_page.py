"""The page about state backends shows the example unchanged, and every capability; grain: text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barrier_tck.harness.reference import backend_kit
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateCapability

ROOT = Path(__file__).resolve().parents[2]
INTERFACE = (ROOT / "docs" / "reference" / "state-backend-interface.md").read_text()
PAGE = (ROOT / "docs" / "guide" / "state-backend.md").read_text()


def test_the_page_shows_the_whole_example() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    assert shown == (ROOT / "examples" / "minimal_backend" / "backend.py").read_text()


@pytest.mark.parametrize("capability", list(StateCapability), ids=lambda capability: capability.name)
def test_the_page_repeats_the_promise_of_each_capability(capability: StateCapability) -> None:
    assert f"| `{capability.name}` | {capability.sentence} |" in PAGE


def test_the_page_says_what_every_call_promises() -> None:
    calls = [name for name in vars(KeyedStateStore) if not name.startswith("_")]
    assert len(calls) >= 9
    first_cells = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in calls if not re.search(rf"\b{name}\b", first_cells)] == []


def test_the_interface_page_shows_the_whole_example_of_increments() -> None:
    shown = re.findall(r"```python\n(.*?)```", INTERFACE, flags=re.DOTALL)[0]
    assert shown == (ROOT / "examples" / "incremental_backend" / "backend.py").read_text()


def test_the_interface_page_has_all_that_a_backend_imports() -> None:
    """A name that is added to the kit is on the page, too."""
    assert [
        name
        for name in backend_kit.__all__
        if name != "CheckpointId" and f"\n### `{name}`\n" not in INTERFACE
    ] == []
