"""Checkpoints under backpressure: aligned barriers against barriers that overtake, as the sink gets slower (UNA-3).

Two sources, two keyed subtasks and a sink. The sink is slowed down step by step, until it is 100 times slower than the
sources. The queues in front of it fill up then, up to the sources. An aligned barrier waits until what is before it has
been processed; one that overtakes does not, but what it overtakes is persisted with the checkpoint. In every step the
modes take turns. Each run is a trial of the suite, and must be VALID.

The *delay* of a checkpoint is the time from its trigger until the last subtask takes its snapshot: the barrier's way
through the queues, and alignment. On Spark a subtask takes no barrier while it processes a batch, so a single batch of
the sink adds to it. *Alignment* is the part of the delay from the first barrier at a subtask to the last.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reports.figure_page import LEGEND, Panel, figure_page
from benchmarks.benchmark_trials import SYSTEMS, counted, opened_with_scratch, text_table, valid_trial

Progress = Callable[[str, float], None]

MODES: tuple[CheckpointingMode, ...] = ("exactly_once", "aligned_timeout", "unaligned")
NAMES = {"exactly_once": "aligned", "aligned_timeout": "aligned, then unaligned", "unaligned": "unaligned"}
COLOURS = {"exactly_once": "#c2410c", "aligned_timeout": "#7c6f00", "unaligned": "#0f766e"}
SLOW_BATCH_MS = {1: 0, 3: 1, 10: 3, 30: 10, 100: 33}
"""How many times slower than the sources the sink is -> what it takes for a batch; at 1 it is not slowed down."""
BATCH_RECORDS, RECORDS_PER_SECOND = 10, 7_500
"""Of each source. A sink that takes 33 ms for the 5 records of its batches does 150 of the 15,000 records a second."""
CAPACITY = 4
"""Batches that each end of a channel holds."""
TIMEOUT_MS = 50
"""After which barriers overtake in the mode that aligns at first."""
SECONDS = 6
"""How long a run lasts, about."""

_SINK_BATCHES_PER_SECOND_MAX = 1_000


def run(progress: Progress, system: str = SYSTEMS[0]) -> dict[str, Any]:
    """Run the benchmark in one of ``SYSTEMS``; ``progress(what, share)`` is called as it advances (share 0 to 1).

    Raises RuntimeError if a run is not VALID or completed no checkpoint while its queues were full.
    """
    steps = [(factor, mode) for factor in SLOW_BATCH_MS for mode in MODES]
    points: list[dict[str, Any]] = []
    with opened_with_scratch(system) as (under_test, directory):
        for number, (factor, mode) in enumerate(steps):
            progress(f"{NAMES[mode]}, sink {factor} times slower", number / len(steps))
            result = valid_trial(plan_of(factor, mode), under_test, directory)
            points.append(point_of(result.record, factor, mode))
    return {**headlines(points), "system": system, "points": points}


def plan_of(factor: int, mode: CheckpointingMode) -> TrialPlan:
    """Return the trial of one step in one mode."""
    slow_ms = SLOW_BATCH_MS[factor]
    sink_batches = SECONDS * min(_SINK_BATCHES_PER_SECOND_MAX, 1000 / slow_ms if slow_ms else float("inf"))
    return filled(
        TrialPlan(
            seed=7,
            workload=WorkloadPlan(
                batches=round(sink_batches / 4),  # two sources, each of whose batches becomes two
                batch_records=BATCH_RECORDS,
                keys=50,
                records_per_second=RECORDS_PER_SECOND,
            ),
            job=JobPlan(widths={"source": 2, "totals": 2, "sink": 1}),
            deployment=DeploymentPlan(write_through=False, slow_vertex="sink", slow_batch_ms=slow_ms),
            checkpoints=CheckpointPlan(
                mode=mode,
                interval_ms=200,
                timeout_ms=60_000,
                async_ms_max=0,
                alignment_timeout_ms=TIMEOUT_MS,
            ),
            network=NetworkPlan(latency_ms_max=1, channel_capacity=CAPACITY),
            limits=LimitsPlan(virtual_ms=600_000, wall_s=180),
            note=f"the backpressure benchmark: {NAMES[mode]}, a sink {factor} times slower than the sources",
        )
    )


def point_of(record: TrialRecord, factor: int, mode: CheckpointingMode) -> dict[str, Any]:
    """Return the numbers of one run: medians, and the largest delay, over the checkpoints that count."""
    delays, alignments, in_flight, written = [], [], [], []
    for checkpoint, parts in counted(record):
        delays.append(
            max(part.alignment_started_ms + part.alignment_ms for part in parts) - checkpoint.triggered_at_ms
        )
        alignments.append(max(part.alignment_ms for part in parts))
        in_flight.append(sum(part.channel_bytes for part in parts))
        written.append(sum(part.bytes_written for part in parts))
    return {
        "mode": mode,
        "sink_times_slower": factor,
        "slow_batch_ms": SLOW_BATCH_MS[factor],
        "checkpoints": len(delays),
        "delay_ms": round(statistics.median(delays), 2),
        "delay_ms_max": round(max(delays), 2),
        "alignment_ms": round(statistics.median(alignments), 2),
        "alignment_ms_max": round(max(alignments), 2),
        "bytes_in_flight": round(statistics.median(in_flight)),
        "bytes_persisted": round(statistics.median(written)),
        "run_ms": round(record.duration_ms),
    }


def headlines(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers at the slowest sink, by mode."""
    slowest = max(point["sink_times_slower"] for point in points)
    return {
        f"{point['mode']}_{name}_at_{slowest}": point[name]
        for point in points
        if point["sink_times_slower"] == slowest
        for name in ("delay_ms", "delay_ms_max", "alignment_ms_max", "bytes_in_flight", "bytes_persisted")
    }


def table(numbers: dict[str, Any]) -> str:
    """Return the numbers of each step and mode side by side."""
    columns = ("sink_times_slower", "mode", "delay_ms", "alignment_ms", "bytes_in_flight", "bytes_persisted")
    return text_table(numbers["points"], columns)


def page(numbers: dict[str, Any]) -> str:
    """Return both curves as a page that a browser shows without a network."""
    curves = (
        ("delay_ms", "Delay of a checkpoint", "ms, median"),
        ("alignment_ms", "Alignment at the slowest subtask", "ms, median"),
        ("bytes_persisted", "Bytes persisted by a checkpoint", "bytes, median"),
    )
    return figure_page(
        "Checkpoints under backpressure",
        f"Measured with {numbers['system']}. The sink is slowed down from left to right.",
        [Panel(title, _figure(numbers["points"], name, unit)) for name, title, unit in curves],
    )


def _figure(points: Sequence[dict[str, Any]], name: str, unit: str) -> dict[str, Any]:
    traces = []
    for mode in MODES:
        of_mode = [point for point in points if point["mode"] == mode]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": NAMES[mode],
                "x": [point["sink_times_slower"] for point in of_mode],
                "y": [point[name] for point in of_mode],
                "line": {"color": COLOURS[mode]},
            }
        )
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "margin": {"l": 70, "r": 12, "t": 32, "b": 48},
            "legend": LEGEND,
            "xaxis": {
                "type": "log",
                "tickvals": list(SLOW_BATCH_MS),
                "title": {"text": "sink slower than the sources, times"},
            },
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        },
    }
