"""The page about state backends shows the example unchanged, and every capability; grain: text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateCapability

ROOT = Path(__file__).resolve().parents[2]
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
