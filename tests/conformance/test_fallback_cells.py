"""Which cells of the fallback matrix are tried where trials take long."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.conformance.test_local_recovery import COLUMNS, DAMAGES, SAMPLED
from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.fake_system import FakeSystem


def test_each_damage_and_each_column_is_tried_where_trials_take_long() -> None:
    assert {damage for damage, _ in SAMPLED} == set(DAMAGES)
    assert {column for _, column in SAMPLED} == set(COLUMNS)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("quick", [False, True])
def test_every_cell_is_tried_where_trials_take_no_time_or_if_it_is_asked_for(
    tmp_path: Path, asked: bool, quick: bool
) -> None:
    system = FakeSystem()
    system.capabilities = frozenset({Capability.DETERMINISTIC_REPLAY} if quick else ())
    trials = Trials(system, tmp_path, every_fallback=asked)
    assert trials.every_fallback is (asked or quick)
