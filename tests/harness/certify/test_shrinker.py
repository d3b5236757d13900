"""A failing sequence is made smaller as far as so many calls allow, however long they take."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from barrier_tck.harness.certify.engine.playing import Breach
from barrier_tck.harness.certify.engine.shrinker import smallest
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import Step
from barrier_tck.harness.certify.engine.violation import Violation


class Number(Step, frozen=True, tag="number"):
    """Adds a number to what was played."""

    value: int


class Numbers:
    """Fails at the end if both 30 and 70 were played."""

    def __init__(self) -> None:
        self.played: list[Number] = []
        self.shown: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.calls = 0

    @property
    def effort(self) -> int:
        return self.calls

    def apply(self, step: Number) -> None:
        self.calls += 1
        self.played.append(step)
        if {30, 70} <= {one.value for one in self.played}:
            raise Violation("both", "BCK-1")

    def close(self) -> None: ...

    def end(self, violation: Violation | None = None) -> None: ...

    def abandon(self) -> None: ...


class NumbersStage(Stage[Number]):
    """Keeps every session."""

    def __init__(self, effort_max: int) -> None:
        self.shrink_effort_max = effort_max
        self.sessions: list[Numbers] = []

    remaining_s = 60.0
    processes = 0

    def begin(self, steps: tuple[Number, ...]) -> Numbers:
        self.sessions.append(Numbers())
        return self.sessions[-1]

    def renew(self) -> None: ...


LONG = tuple(map(Number, range(200)))


def shrunk(effort_max: int, share: float = 1.0) -> tuple[Breach[Number], int]:
    """Return what is left of a long sequence, and how many calls that took without the last repetition."""
    stage = NumbersStage(effort_max)
    found = smallest(stage, Breach(LONG, Violation("both", "BCK-1")), share)
    return found, sum(session.calls for session in stage.sessions[:-1])


def test_what_does_not_matter_is_left_out() -> None:
    found, _ = shrunk(10_000)
    assert [step.value for step in found.steps] == [30, 70]


def test_it_ends_after_so_many_calls_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for now in (0.0, 1e6):
        ticks = iter(range(1_000_000))
        monkeypatch.setattr(time, "monotonic", lambda now=now, ticks=ticks: now * next(ticks))
        found, calls = shrunk(300)
        assert 300 <= calls <= 300 + len(LONG)
        sizes.append(len(found.steps))
    assert sizes[0] == sizes[1] and 2 < sizes[0] < len(LONG)


def test_a_share_of_nothing_leaves_the_sequence_as_it_was() -> None:
    found, calls = shrunk(10_000, share=0.0)
    assert (found.steps, calls) == (LONG, 0)
