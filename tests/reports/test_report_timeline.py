"""A timeline shows every part of every snapshot, every checkpoint, fault and recovery, at its time."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import plotly.graph_objects
import pytest

from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.record.records import RestoreRecord, TrialRecord
from barrier_tck.reports.charts import histogram
from barrier_tck.reports.intervals import Lengths, Series, recoveries
from barrier_tck.reports.timeline import COORDINATOR_LANE, FAULT_LANE, legend, timeline
from tests.reports.synthetic_run import SUBTASKS, record_of

TWO_FAULTS = record_of(2)


def trace(figure: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
    (found,) = (each for each in figure["data"] if each["name"] == name and each["type"] == kind)
    return dict(found)


@pytest.mark.parametrize("trial", range(12))
def test_plotly_accepts_the_figure(trial: int) -> None:
    plotly.graph_objects.Figure(timeline(record_of(trial)))


def test_there_is_a_lane_for_everyone() -> None:
    axis = timeline(TWO_FAULTS)["layout"]["yaxis"]
    assert axis["ticktext"] == ["faults, recovery", "coordinator", *SUBTASKS]
    assert axis["tickvals"][FAULT_LANE] == 0
    assert axis["tickvals"][COORDINATOR_LANE] == 1


def test_the_parts_of_a_snapshot_follow_one_another() -> None:
    figure = timeline(TWO_FAULTS)
    sync, rest = trace(figure, "synchronous part", "bar"), trace(figure, "asynchronous part", "bar")
    assert len(sync["x"]) == len(rest["x"]) == len(TWO_FAULTS.snapshots)
    for place, part in enumerate(TWO_FAULTS.snapshots):
        aligned = part.alignment_started_ms + part.alignment_ms
        assert sync["base"][place] == pytest.approx(aligned / 1_000, abs=1e-5)
        assert sync["x"][place] == pytest.approx(part.sync_ms / 1_000, abs=1e-5)
        assert rest["base"][place] == pytest.approx((aligned + part.sync_ms) / 1_000, abs=1e-5)
        assert rest["x"][place] == pytest.approx(part.async_ms / 1_000, abs=1e-5)
        assert f"checkpoint {part.checkpoint}" in sync["hovertext"][place]
    aligned_parts = [part for part in TWO_FAULTS.snapshots if part.alignment_ms > 0]
    assert len(trace(figure, "alignment", "bar")["x"]) == len(aligned_parts) > 0
    assert len(trace(figure, "first barrier", "scatter")["x"]) == len(TWO_FAULTS.snapshots)


def test_what_passes_the_channels_of_chandy_and_lamport_is_called_a_marker() -> None:
    plan = TWO_FAULTS.plan
    marked = msgspec.structs.replace(
        TWO_FAULTS,
        plan=msgspec.structs.replace(
            plan, checkpoints=msgspec.structs.replace(plan.checkpoints, protocol="chandy_lamport")
        ),
    )
    drawn = trace(timeline(marked), "first marker", "scatter")
    assert drawn["hovertext"][0].startswith("first marker: checkpoint ")
    assert "barrier" not in json.dumps(timeline(marked))
    runs = {"barriers": [TWO_FAULTS], "markers": [marked], "both": [marked, TWO_FAULTS]}
    names = {what: [name for _, _, name in legend(records)] for what, records in runs.items()}
    assert "marker forwarded" in names["markers"] and "barrier forwarded" in names["barriers"]
    assert "barrier or marker forwarded" in names["both"]


def test_checkpoints_end_as_recorded() -> None:
    figure = timeline(TWO_FAULTS)
    completed = trace(figure, "checkpoint completed", "scatter")
    aborted = trace(figure, "checkpoint aborted", "scatter")
    assert len(completed["x"]) == TWO_FAULTS.checkpoints_completed
    assert len(aborted["x"]) == 2
    assert set(completed["y"]) == {COORDINATOR_LANE}


def test_every_fault_that_fired_has_a_mark_a_label_and_a_line() -> None:
    figure = timeline(TWO_FAULTS)
    marks = trace(figure, "fault", "scatter")
    times = [
        round(fault.fired_at_ms / 1_000, 6) for fault in TWO_FAULTS.faults if fault.fired_at_ms is not None
    ]
    assert marks["x"] == times
    assert [text.strip() for text in marks["text"]] == [fault.label for fault in TWO_FAULTS.faults]
    lines = [shape["x0"] for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    assert lines == times


def test_recoveries_reach_from_the_failure_to_running() -> None:
    bars = trace(timeline(TWO_FAULTS), "recovery", "bar")
    first, second, third = TWO_FAULTS.attempts
    assert second.running_at_ms is not None and third.running_at_ms is not None
    assert bars["base"] == [round(first.ended_at_ms / 1_000, 6), round(second.ended_at_ms / 1_000, 6)]
    assert bars["x"][0] == pytest.approx((second.running_at_ms - first.ended_at_ms) / 1_000, abs=1e-5)


def test_an_attempt_that_never_ran_is_a_recovery_without_a_length() -> None:
    first, second, third = TWO_FAULTS.attempts
    stuck = msgspec.structs.replace(second, running_at_ms=None)
    record = msgspec.structs.replace(TWO_FAULTS, attempts=(first, stuck, third))
    assert [recovery.length_ms is None for recovery in recoveries(record)] == [True, False]
    bands = [shape for shape in timeline(record)["layout"]["shapes"] if shape["type"] == "rect"]
    assert len(bands) == 5
    assert "never came to run" in trace(timeline(record), "recovery", "bar")["hovertext"][0]


def test_short_trials_are_drawn_in_milliseconds() -> None:
    short = msgspec.structs.replace(
        TWO_FAULTS, duration_ms=80.0, attempts=(), checkpoints=(), snapshots=(), faults=()
    )
    assert timeline(short)["layout"]["xaxis"]["title"]["text"].startswith("milliseconds")
    assert timeline(TWO_FAULTS)["layout"]["xaxis"]["title"]["text"].startswith("seconds")


def test_a_trial_in_which_nothing_happened_can_be_drawn() -> None:
    empty = msgspec.structs.replace(
        TWO_FAULTS, duration_ms=0.0, attempts=(), checkpoints=(), snapshots=(), faults=(), subtasks=()
    )
    plotly.graph_objects.Figure(timeline(empty))


def test_hostile_names_reach_no_label_unescaped() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    fault = msgspec.structs.replace(TWO_FAULTS.faults[0], label=hostile, target=hostile, trigger=hostile)
    snapshot = msgspec.structs.replace(TWO_FAULTS.snapshots[0], subtask=hostile)
    record: TrialRecord = msgspec.structs.replace(
        TWO_FAULTS,
        faults=(fault,),
        snapshots=(snapshot,),
        subtasks=(hostile,),
        checkpoints=(msgspec.structs.replace(TWO_FAULTS.checkpoints[0], reason=hostile),),
        attempts=tuple(msgspec.structs.replace(attempt, reason=hostile) for attempt in TWO_FAULTS.attempts),
    )
    text = json.dumps(timeline(record))
    assert "<img" not in text
    assert text.count("&lt;img") >= 6


def series_of(*records: TrialRecord, measured: TrialRecord | None = None) -> tuple[Series, ...]:
    lengths = Lengths()
    for record in records:
        lengths.add_record(record)
    lengths.add(measured.measurements if measured is not None else {})
    return lengths.series()


def test_a_histogram_counts_every_value_once() -> None:
    for series in series_of(TWO_FAULTS, measured=TWO_FAULTS):
        figure = histogram(series)
        plotly.graph_objects.Figure(figure)
        assert sum(figure["data"][0]["y"]) == len(series.values)


def test_equal_values_make_a_histogram_too() -> None:
    assert sum(histogram(Series("records", (5.0, 5.0), 2, 5.0, "#000000", 2))["data"][0]["y"]) == 2


def test_series_hold_the_records_numbers() -> None:
    series = {each.name: each.values for each in series_of(TWO_FAULTS, measured=TWO_FAULTS)}
    assert series["sync_ms"] == tuple(part.sync_ms for part in TWO_FAULTS.snapshots)
    assert len(series["recovery_ms"]) == TWO_FAULTS.recoveries
    assert series["kill_to_first_record_ms"] == (TWO_FAULTS.measurements["kill_to_first_record_ms"],)
    assert all(value > 0 for value in series["alignment_ms"])


def test_only_alignments_of_nothing_are_left_out_of_their_series() -> None:
    """Either measure may be 0 by itself."""
    aligned = [
        msgspec.structs.replace(TWO_FAULTS.snapshots[0], alignment_ms=took_ms, alignment_buffered_bytes=held)
        for took_ms in (0.0, 2.5)
        for held in (0, 100)
    ]
    record = msgspec.structs.replace(TWO_FAULTS, snapshots=tuple(aligned))
    series = {each.name: each for each in series_of(record, TWO_FAULTS)}
    assert series["alignment_ms"].values[:3] == (0.0, 2.5, 2.5)
    assert series["sync_ms"].values[:4] == tuple(part.sync_ms for part in aligned)
    assert {each.trials for each in series.values()} == {2}


def test_a_lasting_fault_is_a_span_from_fired_to_healed_in_the_lanes_that_it_hit() -> None:
    record = lasting(
        DelayChannel("flights[0]", "totals[1]", latency_ms=50, duration_ms=900), healed_at_ms=3_000.0
    )
    figure = timeline(record)
    own, hit = (
        trace(figure, "connection disturbed", "bar"),
        trace(figure, "connection disturbed: processes hit", "bar"),
    )
    fired = record.faults[0].fired_at_ms
    assert fired is not None
    scale = 1_000 if own["base"][0] < fired / 10 else 1
    assert own["base"] == [pytest.approx(fired / scale, abs=1e-3)]
    assert own["x"] == [pytest.approx((3_000.0 - fired) / scale, abs=1e-3)]
    assert hit["base"] == own["base"] * 2 and hit["x"] == own["x"] * 2
    names = figure["layout"]["yaxis"]["ticktext"]
    assert [names[round(y)] for y in hit["y"]] == ["flights[0]", "totals[1]"]
    assert not trace(figure, "paused", "bar")["x"]


def test_a_fault_has_its_own_colour_wherever_it_is_drawn() -> None:
    record = lasting(PauseWorker("totals[0]", duration_ms=900), healed_at_ms=None)
    figure = timeline(record)
    for shown, kind in (("paused", "bar"), ("paused: processes hit", "bar"), ("fault", "scatter")):
        assert trace(figure, shown, kind)["marker"]["color"] == [PauseWorker.colour]
    (line,) = (shape["line"] for shape in figure["layout"]["shapes"] if shape["type"] == "line")
    assert line["color"] == PauseWorker.colour
    assert ("✦", PauseWorker.colour, "pause worker") in legend([record])
    assert not [name for _, _, name in legend([]) if name == "pause worker"]


def test_a_fault_that_was_never_healed_lasts_to_the_end() -> None:
    figure = timeline(lasting(PauseWorker("totals[0]", duration_ms=900), healed_at_ms=None))
    (base,), (length,) = (trace(figure, "paused", "bar")[key] for key in ("base", "x"))
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < base < base + length <= high
    assert base + length > 0.98 * high


def test_a_restore_is_a_mark_that_says_which_copy_served_which_key_groups() -> None:
    local = RestoreRecord(2, 3, "totals[0]", 2_500.0, 0, 64, "secondary")
    durable = RestoreRecord(2, 3, "totals[1]", 2_600.0, 64, 128, "primary", "it is missing")
    record = msgspec.structs.replace(TWO_FAULTS, restores=(local, durable))
    figure = timeline(record)
    own = trace(figure, "restored from the local copy", "scatter")
    fallback = trace(figure, "restored from the primary", "scatter")
    names = figure["layout"]["yaxis"]["ticktext"]
    assert [names[y] for y in own["y"]] == ["totals[0]"]
    assert [names[y] for y in fallback["y"]] == ["totals[1]"]
    assert "key groups 64 to 127 from its primary copy<br>it is missing" in fallback["hovertext"][0]
    (recovery, *_) = recoveries(record)
    assert (recovery.from_local_copies, recovery.fallbacks) == (1, ("totals[1] (it is missing)",))


def test_labels_of_faults_at_one_time_do_not_overlap() -> None:
    fault = record_of(0).faults[0]
    twins = tuple(msgspec.structs.replace(fault, index=index) for index in range(3))
    plan = msgspec.structs.replace(record_of(0).plan, faults=record_of(0).plan.faults * 3)
    crowded = timeline(msgspec.structs.replace(record_of(0), plan=plan, faults=twins))
    rows = trace(crowded, "fault", "scatter")["y"]
    assert len({round(row, 3) for row in rows}) == 3
    low, high = crowded["layout"]["yaxis"]["range"][::-1]
    assert all(low < row < high for row in rows)
    alone = timeline(record_of(0))
    assert crowded["layout"]["height"] - alone["layout"]["height"] == 2 * 34


def lasting(fault: DelayChannel | PauseWorker, healed_at_ms: float | None) -> TrialRecord:
    """Invent a trial whose only fault lasts for a time."""
    record = record_of(0)
    plan = msgspec.structs.replace(record.plan, faults=(ScheduledFault(fault, At(500)),))
    booked = msgspec.structs.replace(record.faults[0], fired_at_ms=2_000.0, healed_at_ms=healed_at_ms)
    return msgspec.structs.replace(record, plan=plan, faults=(booked,))
