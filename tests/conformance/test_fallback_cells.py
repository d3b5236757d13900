"""Which cells of the fallback matrix are tried where trials take long."""

from __future__ import annotations

from barrier_tck.conformance.test_local_recovery import COLUMNS, DAMAGES, SAMPLED


def test_each_damage_and_each_column_is_tried_where_trials_take_long() -> None:
    assert {damage for damage, _ in SAMPLED} == set(DAMAGES)
    assert {column for _, column in SAMPLED} == set(COLUMNS)
