"""Checkpoints in the coordinator's memory: no scenario lets the coordinator die, which would take them along."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from tests.harness.draw.test_rare_moments import SYSTEM


@pytest.mark.long
@pytest.mark.parametrize("profile", ["standard", "savepoints", "chains"])
def test_no_coordinator_dies_that_holds_the_checkpoints(profile: str) -> None:
    known, wide, tried = known_scenarios(), profile_named(profile), 0
    in_memory = replace(wide, checkpoints=replace(wide.checkpoints, storages=("memory",)))
    for name, scenario in known.items():
        only = in_memory.with_shares(**{**dict.fromkeys(known, 0), name: 1_000})
        if not scenario.possible(only, SYSTEM.capabilities):
            continue
        plans = draw_plans(3, 14, only, Constraints(SYSTEM.job, SYSTEM.capabilities))
        assert {plan.checkpoints.storage for plan in plans} == {"memory"}, name
        assert not [one for plan in plans for one in plan.faults if one.fault.ends is Ends.COORDINATOR], name
        tried += 1
    assert tried >= 20
