"""Inputs are made long enough for the checkpoints that a plan counts on, and not so long that lists or loops become
slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.draw import input_length
from barrier_tck.harness.draw.input_length import (
    BATCHES_MAX,
    CHECKPOINTS_MAX,
    PARTS_MAX,
    batches_in_time,
    long_enough,
    needed_ms,
    short_enough,
    with_few_checkpoints,
)
from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RescalePlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import CheckpointCompleted
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.rounds import Rounds
from barrier_tck.harness.workloads.workload_names import filled

SETTLE_MS = 20


@pytest.mark.parametrize("sources", [1, 4, 15])
@pytest.mark.parametrize(("rate", "batch_records"), [(100, 3), (1_000, 1), (1_000, 7)])
def test_every_source_reads_until_the_last_checkpoint_whatever_the_width(
    sources: int, rate: int, batch_records: int
) -> None:
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan(batches=2, batch_records=batch_records, records_per_second=rate),
            job=JobPlan(widths={"source": sources}),
            checkpoints=CheckpointPlan(interval_ms=20),
        )
    )
    longer = long_enough(plan, SETTLE_MS, 8)
    workload = longer.workload
    assert workload.records_per_second is not None and workload.records_per_second <= rate
    reads_ms = 1_000 * workload.batches * workload.batch_records / workload.records_per_second
    assert reads_ms >= needed_ms(longer, SETTLE_MS, 8)
    assert workload.batches * sources <= BATCHES_MAX


def test_an_input_that_is_longer_already_stays_as_it_is() -> None:
    workload = WorkloadPlan(batches=BATCHES_MAX, batch_records=2, records_per_second=100)
    plan = filled(TrialPlan(workload=workload, job=JobPlan(widths={"source": 2})))
    assert long_enough(plan, SETTLE_MS, 2).workload == workload


def test_a_trial_lasts_until_an_input_is_read_whose_checkpoints_are_rare(tmp_path: Path) -> None:
    """Fourteen checkpoints that are 5 s apart take longer than a trial has by default."""
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan(batches=39, batch_records=4, records_per_second=100),
            checkpoints=CheckpointPlan(interval_ms=5_000, timeout_ms=2_000),
        )
    )
    longer = long_enough(plan, SETTLE_MS, 14)
    assert _split_ms(longer) >= needed_ms(longer, SETTLE_MS, 14)
    assert longer.limits.virtual_ms > plan.limits.virtual_ms
    history = execute(longer, ReferenceSimulated(), tmp_path, ()).history
    assert history is not None and history.end is End.FINISHED
    assert sum(1 for _ in history.of(CheckpointCompleted)) >= 14


def _split_ms(plan: TrialPlan) -> float:
    """Return how long the longest split is read."""
    workload = plan.workload
    assert workload.records_per_second is not None
    return 1_000 * workload.batches * workload.batch_records / workload.records_per_second


@pytest.mark.parametrize(
    ("changes", "splits"),
    [
        ({}, 1),
        ({"rescales": (RescalePlan(widths={"source": 2}), RescalePlan(widths={"source": 4}))}, 3),
        ({"deployment": DeploymentPlan(elastic_wait_ms=20)}, 6),
        ({"deployment": DeploymentPlan(elastic_wait_ms=20, fixed_vertices=("source",))}, 1),
    ],
    ids=["as it is", "narrower", "elastic", "elastic, but the source"],
)
def test_a_trial_lasts_until_few_subtasks_have_read_what_many_had(
    changes: dict[str, Any], splits: int
) -> None:
    """Each subtask of six may have three splits, and reads one after the other."""
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan(batches=50, batch_records=4, records_per_second=5),
            job=JobPlan(widths={"source": 6}),
            **changes,
        )
    )
    longer = long_enough(plan, SETTLE_MS, 1)
    assert longer.limits.virtual_ms > 3 * splits * _split_ms(longer)


def test_a_short_input_changes_no_limit() -> None:
    plan = filled(TrialPlan(workload=WorkloadPlan(batches=30, batch_records=3, records_per_second=300)))
    assert long_enough(plan, SETTLE_MS, 4).limits == plan.limits


def _slow(sources: int, slow_batch_ms: int, batches: int = 70) -> TrialPlan:
    return filled(
        TrialPlan(
            workload=WorkloadPlan(batches=batches, batch_records=3, records_per_second=400),
            job=JobPlan(widths={"source": sources}),
            deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=slow_batch_ms),
            checkpoints=CheckpointPlan(interval_ms=6, mode="unaligned"),
        )
    )


def test_a_slow_vertex_of_a_wide_job_takes_no_more_checkpoints_than_can_be_judged(tmp_path: Path) -> None:
    plan = _slow(sources=8, slow_batch_ms=20)
    quicker = with_few_checkpoints(plan)
    assert 1 <= quicker.deployment.slow_batch_ms < 20
    assert long_enough(plan, SETTLE_MS, 2).deployment == quicker.deployment
    history = execute(quicker, ReferenceSimulated(), tmp_path, ()).history
    assert history is not None and history.end is End.FINISHED
    assert CHECKPOINTS_MAX / 10 < sum(1 for _ in history.of(CheckpointCompleted)) <= CHECKPOINTS_MAX


@pytest.mark.parametrize("plan", [_slow(sources=1, slow_batch_ms=20), _slow(sources=8, slow_batch_ms=1)])
def test_a_slow_vertex_that_is_judged_in_time_stays_as_it_is(plan: TrialPlan) -> None:
    assert with_few_checkpoints(plan) == plan


def _wide(sources: int) -> TrialPlan:
    return filled(
        TrialPlan(
            workload=WorkloadPlan(batches=30, batch_records=3, keys=1, records_per_second=300),
            job=JobPlan(widths={"source": sources}),
            deployment=DeploymentPlan(max_parallelism=32),
            network=NetworkPlan(buffer_bytes=23),
            checkpoints=CheckpointPlan(interval_ms=6, mode="unaligned"),
        )
    )


@pytest.mark.long
def test_a_busy_vertex_of_a_wide_job_takes_no_more_checkpoints_than_can_be_judged(tmp_path: Path) -> None:
    """A job of 29 sources, whose only reader gets a record at a time, once had no verdict within two minutes."""
    plan = _wide(sources=29)
    rarer = with_few_checkpoints(plan)
    assert rarer.checkpoints.interval_ms > 6
    history = execute(rarer, ReferenceSimulated(), tmp_path, ()).history
    assert history is not None and history.end is End.FINISHED
    completed, most = sum(1 for _ in history.of(CheckpointCompleted)), PARTS_MAX // len(rarer.job.subtasks)
    assert most / 10 < completed <= most
    assert with_few_checkpoints(_wide(sources=2)) == _wide(sources=2)


@pytest.mark.parametrize(
    ("mode", "latency_ms_max", "channel_capacity", "interval_ms"),
    [
        ("at_least_once", 2, 1, 39),
        ("at_least_once", 0, 1, 9),
        ("at_least_once", 2, 8, 9),
        ("exactly_once", 2, 1, 9),
    ],
)
def test_checkpoints_at_least_once_are_rarer_where_channels_have_little_room(
    mode: CheckpointingMode, latency_ms_max: int, channel_capacity: int, interval_ms: int
) -> None:
    """A drawn job of this size once took 107 s of processor time, 94 of them to judge 245 checkpoints."""
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan(batches=156, batch_records=2, keys=3, records_per_second=1_000),
            job=JobPlan(widths={"source": 3, "totals": 1, "sink": 1}),
            network=NetworkPlan(latency_ms_max=latency_ms_max, channel_capacity=channel_capacity),
            checkpoints=CheckpointPlan(interval_ms=9, mode=mode),
        )
    )
    assert with_few_checkpoints(plan).checkpoints.interval_ms == interval_ms


NARROW = NetworkPlan(latency_ms_max=7, channel_capacity=1, buffer_bytes=23)
WIDE = NetworkPlan(latency_ms_max=1, channel_capacity=8)


def _forked(batches: int, network: NetworkPlan = WIDE, virtual_ms: int = 60_000) -> TrialPlan:
    """Return a plan without loops whose records come to a vertex over two edges, and to the sink over three."""
    key = ("key",)
    job = JobPlan(
        shape=GENERATED,
        vertices=(
            VertexPlan("read", SOURCE, 3, then=(OperatorPlan("read.mark", "pass"),)),
            VertexPlan("twice", "keep", 1),
            VertexPlan("once", "keep", 1),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            EdgePlan("read", "twice", Spread.HASH, key),
            EdgePlan("read", "twice", Spread.HASH, key),
            EdgePlan("read", "once", Spread.HASH, key),
            EdgePlan("twice", "out", Spread.FORWARD),
            EdgePlan("once", "out", Spread.FORWARD),
        ),
    )
    return filled(
        TrialPlan(
            workload=WorkloadPlan(
                "lineage", batches=batches, batch_records=2, keys=7, records_per_second=600
            ),
            job=job,
            network=network,
            checkpoints=CheckpointPlan(interval_ms=6, mode="unaligned"),
            limits=LimitsPlan(virtual_ms=virtual_ms),
        )
    )


def test_a_job_takes_its_input_before_the_trial_is_over(tmp_path: Path) -> None:
    """Two edges, channels with room for a record, and 15 ms for each: a drawn plan was UNKNOWN after a minute."""
    slow = NetworkPlan(latency_ms_max=15, channel_capacity=1, buffer_bytes=23)
    plan = _forked(40, slow, virtual_ms=2_000)
    shorter = short_enough(plan)
    assert 1 < shorter.workload.batches < 40
    ends = [
        execute(one, ReferenceSimulated(), tmp_path, ()).history.end  # type: ignore[union-attr]
        for one in (plan, shorter)
    ]
    assert ends == [End.STUCK, End.FINISHED]
    assert short_enough(_forked(40, slow)) == _forked(40, slow)


@pytest.mark.parametrize("mode", ["unaligned", "at_least_once"])
def test_all_checkpoints_together_hold_no_more_records_than_can_be_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: CheckpointingMode
) -> None:
    """A drawn plan had 417 checkpoints that held 24 million records, and took minutes to judge."""
    plan = _forked(120)
    plan = msgspec.structs.replace(plan, checkpoints=msgspec.structs.replace(plan.checkpoints, mode=mode))
    assert with_few_checkpoints(plan) == plan
    monkeypatch.setattr(input_length, "RECORDS_MAX", 10_000)
    monkeypatch.setattr(input_length, "RECORDS_MAX_AT_LEAST_ONCE", 10_000)
    history = execute(with_few_checkpoints(plan), ReferenceSimulated(), tmp_path, ()).history
    assert history is not None and history.end is End.FINISHED
    held = [
        sum(len(kept) for part in view.state for kept in part.entries.values())
        for view in history.checkpoints
    ]
    assert len(held) > 1 and 1_000 < sum(held) < 10_000


def _looped(network: NetworkPlan, slow_batch_ms: int = 0, fork: bool = False) -> TrialPlan:
    """Return a plan whose records go round up to three times, if they ``fork`` as two records each time."""
    job = Rounds().job("loop", {})
    then = (OperatorPlan("again.fork", "fork"),) if fork else ()
    vertices = [
        msgspec.structs.replace(vertex, then=then) if vertex.name == "again" else vertex
        for vertex in job.vertices
    ]
    return filled(
        TrialPlan(
            seed=3,
            workload=WorkloadPlan("rounds", batches=60, batch_records=3),
            job=JobPlan(shape=GENERATED, vertices=tuple(vertices), edges=job.edges),
            deployment=DeploymentPlan(
                slow_vertex="head" if slow_batch_ms else None, slow_batch_ms=slow_batch_ms
            ),
            checkpoints=CheckpointPlan(interval_ms=400, mode="unaligned"),
            network=network,
            limits=LimitsPlan(progress_ms=1_500),
        )
    )


@pytest.mark.parametrize(
    "plan",
    [_looped(WIDE, slow_batch_ms=20), _looped(NARROW), _looped(NARROW, fork=True)],
    ids=["slow", "narrow", "fork"],
)
def test_a_job_with_loops_deals_with_its_input_while_it_must_show_that_it_goes_on(
    plan: TrialPlan, tmp_path: Path
) -> None:
    shorter = short_enough(plan)
    assert 1 <= shorter.workload.batches < plan.workload.batches
    history = execute(shorter, ReferenceSimulated(), tmp_path, ()).history
    assert history is not None and history.end is End.FINISHED
    ended_ms = history.operations[-1].time_ms
    assert plan.limits.progress_ms / 10 < ended_ms < plan.limits.progress_ms


def test_what_is_multiplied_in_a_loop_is_multiplied_in_every_turn() -> None:
    assert 2 * batches_in_time(_looped(NARROW, fork=True)) < batches_in_time(_looped(NARROW))


def test_inputs_without_loops_and_inputs_that_go_round_in_time_stay_as_they_are() -> None:
    quick = msgspec.structs.replace(_looped(WIDE), limits=LimitsPlan())
    straight = filled(TrialPlan(workload=WorkloadPlan(batches=2_000), network=NARROW))
    empty = msgspec.structs.replace(quick, workload=WorkloadPlan("rounds", batches=0))
    assert short_enough(quick) == quick
    assert short_enough(straight) == straight
    assert short_enough(empty) == empty


def test_an_input_that_is_made_longer_is_read_more_slowly_if_loops_could_not_deal_with_it() -> None:
    plan = _looped(NARROW, fork=True)
    paced = msgspec.structs.replace(
        plan, workload=msgspec.structs.replace(plan.workload, records_per_second=600)
    )
    longer = long_enough(paced, SETTLE_MS, 8)
    assert longer.workload.batches <= batches_in_time(longer)
    assert longer.workload.records_per_second is not None
    reads_ms = 1_000 * longer.workload.batches * 3 / longer.workload.records_per_second
    assert reads_ms >= needed_ms(longer, SETTLE_MS, 8)
