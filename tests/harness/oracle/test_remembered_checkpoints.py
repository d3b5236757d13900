"""Judges that keep a summary of earlier checkpoints say the same as if they looked at all of them; grain: values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.harness.oracle.checkers import checkpoint_admission, checkpoints_go_on
from barrier_tck.harness.oracle.checkers.completions_learned import _Due
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.reasons import Reason

TAKES = st.sampled_from((None, 0, 1, 3, 5, 10, 25, 60))
LIVES = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 2, 5, 10, 11, 30)),
        TAKES,
        st.booleans(),
        st.sampled_from(("", "", "", "savepoint", "stop", "final")),
    ),
    max_size=10,
)
"""Of each checkpoint: how long after the one before it was triggered, how long it took, whether it failed, and what it
is."""
CHECKPOINTS = st.builds(
    lambda interval_ms, pause_ms, at_once: CheckpointPlan(
        interval_ms=interval_ms, min_pause_ms=pause_ms, max_concurrent=at_once
    ),
    st.sampled_from((1, 10, 20)),
    st.sampled_from((0, 5, 10)),
    st.sampled_from((1, 2, 3)),
)


def _attempt(lives: list[tuple[int, int | None, bool, str]]) -> AttemptLife:
    attempt, at_ms = AttemptLife(1, 0.0, None, 0.0), 0.0
    for number, (after_ms, took_ms, failed, kind) in enumerate(lives, 1):
        at_ms += after_ms
        savepoint = "place" if kind in ("savepoint", "stop") else None
        life = CheckpointLife(
            number, 1, at_ms, int(at_ms * 100) + number, kind == "final", savepoint, kind == "stop"
        )
        if took_ms is not None:
            life.end(at_ms + took_ms, int((at_ms + took_ms) * 100) + 50, Reason.EXPIRED if failed else None)
        attempt.checkpoints.append(life)
    attempt.ended_ms = at_ms + 50
    return attempt


@settings(max_examples=400)
@given(LIVES, CHECKPOINTS)
def test_when_a_checkpoint_is_due_depends_on_no_more_than_is_kept_of_those_before(
    lives: list[tuple[int, int | None, bool, str]], checkpoints: CheckpointPlan
) -> None:
    def keep(before: checkpoints_go_on._Before, life: CheckpointLife) -> None:
        before.over |= life.completed and (life.final or life.stops)
        before.lives.append(life)
        before.begun_ms = before.begun_ms if life.savepoint is not None else life.triggered_ms

    def gaps() -> list[tuple[str, float, str]]:
        found = checkpoints_go_on._gaps(_attempt(lives), checkpoints, 1e9, 0.0, lambda *_: 0.0)
        return [(sign.seen, until_ms, sentence) for sign, until_ms, sentence in found]

    shown = gaps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints_go_on._Before, "add", keep)
        assert gaps() == shown


@settings(max_examples=400)
@given(LIVES)
def test_what_is_known_when_a_checkpoint_is_triggered_is_that_of_all_before_it(
    lives: list[tuple[int, int | None, bool, str]],
) -> None:
    attempt = _attempt(lives)
    ordinary = [life for life in attempt.checkpoints if life.savepoint is None]
    for place, (life, before) in enumerate(checkpoint_admission._triggers(attempt)):
        assert life is ordinary[place]
        ended = [other for other in ordinary[:place] if other.ended_before(life)]
        assert before.in_flight == [other for other in ordinary[: place + 1] if other not in ended]
        assert before.last_end_ms == max((other.ended_ms or 0.0 for other in ended), default=None)
        assert sorted(other.number for other in before.over) == [
            other.number for other in ended if other.final and other.completed
        ]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=6), st.integers(0, 7))
def test_the_newest_checkpoint_that_must_be_known_is_the_greatest_of_those_before(
    due: list[tuple[int, int]], time_ms: int
) -> None:
    known = _Due()
    for due_ms, checkpoint in sorted(due, key=lambda each: each[0]):
        known.add(due_ms, checkpoint)
    assert known.newest_before(time_ms) == max(
        (checkpoint for due_ms, checkpoint in due if due_ms < time_ms), default=None
    )
