"""A property that takes long says how far it is, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barrier_tck.harness.certify.engine.hunt import SILENT_S, Hunt
from barrier_tck.harness.certify.engine.playing import Breach
from barrier_tck.harness.certify.engine.shrinker import smallest
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.support.notices import notices_shown
from tests.harness.certify.test_shrinker import Number, NumbersStage

STEPS = tuple(map(Number, range(10)))


def clock(step_s: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step_s


@pytest.mark.parametrize(("seconds_a_step", "lines"), [(0.01, 0), (SILENT_S / 4, 2)])
def test_a_long_example_says_at_which_step_it_is_and_a_short_one_nothing(
    seconds_a_step: float, lines: int
) -> None:
    ticks, said = clock(seconds_a_step), list[str]()
    hunt = Hunt(NumbersStage(0), name="any-number-of-snapshots", clock=lambda: next(ticks))
    with notices_shown(said.append):
        hunt.play(STEPS)
    assert len(said) == lines
    if said:
        assert said[0] == "checking any-number-of-snapshots: step 4 of 10, 0 calls, after 20 s"


def test_many_examples_say_how_many_there_were() -> None:
    ticks, said = clock(SILENT_S / 1.5), list[str]()
    hunt = Hunt(NumbersStage(0), name="all-at-once", clock=lambda: next(ticks))
    with notices_shown(said.append):
        for _ in range(4):
            hunt.play(())
    assert said == [
        "checking all-at-once: 2 examples, 0 calls, after 27 s",
        "checking all-at-once: 4 examples, 0 calls, after 53 s",
    ]


@pytest.mark.parametrize(("seconds_a_run", "lines"), [(0.01, 1), (SILENT_S, 3)])
def test_making_a_failing_sequence_smaller_says_so_at_once_and_then_how_far_it_is(
    seconds_a_run: float, lines: int
) -> None:
    ticks, said = clock(seconds_a_run), list[str]()
    found = Breach(tuple(map(Number, (1, 30, 70))), Violation("both", "BCK-1"))
    with notices_shown(said.append):
        smallest(NumbersStage(1_000), found, name="any-number-of-snapshots", clock=lambda: next(ticks))
    assert said[0] == "any-number-of-snapshots failed: making the sequence of 3 steps smaller"
    assert len(said) >= lines if lines > 1 else len(said) == 1
    if lines > 1:
        assert said[1] == "any-number-of-snapshots: 3 steps left after 1 run, 20 s"
        assert said[-1].startswith("any-number-of-snapshots: 2 steps left after ")


def test_without_a_name_nothing_is_said() -> None:
    said = list[str]()
    with notices_shown(said.append):
        smallest(NumbersStage(1_000), Breach(STEPS, Violation("both", "BCK-1")))
    assert said == []
