"""The windows benchmark's input, its ground truth, its checks, and the arithmetic of its result.

Grain: small inputs; only the last tests need Spark, and none measures time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from barrier_tck.harness.cli.main import app
from barrier_tck.reference_impl.operators.windows import (
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
    window_aggregate,
)
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, SnapshotMetrics
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from benchmarks.both_on_spark import session_on_both_cores
from benchmarks.measured_runs import Run
from benchmarks.opened_operator import opened_operator
from benchmarks.windows import PARTS, ROUNDS, points_of, result_of, runs_of, table
from benchmarks.windows_burst import CHECKPOINTS_MIN, BurstShape, checkpoint_numbers, measure_burst
from benchmarks.windows_cases import AGGREGATES, CASES
from benchmarks.windows_data import LANES, LAST_KEY, START_MS, EventShape, write_lanes, write_steps
from benchmarks.windows_sides import STREAMING, TUNED_SETTINGS, Inputs, Pace, ReferenceSide, StreamingSide
from benchmarks.windows_truth import (
    WINDOW_COLUMNS,
    pairs,
    require_same_rows,
    sessions,
    sliding_windows,
)

SHAPE = EventShape(keys=7, slice_rows=200, slice_ms=400, bound_ms=100)
SLICES = 6


def lane(number: int) -> pa.Table:
    return SHAPE.lanes(number, range(SLICES))


def both() -> pa.Table:
    return pa.concat_tables([lane(number) for number in range(LANES)])


def rows_of(rows: pa.Table) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


# --- the input ----------------------------------------------------------------------------------------------------


def test_records_come_out_of_order_but_by_less_than_the_bound() -> None:
    for number in range(LANES):
        largest, behind = 0, []
        for at_ms in lane(number)["at_ms"].to_pylist():
            largest = max(largest, at_ms)
            behind.append(largest - at_ms)
        assert 0 < max(behind) < SHAPE.bound_ms


def test_event_times_are_even_so_that_no_two_records_are_exactly_one_gap_of_sessions_apart() -> None:
    assert {at_ms % 2 for at_ms in both()["at_ms"].to_pylist()} == {0}
    assert CASES["session"].name in PARTS


def test_a_longer_input_begins_with_the_shorter_one_and_no_value_of_a_lane_comes_twice() -> None:
    shorter = SHAPE.lanes(1, range(SLICES - 2))
    assert lane(1).slice(0, shorter.num_rows) == shorter
    assert sorted(lane(1)["value"].to_pylist()) == list(range(SHAPE.slice_rows // LANES * SLICES))


def test_steps_hold_what_the_lanes_hold_and_each_ends_with_a_record_far_ahead(tmp_path: Path) -> None:
    write_lanes(tmp_path / "lanes", SHAPE, SLICES)
    write_steps(tmp_path / "steps", SHAPE, SLICES, slices_per_step=4)
    for number in range(LANES):
        whole = pq.read_table(tmp_path / "lanes" / f"lane-{number}.parquet")
        steps = sorted((tmp_path / "steps").glob(f"lane-{number}-*"))
        assert pa.concat_tables([pq.read_table(step) for step in steps]) == whole
        assert [step.stat().st_mtime for step in steps] == [0.0, 1.0]
        assert whole["key"].to_pylist().index(LAST_KEY) == whole.num_rows - 1
        assert whole["at_ms"].to_pylist()[-1] > max(whole["at_ms"].to_pylist()[:-1]) + 1_000_000
    assert whole.slice(0, whole.num_rows - 1) == lane(LANES - 1)


def test_an_odd_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="must be even"):
        EventShape(slice_rows=201)


# --- the ground truth ---------------------------------------------------------------------------------------------


def counted(windows: Callable[[int], Iterator[int]], size_ms: int) -> Counter[tuple[int, ...]]:
    """Return windows record by record; ``windows`` yields the beginnings of those of an event time."""
    found: dict[tuple[int, int], list[int]] = {}
    for row in both().to_pylist():
        for start in windows(row["at_ms"]):
            found.setdefault((row["key"], start), []).append(row["value"])
    return Counter(
        (key, start, start + size_ms, len(values), sum(values)) for (key, start), values in found.items()
    )


@pytest.mark.parametrize(("size_ms", "slide_ms"), [(500, 500), (600, 200)])
def test_windows_of_the_truth_are_those_of_the_records(size_ms: int, slide_ms: int) -> None:
    def windows(at_ms: int) -> Iterator[int]:
        first = (at_ms - size_ms) // slide_ms + 1
        return iter(range(first * slide_ms, at_ms + 1, slide_ms))

    assert rows_of(sliding_windows(both(), size_ms, slide_ms)) == counted(windows, size_ms)


def test_sessions_of_the_truth_are_those_of_the_records() -> None:
    gap_ms, wanted = 61, Counter[tuple[int, ...]]()
    for key in range(SHAPE.keys):
        of_key = sorted((row["at_ms"], row["value"]) for row in both().to_pylist() if row["key"] == key)
        session: list[tuple[int, int]] = []
        for at_ms, value in [*of_key, (END_OF_TIME, 0)]:
            if session and at_ms - session[-1][0] >= gap_ms:
                total = sum(value for _, value in session)
                wanted[key, session[0][0], session[-1][0] + gap_ms, len(session), total] += 1
                session = []
            session.append((at_ms, value))
    assert len(wanted) > SHAPE.keys, "there are sessions to tell apart"
    assert rows_of(sessions(both(), gap_ms)) == wanted


def test_pairs_of_the_truth_are_those_of_the_records() -> None:
    lefts, rights = lane(0).to_pylist(), lane(1).to_pylist()
    wanted = Counter(
        (left["key"], left["value"], right["value"], max(left["at_ms"], right["at_ms"]))
        for left in lefts
        for right in rights
        if left["key"] == right["key"] and 0 <= right["at_ms"] - left["at_ms"] <= 50
    )
    assert rows_of(pairs(lane(0), lane(1), 50)) == wanted
    assert wanted


@pytest.mark.parametrize(
    ("assigner", "truth"),
    [
        (Tumbling(500), lambda rows: sliding_windows(rows, 500, 500)),
        (Sliding(600, 200), lambda rows: sliding_windows(rows, 600, 200)),
        (Session(61), lambda rows: sessions(rows, 61)),
    ],
)
def test_the_reference_gives_the_truth(
    assigner: WindowAssigner, truth: Callable[[pa.Table], pa.Table], tmp_path: Path
) -> None:
    spec = window_aggregate("w", ("key",), assigner, "at_ms", AGGREGATES)
    with opened_operator(spec, tmp_path, "own", "heap") as operator:
        for batch in both().combine_chunks().to_batches(max_chunksize=100):
            operator.process(batch)
        found = pa.Table.from_batches(list(operator.advance_watermark(END_OF_TIME)))
    require_same_rows(found.select(WINDOW_COLUMNS), truth(both()), "the reference")


# --- the check of the output --------------------------------------------------------------------------------------


def test_rows_in_another_order_and_those_of_the_last_key_make_no_difference() -> None:
    right = sliding_windows(both(), 500, 500)
    last = {**right.to_pylist()[0], "key": LAST_KEY}
    found = pa.concat_tables([right.slice(3), right.slice(0, 3), pa.Table.from_pylist([last])])
    require_same_rows(found, right, "x")


def test_a_row_too_few_one_too_many_and_one_that_differs_are_found() -> None:
    right = sliding_windows(both(), 500, 500)
    more = {**right.to_pylist()[4], "sum": 12}
    for wrong in (
        right.slice(1),
        right.slice(0, right.num_rows - 1),
        pa.concat_tables([right, right.slice(2, 1)]),
        pa.concat_tables([right.slice(0, 4), pa.Table.from_pylist([more]), right.slice(5)]),
    ):
        with pytest.raises(RuntimeError, match=rf"x has \d+ rows, and {right.num_rows} are right"):
            require_same_rows(wrong, right, "x")


# --- the result ---------------------------------------------------------------------------------------------------


class PacedSide:
    """Takes a given number of seconds for each slice."""

    def __init__(self, name: str, seconds_per_slice: float, told: list[str]) -> None:
        self.name, self._seconds, self._told = name, seconds_per_slice, told

    def run(self, passes: int) -> Run:
        self._told.append(self.name)
        return Run(self.name, 20_000 * passes, passes * self._seconds, passes, passes)


def test_the_sides_of_a_case_take_turns_behind_a_first_run_and_slow_ones_read_less() -> None:
    told: list[str] = []
    sides = [PacedSide("reference_heap", 0.01, told), PacedSide(STREAMING, 0.1, told)]
    shown: list[tuple[str, float]] = []
    runs = runs_of("tumbling", sides, lambda what, share: shown.append((what, share)))
    assert ("tumbling: reference_heap: 2,000,000 records per second in 8.0 s", 2 / 7) in shown
    assert shown[-1][1] == 1.0
    assert told == ["reference_heap", STREAMING] * (1 + ROUNDS)
    assert [done.passes for done in runs] == [800, 80] * ROUNDS


def test_a_side_that_was_faster_than_its_first_run_told_is_run_again_with_more() -> None:
    told: list[str] = []
    side = PacedSide(STREAMING, 0.1, told)
    first = side.run

    def faster(passes: int) -> Run:
        side._seconds = 0.1 if passes == 40 else 0.05
        return first(passes)

    side.run = faster  # type: ignore[method-assign]
    assert [done.passes for done in runs_of("tumbling", [side], lambda *_: None)] == [160] * ROUNDS


@pytest.mark.parametrize(
    ("seconds", "checkpoints", "interval_ms"),
    [(8.0, 8, 1_000), (8.0, 4, 2_000), (8.0, 2, 1_000), (8.0, 16, 1_000)],
)
def test_the_pace_is_the_interval_or_slower_if_checkpoints_are(
    seconds: float, checkpoints: int, interval_ms: float
) -> None:
    pace = Pace()
    pace.note(Run("reference_heap", 1, seconds, 1, checkpoints))
    assert pace.interval_ms == interval_ms


RUNS = [
    Run(side, rows, 10.0, 5, 10)
    for side, rates in {
        "reference_heap": (900, 800, 100),
        STREAMING: (100, 300, 90),
        "reference_rocksdb": (50, 40, 60),
    }.items()
    for rows in rates
]


def test_ratios_are_those_of_medians_to_structured_streaming() -> None:
    points = points_of("join", RUNS)
    assert [(point["side"], point["rows_per_second"], point["ratio"]) for point in points] == [
        ("reference_heap", 80, 8.0),
        (STREAMING, 10, 1.0),
        ("reference_rocksdb", 5, 0.5),
    ]
    assert {point["checkpoint_every_ms"] for point in points} == {1_000}
    result = result_of(points, {"heap": {"windows": 3}}, (0, 1))
    assert (result["ratio_join_heap"], result["ratio_join_rocksdb"]) == (8.0, 0.5)
    assert result["burst_heap_windows"] == 3
    assert result["structured_streaming_settings"] == TUNED_SETTINGS
    assert "ground truth" in " ".join(result["notes"])
    lines = table(result).splitlines()
    assert len(lines) == 4
    assert lines[1].split()[:4] == ["join", "reference_heap", "80", "8.0"]


def test_without_a_run_of_structured_streaming_there_is_no_ratio() -> None:
    with pytest.raises(RuntimeError, match=f"{STREAMING} has no run"):
        points_of("join", RUNS[:3])


def test_a_burst_says_what_the_checkpoints_took() -> None:
    completed = [
        cast(
            "CompletedCheckpoint", SimpleNamespace(checkpoint=number, triggered_at_ms=at, completed_at_ms=end)
        )
        for number, at, end in ((1, 0, 200), (2, 1_000, 3_500), (3, 4_000, 4_001))
    ]
    parts = {
        1: [
            SnapshotMetrics(sync_ms=1.0, started_at_ms=10.0),
            SnapshotMetrics(sync_ms=2.0, started_at_ms=12.0),
        ],
        2: [SnapshotMetrics(sync_ms=9.0, started_at_ms=1_500.0, alignment_ms=900.0)],
    }
    numbers: dict[str, Any] = checkpoint_numbers(completed, parts)
    assert numbers["checkpoints"] == 2, "of the last one no subtask took a part"
    assert (numbers["checkpoint_ms_median"], numbers["checkpoint_ms_max"]) == (1_350, 2_500)
    assert numbers["checkpoints_above_interval"] == 1
    assert numbers["delay_ms_max"] == 1_400
    assert (numbers["sync_ms_max"], numbers["alignment_ms_max"]) == (9.0, 900.0)
    with pytest.raises(RuntimeError, match="no checkpoint"):
        checkpoint_numbers(completed, {})


def test_all_windows_of_a_burst_end_at_once_and_the_rest_comes_behind_them() -> None:
    shape = BurstShape(windows=1_000, slices=2)
    before, after = (
        pa.concat_tables([shape.lane(number)[part] for number in range(LANES)]) for part in range(2)
    )
    once = [key for key in before["key"].to_pylist() if key >= shape.after.keys]
    assert sorted(once) == list(range(shape.after.keys, shape.after.keys + 1_000))
    assert {at_ms // 60_000 for at_ms in before["at_ms"].to_pylist()} == {START_MS // 60_000}
    lane = shape.lane(0)[0]
    assert lane["at_ms"].to_pylist() == sorted(lane["at_ms"].to_pylist()), "no record is late"
    assert min(after["at_ms"].to_pylist()) > START_MS + 60_000 + shape.after.bound_ms
    assert before.num_rows + after.num_rows == shape.rows


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["simulation", "--only", "burst"], "it is always run whole"),
        (["windows", "--only", "hopping"], f"one of: {', '.join(PARTS)}"),
    ],
)
def test_a_part_that_there_is_not_is_refused(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code != 0
    assert problem in " ".join((result.output + str(result.exception)).split())


# --- on Spark -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session_on_both_cores("windows-test") as session:
        yield session


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_both_sides_give_the_truth(case: str, spark: Any, tmp_path: Path) -> None:
    inputs = Inputs(CASES[case], EventShape(keys=50, slice_rows=400), tmp_path / "input")
    streaming = StreamingSide(spark, inputs, tmp_path, slices_per_step=5)
    sides = (
        ReferenceSide(spark, inputs, tmp_path),
        ReferenceSide(spark, inputs, tmp_path, "rocksdb"),
        streaming,
    )
    for side in sides:
        done = side.run(12)
        assert (done.side, done.rows, done.passes) == (side.name, 12 * 400, 12)
    assert done.checkpoints == 3, "one for each step, and the one without data does not count"


@pytest.mark.spark
@pytest.mark.long
def test_a_side_whose_output_is_not_the_truth_fails(spark: Any, tmp_path: Path) -> None:
    right = CASES["tumbling"]
    without_a_record = replace(right, truth=lambda left, other: right.truth(left.slice(1), other))
    inputs = Inputs(without_a_record, EventShape(keys=50, slice_rows=400), tmp_path / "input")
    for side in (ReferenceSide(spark, inputs, tmp_path), StreamingSide(spark, inputs, tmp_path, 5)):
        with pytest.raises(RuntimeError, match=rf"{side.name} has \d+ rows, .* the first that differs"):
            side.run(3)


@pytest.mark.spark
@pytest.mark.long
def test_a_small_burst_is_measured(spark: Any, tmp_path: Path) -> None:
    numbers = measure_burst(spark, tmp_path, "heap", windows=2_000)
    assert numbers["windows"] == 2_000
    assert numbers["checkpoints"] >= CHECKPOINTS_MIN
    assert numbers["one_subtask_alone_ms"] > 0
