"""A property that takes long says how far it is, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barrier_tck.harness.certify.engine.hunt import SILENT_S, Hunt
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
