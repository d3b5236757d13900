"""The basic choices: shares are what they say."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import DrawnChoices, chance
from barrier_tck.harness.draw.strategies import PLAIN_BACKEND

AT_ONCE = 10
"""Answers in one example."""


@st.composite
def _answers(draw: st.DrawFn, per_mille: int, of_faults: bool) -> list[bool]:
    draw(st.integers(0, 10**9))  # otherwise Hypothesis has soon seen all that there is
    choices = DrawnChoices(draw)
    return [choices.chance(per_mille) if of_faults else chance(draw, per_mille) for _ in range(AT_ONCE)]


def _share(per_mille: int, of_faults: bool = False) -> float:
    """Return the share of yes among many answers, in 1,000."""
    said = Counter[bool]()

    @seed(7)
    @settings(
        max_examples=400,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=tuple(HealthCheck),
        backend=PLAIN_BACKEND,
    )
    @given(_answers(per_mille, of_faults))
    def draw(answers: list[bool]) -> None:
        said.update(answers)

    draw()
    return 1_000 * said[True] / said.total()


@pytest.mark.long
@pytest.mark.parametrize("per_mille", [60, 250, 400, 600, 900])
def test_a_share_is_what_it_says(per_mille: int) -> None:
    assert _share(per_mille) == pytest.approx(per_mille, abs=30)


def test_the_ends_are_never_and_always() -> None:
    assert (_share(0), _share(1_000)) == (0, 1_000)


def test_faults_are_drawn_by_the_same_shares() -> None:
    assert _share(250, of_faults=True) == pytest.approx(250, abs=30)
