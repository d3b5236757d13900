"""The backpressure benchmark: aligned delay grows with the queue, unaligned delay does not but costs bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from barrier_tck.harness.cli.main import app
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord
from benchmarks import backpressure
from benchmarks.backpressure import MODES, headlines, page, plan_of, point_of
from benchmarks.benchmark_trials import SYSTEMS


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
        CheckpointRecord(5, 1, "completed", 900.0, 950.0),
    )
    snapshots = (
        SnapshotRecord(2, 1, "a[0]", 210.0, 30.0, 0, 0.0, 0.0, 100, 0),
        SnapshotRecord(2, 1, "b[0]", 250.0, 20.0, 0, 0.0, 0.0, 300, 250),
        SnapshotRecord(4, 1, "a[0]", 410.0, 0.0, 0, 0.0, 0.0, 100, 50),
    )


def point(mode: str, factor: int, **numbers: float) -> dict[str, Any]:
    known = dict.fromkeys(("delay_ms", "alignment_ms", "bytes_in_flight", "bytes_persisted"), 0)
    return {"mode": mode, "sink_times_slower": factor, **known, **numbers}


def test_the_delay_is_from_the_trigger_to_the_last_snapshot_of_checkpoints_under_full_queues() -> None:
    numbers = point_of(Record(), 10, "unaligned")  # type: ignore[arg-type]
    assert numbers["checkpoints"] == 2, (
        "neither the first, nor the aborted one, nor the one after the sources' end"
    )
    assert (numbers["delay_ms"], numbers["delay_ms_max"]) == (40.0, 70.0)
    assert (numbers["alignment_ms"], numbers["alignment_ms_max"]) == (15.0, 30.0)
    assert (numbers["bytes_in_flight"], numbers["bytes_persisted"]) == (150, 250)


def test_a_run_without_a_checkpoint_that_counts_is_refused() -> None:
    record = Record()
    record.checkpoints = record.checkpoints[:1]
    with pytest.raises(RuntimeError, match=r"no checkpoint between 170\.0 and 620\.0 ms"):
        point_of(record, 10, "unaligned")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_differ_in_nothing_but_the_mode(mode: Any) -> None:
    assert plan_of(100, mode).deployment.slow_vertex == "sink"
    assert plan_of(100, mode).workload == plan_of(100, "exactly_once").workload
    assert plan_of(100, mode).network == plan_of(100, "exactly_once").network


@pytest.mark.long
def test_in_the_simulator_unaligned_stays_fast_while_aligned_grows_with_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backpressure, "SLOW_BATCH_MS", {10: 3, 100: 33})
    monkeypatch.setattr(backpressure, "MODES", ("exactly_once", "unaligned"))
    numbers = backpressure.run(lambda _what, _share: None)
    of = {(point["mode"], point["sink_times_slower"]): point for point in numbers["points"]}
    assert of["exactly_once", 100]["delay_ms"] > 5 * of["exactly_once", 10]["delay_ms"] > 100
    assert of["exactly_once", 100]["bytes_in_flight"] == 0
    for factor in (10, 100):
        assert of["unaligned", factor]["delay_ms_max"] < 50
    assert of["unaligned", 100]["bytes_in_flight"] > of["unaligned", 10]["bytes_in_flight"] > 0
    assert of["unaligned", 100]["bytes_persisted"] > of["exactly_once", 100]["bytes_persisted"]


def test_the_page_holds_both_curves_and_needs_no_network() -> None:
    points = [
        point(mode, factor, delay_ms=factor * 2, bytes_persisted=factor * 3)
        for mode in MODES
        for factor in (1, 100)
    ]
    text = page({"system": "reference-simulated", "points": points})
    figures = [
        json.loads(found) for found in re.findall(r'<script type="application/json">(.*?)</script>', text)
    ]
    assert [[trace["y"] for trace in figure["data"]] for figure in figures] == [
        [[2, 200]] * 3,
        [[0, 0]] * 3,
        [[3, 300]] * 3,
    ]
    assert {trace["name"] for trace in figures[0]["data"]} == {
        "aligned",
        "unaligned",
        "aligned, then unaligned",
    }
    assert not re.findall(r"""(?:src|href)=["']""", text.partition('id="plotly"')[0])


def test_the_headlines_are_those_of_the_slowest_sink() -> None:
    numbers = {
        "delay_ms": 1,
        "delay_ms_max": 2,
        "alignment_ms_max": 0,
        "bytes_in_flight": 3,
        "bytes_persisted": 4,
    }
    found = headlines(
        [point("unaligned", 1, **dict.fromkeys(numbers, 9)), point("unaligned", 100, **numbers)]
    )
    assert found == {f"unaligned_{name}_at_100": value for name, value in numbers.items()}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["simulation", "--system", "reference-spark"], "it measures one world only"),
        (["backpressure", "--system", "refrence-spark"], f"one of: {', '.join(SYSTEMS)}"),
        (["simulation", "--plot", "x.html"], "has no curves to plot"),
    ],
)
def test_what_a_benchmark_does_not_offer_is_refused(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code != 0
    told = result.output + str(result.exception)
    assert problem in " ".join(told.split())


def test_the_plot_is_written_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [point(mode, 1, delay_ms=1, bytes_persisted=1) for mode in MODES]
    monkeypatch.setattr(
        backpressure, "run", lambda _progress: {"system": "reference-simulated", "points": points}
    )
    result = CliRunner().invoke(app, ["bench", "backpressure", "--plot", str(tmp_path / "plot.html")])
    assert result.exit_code == 0, result.output
    assert "Checkpoints under backpressure" in (tmp_path / "plot.html").read_text()
