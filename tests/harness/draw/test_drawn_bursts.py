"""Plans of the scenario ``bursts``: sources are quiet for longer than a timer may be late, and timers are set."""

from __future__ import annotations

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.scenarios.bursts import SCENARIO
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.oracle.checkers.timers import LATE_MS
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.dataflow_model import windows_of
from tests.harness.draw.test_drawn_stops import only

SYSTEM = ReferenceSimulated()
CONSTRAINTS = Constraints(SYSTEM.job, SYSTEM.capabilities)


def test_sources_are_quiet_for_longer_than_a_timer_may_be_late() -> None:
    plans = [draw_plan(seed, only("bursts", "graphs"), CONSTRAINTS) for seed in range(12)]
    assert sum(bool(windows_of(plan.job)) for plan in plans) > 6
    for plan in plans:
        workload = plan.workload
        assert workload.records_per_second is not None
        quiet_ms = 1_000 * workload.batch_records / workload.records_per_second
        assert quiet_ms > LATE_MS + plan.checkpoints.interval_ms
        assert workload.batches > 1 and not plan.faults
        assert plan.network.channel_capacity == 1 and plan.network.slow_channel is None


def test_it_is_drawn_in_virtual_time_only() -> None:
    graphs = profile_named("graphs")
    assert SCENARIO.possible(graphs, SYSTEM.capabilities)
    assert not SCENARIO.possible(graphs, SYSTEM.capabilities - {Capability.DETERMINISTIC_REPLAY})
