"""Barriers against Chandy-Lamport on the same acyclic runs: what their snapshots hold, and what they send (CHL-4).

Three job graphs, each with a sink that keeps up and with one that does not, so that the queues are full. In every step
the protocols take turns on the same input. Aligned barriers need no channel state: a process reads nothing from behind
a barrier before its snapshot. Barriers that overtake persist what they overtake. Chandy-Lamport records each channel
from a process's snapshot until the marker comes; the further apart the markers are, the more it records. So it runs
twice: with the sources as initiators, as barriers have it, and with the last vertex before the sink besides. Each run
is a trial of the suite, and must be VALID.

The bytes are those in storage. In ``lineage`` the state grows with the run, so there the bytes of channels are to be
compared. Markers are counted where processes send them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.message_trace import Sent, What
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.system.optional_interfaces import TracesMessages
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reports.figure_page import LEGEND, Panel, figure_page
from benchmarks.benchmark_trials import counted, opened_with_scratch, text_table, valid_trial

Progress = Callable[[str, float], None]

SYSTEMS = ("reference-simulated",)
"""In virtual time the protocols meet the same runs; where time is real, each run is another one."""

ALIGNED, UNALIGNED = "aligned", "unaligned"
FROM_SOURCES, FROM_BELOW = "chandy_lamport", "chandy_lamport_from_below"
PROTOCOLS = {
    ALIGNED: CheckpointPlan(),
    UNALIGNED: CheckpointPlan(mode="unaligned"),
    FROM_SOURCES: CheckpointPlan(protocol="chandy_lamport"),
    FROM_BELOW: CheckpointPlan(protocol="chandy_lamport"),
}
"""Name -> how checkpoints are taken; who initiates the last kind depends on the graph."""
NAMES = {
    ALIGNED: "aligned",
    UNALIGNED: "unaligned",
    FROM_SOURCES: "Chandy-Lamport",
    FROM_BELOW: "Chandy-Lamport<br>from below",
}
"""What the page calls the protocols."""
COLOURS = {"bytes_of_state": "#0f766e", "bytes_of_channels": "#c2410c"}
JOBS = (("keyed-totals", "line"), ("lineage", "diamond"), ("lineage", "shuffles"))
"""Workload and shape of the graphs."""
SLOW_BATCH_MS = {"fast": 0, "slow": 20}
"""Whether the sink keeps up -> how much longer it takes for a batch."""
BATCHES, BATCH_RECORDS, RECORDS_PER_SECOND = 200, 5, 300
"""Of each source."""
CAPACITY = 4
"""Batches that each end of a channel holds."""
INTERVAL_MS = 150


def run(progress: Progress, system: str = SYSTEMS[0]) -> dict[str, Any]:
    """Run the benchmark in one of ``SYSTEMS``; ``progress(what, share)`` is called as it advances (share 0 to 1).

    Raises RuntimeError if a run is not VALID, or completed no checkpoint that counts.
    """
    steps = [(job, sink, protocol) for job in JOBS for sink in SLOW_BATCH_MS for protocol in PROTOCOLS]
    points: list[dict[str, Any]] = []
    with opened_with_scratch(system) as (under_test, directory):
        noting = under_test.tracing_messages() if isinstance(under_test, TracesMessages) else under_test
        for number, (job, sink, protocol) in enumerate(steps):
            progress(f"{' '.join(job)}, {sink} sink, {protocol}", number / len(steps))
            result = valid_trial(plan_of(job, sink, protocol), noting, directory)
            points.append(point_of(result, job, sink, protocol))
    return {**headlines(points), "system": system, "points": points}


def plan_of(job: tuple[str, str], sink: str, protocol: str) -> TrialPlan:
    """Return the trial of one step with one protocol; nothing else depends on the protocol."""
    plan = filled(
        TrialPlan(
            seed=7,
            workload=WorkloadPlan(
                job[0],
                batches=BATCHES,
                batch_records=BATCH_RECORDS,
                keys=50,
                records_per_second=RECORDS_PER_SECOND,
            ),
            job=JobPlan(job[1]),
            network=NetworkPlan(latency_ms_max=2, channel_capacity=CAPACITY),
            limits=LimitsPlan(virtual_ms=600_000, wall_s=180),
            note=f"the benchmark of protocols: {' '.join(job)}, {sink} sink, {protocol}",
        )
    )
    end = plan.job.sinks[-1].name
    before = plan.job.inputs_of(end)[0].source
    checkpoints = msgspec.structs.replace(
        PROTOCOLS[protocol],
        interval_ms=INTERVAL_MS,
        timeout_ms=60_000,
        async_ms_max=0,
        initiators=(plan.job.vertex(before).subtasks,) if protocol == FROM_BELOW else (),
    )
    slow = DeploymentPlan(slow_vertex=end, slow_batch_ms=SLOW_BATCH_MS[sink])
    return msgspec.structs.replace(plan, checkpoints=checkpoints, deployment=slow)


def point_of(result: TrialResult, job: tuple[str, str], sink: str, protocol: str) -> dict[str, Any]:
    """Return the numbers of one run: medians over the checkpoints that count."""
    state, channels, markers, took = [], [], [], []
    for checkpoint, parts in counted(result.record):
        channels.append(sum(part.channel_bytes for part in parts))
        state.append(sum(part.bytes_written for part in parts) - channels[-1])
        markers.append(
            sum(
                isinstance(one, Sent) and one.what is What.BARRIER and one.checkpoint == checkpoint.checkpoint
                for one in result.trace_events
            )
        )
        took.append(checkpoint.ended_at_ms - checkpoint.triggered_at_ms)
    return {
        "job": " ".join(job),
        "sink": sink,
        "protocol": protocol,
        "checkpoints": len(took),
        "bytes_of_state": round(statistics.median(state)),
        "bytes_of_channels": round(statistics.median(channels)),
        "markers": round(statistics.median(markers)),
        "ms": round(statistics.median(took), 1),
    }


def headlines(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many bytes of channels all runs with one kind of sink have together, by protocol."""
    return {
        f"{protocol}_bytes_of_channels_{sink}_sink": sum(
            point["bytes_of_channels"]
            for point in points
            if (point["sink"], point["protocol"]) == (sink, protocol)
        )
        for sink in SLOW_BATCH_MS
        for protocol in PROTOCOLS
    }


