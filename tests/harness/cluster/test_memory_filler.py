"""Who takes a host's memory stops in time, also on a busy machine; grain: what the system says, given."""

from __future__ import annotations

import pytest

from barrier_tck.harness.cluster.containers import memory_filler


def test_who_takes_memory_takes_none_that_a_dying_process_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = iter([100, 100, 10, 10])
    gone = iter([False, False, False, True, True])
    monkeypatch.setattr(memory_filler, "_STEP", 1)
    monkeypatch.setattr(memory_filler, "_resident_pages", lambda _: next(resident))
    monkeypatch.setattr(memory_filler, "is_gone", lambda _: next(gone))
    assert memory_filler.fill(1, most=1_000)
    assert next(resident, None) is None, "one step was taken before the loss was seen, and none after it"


def test_who_cannot_use_up_the_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_filler, "_STEP", 1)
    monkeypatch.setattr(memory_filler, "_resident_pages", lambda _: 100)
    monkeypatch.setattr(memory_filler, "is_gone", lambda _: False)
    assert not memory_filler.fill(1, most=10)
