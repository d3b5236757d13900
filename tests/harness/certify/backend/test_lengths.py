"""To which lengths files are cut, by examples and properties."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.certify.backend import listed_steps, steps, wire
from barrier_tck.harness.certify.backend.model import COMPRESSIONS, NAMES
from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.wire import lengths_to_cut_to


def test_a_short_file_is_cut_to_every_length_longest_first() -> None:
    assert lengths_to_cut_to(4, [2], 10) == [3, 2, 1, 0]
    assert lengths_to_cut_to(0, [], 10) == []


def test_a_long_file_is_cut_near_its_ends_and_where_writes_ended() -> None:
    ends = [1_000, 5_000, 9_000]
    chosen = lengths_to_cut_to(10_000, ends, 240)
    assert {0, 1, 63, *ends, 9_976, 9_999} <= set(chosen)
    assert all(later - earlier < 200 for later, earlier in itertools.pairwise(chosen))


@given(
    size=st.integers(0, 5_000),
    ends=st.lists(st.integers(0, 5_000), max_size=400),
    at_most=st.integers(200, 300),
)
def test_lengths_are_below_the_size_descending_and_few(size: int, ends: list[int], at_most: int) -> None:
    chosen = lengths_to_cut_to(size, sorted(ends), at_most)
    assert chosen == sorted(set(chosen), reverse=True)
    assert all(0 <= length < size for length in chosen)
    assert len(chosen) <= at_most


def test_the_lengths_at_which_a_backend_ended_a_write_are_among_those_of_a_large_file() -> None:
    pool = Pool("barrier_tck.harness.reference.mutants.held_out_file_bugs:EndsBehindAnyBlock", total_s=120.0)
    session = Session(pool)
    try:
        for step in (
            steps.Fill(0, NAMES[0], (0, 1, 2), 3_000, 12, 30),
            steps.Snapshot(0, 1),
            steps.Run(0, 1),
        ):
            session.apply(step)
        (handle,) = session.stores[0].snapshots[1].handles
        chosen = session.call(wire.LengthsRequest(0, 1, handle, 120))
        content = (session.storage / wire.CHECKPOINTS / handle.path).read_bytes()
        ends = [len(b"blocks")]
        while int.from_bytes(content[ends[-1] : ends[-1] + 4], "big"):
            ends.append(ends[-1] + 4 + int.from_bytes(content[ends[-1] : ends[-1] + 4], "big"))
        assert len(ends) == 4 and set(ends) <= set(chosen)
    finally:
        session.end()
        pool.close()


def test_hints_ask_for_a_second_copy_in_another_format_than_the_first() -> None:
    layouts = [step for step in listed_steps.hints() if isinstance(step, steps.Layout)]
    assert layouts and all(layout.second and layout.second != layout.compression for layout in layouts)
    assert {layout.second for layout in layouts} == set(COMPRESSIONS)


def test_words_come_about_known_and_unknown_checkpoints_below_and_above() -> None:
    played = listed_steps.words_amid()
    unknown = {(step.what, step.checkpoint < 10) for step in played if isinstance(step, steps.Unseen)}
    assert unknown == {(word, below) for word in ("confirm", "abort") for below in (True, False)}
    taken = [step.checkpoint for step in played if isinstance(step, steps.Snapshot)]
    assert len(taken) == len(set(taken)) == 24 + 2 * 6, "six of them have an older one, and six a newer one"
    assert sum(isinstance(step, steps.AbortSnapshot) for step in played) == 6


def test_a_word_about_an_unknown_checkpoint_has_the_id_that_the_step_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[wire.AnyRequest] = []
    real = Session.call

    def call(session: Session, request: wire.AnyRequest) -> Any:
        asked.append(request)
        return real(session, request)

    monkeypatch.setattr(Session, "call", call)
    pool = Pool("heap", total_s=60.0)
    session = Session(pool)
    try:
        session.apply(steps.Unseen(0, "abort", 3))
        assert wire.NotifyRequest(0, 3, "abort") in asked
    finally:
        session.end()
        pool.close()
