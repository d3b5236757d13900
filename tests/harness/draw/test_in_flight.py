"""Plans in which several checkpoints are in flight, and some are given up (``scenarios/in_flight``)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from barrier_tck.faults.vocabulary import After, ProtocolPoint, Trigger
from barrier_tck.harness.record.operations import CheckpointAborted
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from tests.harness.draw.test_rare_moments import SYSTEM, drawn, shown_by


def test_a_channel_lags_beside_others_while_barriers_leave_often() -> None:
    plans = drawn("in_flight", "modes", 40)
    seen: Counter[str] = Counter()
    for plan in plans:
        checkpoints, network, job = plan.checkpoints, plan.network, plan.job
        assert checkpoints.max_concurrent >= 4
        if network.slow_channel is None:
            assert all(job.channels_into(vertex.name) <= 1 for vertex in job.vertices)
            continue
        seen["lags"] += 1
        _, receiver = job.channels[network.slow_channel]
        assert job.channels_into(receiver.partition("[")[0]) > 1
        lag_ms = network.latency_ms_max * network.slow_factor
        assert lag_ms > 2 * checkpoints.interval_ms
        seen["expiring"] += checkpoints.timeout_ms < lag_ms + job.depth * network.latency_ms_max
        seen["patient"] += checkpoints.mode == "aligned_timeout" and checkpoints.alignment_timeout_ms > 0
        seen[checkpoints.mode] += 1
        seen["ends early"] += plan.workload.early_ends > 0
        for kind in {type(one.fault) for one in plan.faults if _as_triggered(one.trigger)}:
            seen[kind.label] += 1
        seen["fails behind the lag"] += any(
            _as_triggered(one.trigger) and getattr(one.fault, "subtask", None) == receiver
            for one in plan.faults
        )
    assert seen["lags"] >= 36 and seen["expiring"] >= 12 and seen["patient"] >= 12 and seen["ends early"] >= 4
    assert seen["snapshot fails"] >= 15 and seen["primary writes fail"] >= 15
    assert min(seen[mode] for mode in ("exactly_once", "at_least_once", "unaligned")) >= 2
    assert seen["fails behind the lag"] >= 20


def _as_triggered(trigger: Trigger) -> bool:
    return isinstance(trigger, After) and trigger.point is ProtocolPoint.CHECKPOINT_TRIGGERED


def test_an_older_checkpoint_is_given_up_while_a_newer_one_holds_a_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In at least one plan of eight, which chance did in none of a hundred."""
    reached: Counter[str] = Counter()
    give_up = BarrierRecorder._give_up

    def counted(recorder: BarrierRecorder, cut: object) -> None:
        give_up(recorder, cut)  # type: ignore[arg-type]
        reached["held"] += any(recorder.blocked)

    plans, trials = drawn("in_flight", "modes", 24), 0
    with monkeypatch.context() as watched:
        watched.setattr(BarrierRecorder, "_give_up", counted)
        for number, plan in enumerate(plans):
            directory = tmp_path / str(number)
            directory.mkdir()
            before = reached["held"]
            result = execute(plan, SYSTEM, directory, ())
            trials += reached["held"] > before
            assert result.history is not None
            reached["aborted"] += any(True for _ in result.history.of(CheckpointAborted))
    assert trials >= 3 and reached["aborted"] >= 12


def test_they_show_that_channels_are_released_too_early(tmp_path: Path) -> None:
    assert shown_by("UC-16", drawn("in_flight", "modes", 24), tmp_path)
