"""Drawn plans do in the simulator what they do on Spark.

``tox -e explore`` runs this file with a fixed seed, and the nightly with a fresh one. The name keeps it out of other
commands.
"""

from __future__ import annotations

from itertools import islice

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.world_comparison import compared
from barrier_tck.harness.plan.trial_plan import to_json
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import SystemUnderTest

PLANS = 20
GROUPS = 5
"""Each is a test of its own, so that several processes share them."""


@pytest.mark.long_on_clusters
@pytest.mark.parametrize("group", range(GROUPS))
def test_drawn_plans_are_the_same_in_the_simulator_and_on_spark(
    system: SystemUnderTest, group: int, pytestconfig: pytest.Config
) -> None:
    assert system.world == "spark", "run it with --system reference-spark"
    seed = int(pytestconfig.getoption("--seed"))
    configuration = configuration_from(
        {"name": "worlds", "profile": "spark-explore", "trials": PLANS, "seed": seed}, "worlds"
    )
    plans = [
        msgspec.structs.replace(plan, system={})  # the simulator takes no settings
        for plan in islice(campaign_plans(configuration, system), group, PLANS, GROUPS)
    ]
    found = [compared(plan, ReferenceSimulated(), system, "drawn") for plan in plans]
    different = [
        (one.differences, to_json(plan)) for plan, one in zip(plans, found, strict=True) if one.differences
    ]
    assert not different
    assert sum(one.verdict is Verdict.UNKNOWN for one in found) <= 1, [one.unknown for one in found]
    assert any(one.rows for one in found)
