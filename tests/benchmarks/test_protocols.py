"""The benchmark of protocols: only aligned barriers store no channel state; all protocols send as many markers."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.record.message_trace import Sent, What
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord
from benchmarks import protocols
from benchmarks.benchmark_trials import text_table
from benchmarks.protocols import ALIGNED, FROM_BELOW, FROM_SOURCES, JOBS, PROTOCOLS, SLOW_BATCH_MS, UNALIGNED

SLOW, FAST = "slow", "fast"


class Record:
    """What the benchmark reads of a trial's record."""

    plan = TrialPlan(note="a trial")
    duration_ms = 1_020.0
    attempts = (AttemptRecord(1, 0.0, 20.0, 1_000.0, "finished"),)
    checkpoints: tuple[CheckpointRecord, ...] = (
        CheckpointRecord(1, 1, "completed", 10.0, 900.0),
        CheckpointRecord(2, 1, "completed", 200.0, 400.0),
        CheckpointRecord(3, 1, "aborted", 300.0, 400.0),
        CheckpointRecord(4, 1, "completed", 400.0, 450.0),
    )
    snapshots = (
        SnapshotRecord(2, 1, "a[0]", 210.0, 30.0, 0, 0.0, 0.0, 100, 0),
        SnapshotRecord(2, 1, "b[0]", 250.0, 20.0, 0, 0.0, 0.0, 300, 250),
        SnapshotRecord(4, 1, "a[0]", 410.0, 0.0, 0, 0.0, 0.0, 100, 50),
    )


class Result:
    """What the benchmark reads of a trial."""

    record = Record()
    trace_events = (
        Sent(1, "a[0]", 200.0, "a[0]->b[0]", 7, What.BARRIER, 0, 2),
        Sent(1, "a[0]", 200.0, "a[0]->b[1]", 7, What.BARRIER, 0, 2),
        Sent(1, "a[0]", 201.0, "a[0]->b[0]", 7, What.BATCH, 5),
        Sent(1, "a[0]", 300.0, "a[0]->b[0]", 9, What.BARRIER, 0, 3),
        Sent(1, "a[0]", 400.0, "a[0]->b[0]", 9, What.BARRIER, 0, 4),
        Sent(1, "a[0]", 400.0, "a[0]->b[1]", 9, What.BARRIER, 0, 4),
    )


def test_state_and_channels_are_told_apart_and_markers_are_counted_where_they_are_sent() -> None:
    numbers = protocols.point_of(Result(), ("lineage", "diamond"), SLOW, UNALIGNED)  # type: ignore[arg-type]
    assert (numbers["job"], numbers["checkpoints"], numbers["markers"]) == ("lineage diamond", 2, 2)
    assert (numbers["bytes_of_state"], numbers["bytes_of_channels"], numbers["ms"]) == (100, 150, 125.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_the_protocols_run_on_the_same_acyclic_job_and_input(job: tuple[str, str], protocol: str) -> None:
    plans = [protocols.plan_of(job, SLOW, name) for name in (protocol, ALIGNED)]
    assert not plans[0].job.loops
    same = [msgspec.structs.replace(plan, checkpoints=CheckpointPlan(), note="") for plan in plans]
    assert same[0] == same[1]
    assert bool(plans[0].checkpoints.initiators) == (protocol == FROM_BELOW)


@pytest.mark.long
def test_in_the_simulator_only_aligned_barriers_store_no_channel_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocols, "JOBS", (("keyed-totals", "line"),))
    numbers = protocols.run(lambda _what, _share: None)
    of = {(point["sink"], point["protocol"]): point for point in numbers["points"]}
    assert list(of) == [(sink, protocol) for sink in SLOW_BATCH_MS for protocol in PROTOCOLS]
    assert {point["bytes_of_state"] for point in of.values()} == {of[FAST, ALIGNED]["bytes_of_state"]}
    assert of[SLOW, ALIGNED]["bytes_of_channels"] == of[FAST, ALIGNED]["bytes_of_channels"] == 0
    for protocol in (UNALIGNED, FROM_SOURCES, FROM_BELOW):
        assert of[SLOW, protocol]["bytes_of_channels"] > 500, protocol
    channels = len(protocols.plan_of(("keyed-totals", "line"), SLOW, ALIGNED).job.channels)
    assert {point["markers"] for point in of.values()} == {channels}, "one on each channel"
    assert numbers[f"{ALIGNED}_bytes_of_channels_slow_sink"] == 0


def a_point(protocol: str, sink: str = SLOW, **numbers: int) -> dict[str, Any]:
    known = {"checkpoints": 3, "bytes_of_state": 1_000, "bytes_of_channels": 0, "markers": 6, "ms": 1.5}
    return {"job": "lineage diamond", "sink": sink, "protocol": protocol, **known, **numbers}


def test_the_headlines_add_up_the_channels_of_all_graphs() -> None:
    points = [a_point(FROM_SOURCES, bytes_of_channels=7), a_point(FROM_SOURCES, bytes_of_channels=5)]
    found = protocols.headlines([*points, a_point(FROM_SOURCES, FAST, bytes_of_channels=1)])
    assert found[f"{FROM_SOURCES}_bytes_of_channels_slow_sink"] == 12
    assert found[f"{FROM_SOURCES}_bytes_of_channels_fast_sink"] == 1


def test_the_page_shows_state_and_channels_of_each_run_and_needs_no_network() -> None:
    points = [a_point(ALIGNED), a_point(FROM_SOURCES, bytes_of_channels=7), a_point(ALIGNED, FAST)]
    text = protocols.page({"system": "reference-simulated", "points": points})
    figures = [
        json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)
    ]
    assert [[trace["x"] for trace in figure["data"]] for figure in figures] == [
        [[1_000, 1_000], [0, 7]],
        [[1_000], [0]],
    ]
    assert figures[0]["data"][0]["y"] == ["aligned", "Chandy-Lamport"]
    assert "lineage diamond, slow sink: 6 markers each" in text
    assert not re.findall(r"""(?:src|href)=["']""", text.partition('id="plotly"')[0])


def test_a_table_has_its_numbers_to_the_right() -> None:
    points = [{"name": "a", "bytes": 1_234, "left out": 1}, {"name": "bcdef", "bytes": 5, "left out": 2}]
    assert text_table(points, ("name", "bytes")).splitlines() == [
        "name   bytes",
        "a      1,234",
        "bcdef      5",
    ]
