"""How long a trial on a cluster may take if its machine is busy with other things: no clock runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.harness.record.history import End, Recorded
from barrier_tck.harness.record.operations import HeldUp, Operation
from barrier_tck.harness.reference.spark.spark_trial import SparkTrial


@pytest.mark.parametrize(("held_up_ms", "ends_s"), [(0, 10), (25_000, 35), (10_000_000, 50)])
def test_a_trial_that_was_held_up_by_a_busy_machine_has_so_much_longer(held_up_ms: int, ends_s: int) -> None:
    now_ms = 0.0

    def pretended_ms() -> float:
        nonlocal now_ms
        now_ms += 70.0
        return now_ms

    held = Recorded[Operation](0, 100.0, "machine", HeldUp(processor_ms=held_up_ms))
    trial: Any = SimpleNamespace(
        _watcher=SimpleNamespace(now_ms=pretended_ms, operations=[held]),
        _nemesis=SimpleNamespace(next_time_ms=lambda: None),
        _plan=SimpleNamespace(limits=SimpleNamespace(wall_s=10)),
        _held_up=SimpleNamespace(look=lambda now_ms, harness_ms: None),
        _reports=SimpleNamespace(total_ms=0.0),
        _job=SimpleNamespace(wait=lambda seconds: None, waiting_for=lambda: ("what it waits for",)),
        _late_ms=0.0,
    )
    ended = SparkTrial._wait(trial)
    assert (ended.end, ended.detail) == (End.STUCK, f"no end within {ends_s} s")
    assert ends_s * 1_000 <= now_ms < ends_s * 1_000 + 1_000
