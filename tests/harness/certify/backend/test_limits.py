"""The time limits of a candidate's calls."""

from __future__ import annotations

from barrier_tck.harness.certify.backend.pool import Limits, Pool
from barrier_tck.harness.certify.backend.stage import BackendStage


def test_a_scaled_time_limit_is_that_of_processes_that_there_are_and_of_those_that_come() -> None:
    pool = Pool("heap", Limits(call_s=40.0, trial_s=80.0), total_s=120.0)
    stage = BackendStage(pool)
    try:
        kept, taken = pool.take(), pool.take()
        pool.keep(kept)
        assert stage.scale_time_limit(0.5)
        candidates = [kept, taken, pool.take(), pool.take()]
        assert {(one.limits.call_s, one.limits.trial_s) for one in candidates} == {(20.0, 40.0)}
        assert stage.scale_time_limit(0.5), "a share of the usual one, not of the last"
        assert taken.limits.call_s == 20.0
        stage.scale_time_limit(1.0)
        assert {one.limits.call_s for one in candidates} == {40.0}
    finally:
        pool.close()


def test_to_load_a_backend_takes_its_time_where_calls_must_hurry() -> None:
    """Each attempt to make a sequence smaller may need a new process, and a module that takes long to import."""
    pool = Pool("heap", Limits(call_s=40.0), total_s=120.0)
    try:
        assert BackendStage(pool).scale_time_limit(1e-6)
        assert pool.take().pid > 0
    finally:
        pool.close()