def table(numbers: dict[str, Any]) -> str:
    """Return the numbers of all runs side by side."""
    columns = (
        "job",
        "sink",
        "protocol",
        "checkpoints",
        "bytes_of_state",
        "bytes_of_channels",
        "markers",
        "ms",
    )
    return text_table(numbers["points"], columns)


def page(numbers: dict[str, Any]) -> str:
    """Return what the snapshots hold as a page that a browser shows without a network."""
    points = numbers["points"]
    runs = list(dict.fromkeys((point["job"], point["sink"]) for point in points))
    return figure_page(
        "Barriers and Chandy-Lamport on the same runs",
        f"Measured with {numbers['system']}. A bar is a snapshot: the median of a run. From below: "
        "the last vertex before the sink initiates it, too.",
        [
            Panel(
                f"{job}, {sink} sink: {_markers(points, job, sink)} markers each",
                _figure([one for one in points if (one["job"], one["sink"]) == (job, sink)]),
            )
            for job, sink in runs
        ],
    )


def _markers(points: Sequence[dict[str, Any]], job: str, sink: str) -> str:
    """Return how many markers the protocols send for a snapshot of one run, as a phrase."""
    found = sorted({point["markers"] for point in points if (point["job"], point["sink"]) == (job, sink)})
    return " or ".join(map(str, found))


def _figure(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The bars lie, so that their names fit beside them on a narrow screen too."""
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": name.replace("_", " "),
                "x": [point[name] for point in points],
                "y": [NAMES[point["protocol"]] for point in points],
                "marker": {"color": colour},
            }
            for name, colour in COLOURS.items()
        ],
        "layout": {
            "barmode": "stack",
            "height": 240,
            "margin": {"l": 110, "r": 12, "t": 32, "b": 44},
            "legend": LEGEND,
            "xaxis": {"title": {"text": "bytes"}, "rangemode": "tozero", "nticks": 6},
            "yaxis": {"autorange": "reversed"},
        },
    }
