"""The throughput benchmark's pure parts: its input and ground truth, its checks, and the arithmetic of its result."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.cli.bench_command import BENCHMARKS, run_benchmark
from barrier_tck.harness.support.errors import EnvironmentProblem
from benchmarks import recovery_times, state_access
from benchmarks.both_on_spark import seconds_of
from benchmarks.checkpoint_cost import checkpoint_costs
from benchmarks.cores import CORES, choose_cores
from benchmarks.measured_runs import AIMED_SECONDS, Run, long_enough, passes_for
from benchmarks.throughput import files_per_second, in_turn, result_of
from benchmarks.throughput_data import (
    InputShape,
    Totals,
    link_copies,
    read_final_totals,
    require_equal,
    write_input,
)
from benchmarks.throughput_sides import Input, ReferenceSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = InputShape(rows=600, keys=17, files=3, spread=1_000)


def write_rows(path: Path, *rows: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(("key", "count", "sum"), map(list, columns), strict=True))), path)


def rows_of(totals: Totals) -> list[tuple[int, int, int]]:
    return list(zip(totals.keys.tolist(), totals.counts.tolist(), totals.sums.tolist(), strict=True))


def made(side: str, rows: int, seconds: float, passes: int = 1) -> Run:
    return Run(side, rows, seconds, passes, 5)


def test_the_recovery_benchmark_compares_both_copies_of_both_backends() -> None:
    told: list[str] = []
    numbers = recovery_times.run(lambda what, share: told.append(what), state_mb=1)
    assert len(told) == 2
    for backend in ("heap", "rocksdb"):
        assert numbers[f"{backend}_remote_bytes_over_the_link"] == numbers[f"{backend}_snapshot_bytes"]
        assert numbers[f"{backend}_local_bytes_over_the_link"] == 0
        link_seconds = numbers[f"{backend}_snapshot_bytes"] / numbers["link_bytes_per_second"]
        assert numbers[f"{backend}_remote_restore_seconds"] >= round(link_seconds, 3)


def test_the_state_benchmark_measures_every_shipped_backend_the_same() -> None:
    told: list[str] = []
    numbers = state_access.run(lambda what, share: told.append(what), keys=3_000)
    measured = {name.partition("_")[2] for name in numbers if name.startswith("heap_")}
    assert {"first_sync_ms", "put_many_per_second", "get_many_per_second", "restore_seconds"} <= measured
    assert {name.partition("_")[2] for name in numbers if name.startswith("rocksdb_")} == measured
    # A short time may be rounded to none; a rate cannot.
    assert all(value > 0 if name.endswith("_per_second") else value >= 0 for name, value in numbers.items())
    assert len(told) == 2


def test_every_benchmark_on_the_command_line_is_a_module() -> None:
    for module in BENCHMARKS.values():
        assert callable(importlib.import_module(f"benchmarks.{module}").run)


# --- input and ground truth -----------------------------------------------------------------------------------


def test_the_ground_truth_is_that_of_the_files(tmp_path: Path) -> None:
    totals = write_input(tmp_path / "input", SHAPE)
    rows = [row for file in (tmp_path / "input").iterdir() for row in pq.read_table(file).to_pylist()]
    assert len(rows) == SHAPE.rows
    keys = sorted({row["key"] for row in rows})
    assert rows_of(totals) == [
        (key, sum(row["key"] == key for row in rows), sum(row["value"] for row in rows if row["key"] == key))
        for key in keys
    ]
    assert all(key % SHAPE.spread == 0 for key in keys)


def test_the_same_shape_gives_the_same_files_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, shape in (("a", SHAPE), ("b", SHAPE), ("c", replace(SHAPE, seed=8))):
        write_input(tmp_path / name, shape)
    first, second, other = (pq.read_table(tmp_path / name / "part-0001.parquet") for name in "abc")
    assert first == second
    assert first != other


def test_a_shape_that_does_not_fit_is_refused_with_its_values() -> None:
    with pytest.raises(ValueError, match="601 rows cannot be dealt evenly to 3 files"):
        InputShape(rows=601, files=3)
    with pytest.raises(ValueError, match="keys=0"):
        InputShape(keys=0)


def test_linked_copies_hold_the_input_as_often_as_asked_and_take_no_space(tmp_path: Path) -> None:
    write_input(tmp_path / "input", SHAPE)
    link_copies(tmp_path / "input", tmp_path / "copies", 4)
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) == 4 * SHAPE.files == len({copy.name for copy in copies})
    assert {copy.stat().st_ino for copy in copies} == {
        file.stat().st_ino for file in (tmp_path / "input").iterdir()
    }


# --- the check of the output -----------------------------------------------------------------------------------


def test_the_last_row_of_each_key_counts_in_whatever_file_it_is(tmp_path: Path) -> None:
    write_rows(tmp_path / "batch-1" / "x.parquet", (7, 9, -5), (8, 1, 1))
    write_rows(tmp_path / "batch-0" / "y.parquet", (7, 4, 70), (9, 2, 2))
    assert rows_of(read_final_totals(tmp_path)) == [(7, 9, -5), (8, 1, 1), (9, 2, 2)]


def test_files_that_are_not_committed_do_not_count(tmp_path: Path) -> None:
    write_rows(tmp_path / "part.parquet", (7, 4, 70))
    write_rows(tmp_path / "_pending" / "part.parquet", (7, 5, 71))
    write_rows(tmp_path / "batch-0" / ".hidden.parquet", (7, 6, 72))
    assert rows_of(read_final_totals(tmp_path)) == [(7, 4, 70)]


def test_no_output_and_output_committed_twice_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no committed file"):
        read_final_totals(tmp_path)
    write_rows(tmp_path / "a.parquet", (7, 4, 70), (8, 1, 1))
    write_rows(tmp_path / "b.parquet", (7, 4, 70))
    with pytest.raises(RuntimeError, match="key 7 was committed twice with the count 4"):
        read_final_totals(tmp_path)


def test_totals_of_several_passes_are_multiples(tmp_path: Path) -> None:
    once = write_input(tmp_path / "input", SHAPE)
    thrice = once.times(3)
    assert rows_of(thrice) == [(key, 3 * count, 3 * total) for key, count, total in rows_of(once)]


def test_right_totals_pass_and_each_kind_of_wrong_ones_is_named(tmp_path: Path) -> None:
    right = write_input(tmp_path / "input", SHAPE)
    require_equal(right, write_input(tmp_path / "again", SHAPE), "reference")
    one_more = np.eye(1, len(right.keys), 3, dtype=np.int64)[0]
    key = right.keys[3]
    for wrong in (replace(right, counts=right.counts + one_more), replace(right, sums=right.sums + one_more)):
        with pytest.raises(RuntimeError, match=f"reference has 1 wrong totals; key {key} has count"):
            require_equal(wrong, right, "reference")
    fewer = Totals(right.keys[1:], right.counts[1:], right.sums[1:])
    with pytest.raises(
        RuntimeError, match=f"other keys than its input: 1 in all, the first is {right.keys[0]}"
    ):
        require_equal(fewer, right, "reference")


# --- how long and how much --------------------------------------------------------------------------------------


@given(rate=st.floats(1e5, 1e9), rows=st.integers(1_000_000, 100_000_000))
def test_the_passes_suffice_for_the_time_aimed_at_and_one_less_would_not(rate: float, rows: int) -> None:
    passes = passes_for(rate, rows)
    assert passes == 200 or passes * rows >= rate * AIMED_SECONDS
    assert passes == 1 or (passes - 1) * rows < rate * AIMED_SECONDS


@pytest.mark.parametrize(
    ("rate", "files"), [(300_000, 2), (1_900_000, 2), (2_500_000, 3), (3_000_000, 3), (7_900_000, 8)]
)
def test_a_micro_batch_has_the_files_of_about_a_second_and_one_for_each_core(rate: float, files: int) -> None:
    assert files_per_second(rate, 1_000_000) == files
    assert files >= CORES


class PacedSide:
    """Takes a given number of seconds per pass."""

    name = "paced"

    def __init__(self, seconds_per_pass: Callable[[int], float]) -> None:
        """Take a function from the number of earlier runs to the seconds per pass."""
        self.seconds_per_pass = seconds_per_pass
        self.passes: list[int] = []

    def run(self, passes: int) -> Run:
        seconds = passes * self.seconds_per_pass(len(self.passes))
        self.passes.append(passes)
        return made(self.name, 1_000 * passes, seconds, passes)


def test_a_run_that_is_too_short_is_done_again_with_more_passes() -> None:
    side = PacedSide(lambda _: 1.0)
    done = long_enough(side, 2)
    assert side.passes == [2, AIMED_SECONDS]
    assert (done.seconds, done.passes, done.rows) == (8.0, 8, 8_000)
    assert long_enough(side, 5).passes == 5


def test_a_side_that_never_takes_long_enough_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"no run of paced took 5\.0 s"):
        long_enough(PacedSide(lambda runs: 0.01 / 10**runs), 1)


def test_a_query_is_timed_from_its_first_batch_with_data_to_the_end_of_its_last() -> None:
    progress = [
        {"timestamp": "2026-01-01T10:00:00.500Z", "durationMs": {"triggerExecution": 900}},
        {"timestamp": "2026-01-01T10:00:59.600Z", "durationMs": {"triggerExecution": 1_250}},
    ]
    assert seconds_of(progress) == pytest.approx(60.35)
    assert seconds_of(progress[:1]) == pytest.approx(0.9)
    with pytest.raises(RuntimeError, match="no micro-batch"):
        seconds_of([])


# --- the result -------------------------------------------------------------------------------------------------

RUNS = [
    *(made("reference", 900, 10.0, 3), made("reference_without_checkpoints", 1_000, 10.0)),
    *(made("reference_without_checkpoints", 2_000, 10.0), made("reference", 1_000, 10.0, 3)),
    *(made("reference", 80, 10.0, 3), made("reference_without_checkpoints", 100, 10.0)),
    *(made("reference_rocksdb", rows, 10.0) for rows in (400, 420, 10)),
    *(made("structured_streaming", rows, 10.0) for rows in (100, 300, 90)),
    *(made("reference_sparse_keys", rows, 10.0) for rows in (700, 500, 600)),
    *(made("structured_streaming_sparse_keys", rows, 10.0) for rows in (200, 100, 300)),
]


def test_the_result_is_made_of_medians() -> None:
    result = result_of(RUNS, (0, 1), SHAPE)
    assert result["reference_rows_per_second"] == 90
    assert result["reference_without_checkpoints_rows_per_second"] == 100
    assert result["structured_streaming_rows_per_second"] == 10
    assert result["ratio"] == pytest.approx(9.0)
    assert result["reference_sparse_keys_rows_per_second"] == 60
    assert result["structured_streaming_sparse_keys_rows_per_second"] == 20
    assert result["ratio_sparse_keys"] == pytest.approx(3.0)
    assert result["reference_rocksdb_rows_per_second"] == 40
    # 10, 50 and 20 percent: the result is the median of the pairs' costs, not the cost of the medians.
    assert result["checkpoint_cost_percent_of_pairs"] == pytest.approx([10.0, 50.0, 20.0])
    assert result["checkpoint_cost_percent"] == pytest.approx(20.0)
    assert (result["cores"], result["rows"], result["keys"]) == ([0, 1], 600, 17)


def test_the_result_lists_every_run_and_says_what_was_measured() -> None:
    result = result_of(RUNS, (0, 1), SHAPE)
    assert len(result["runs"]) == len(RUNS)
    assert result["runs"][0] == {
        "side": "reference",
        "rows": 900,
        "seconds": 10.0,
        "passes": 3,
        "checkpoints": 5,
        "rows_per_second": 90,
    }
    notes = " ".join(result["notes"])
    assert "from the moment" in notes and "left out" in notes and "same two cores" in notes


def test_neighbours_with_and_without_checkpoints_swap_places_and_every_side_gets_its_runs() -> None:
    sides = [PacedSide(lambda _: 1.0) for _ in range(4)]
    order = in_turn((sides[0], sides[1]), sides[2:])
    paired = [sides.index(side) for side in order if side in sides[:2]]
    assert paired == [0, 1, 1, 0, 0, 1, 1, 0, 0, 1]
    first = [number for number, side in enumerate(order) if side in sides[:2]]
    assert all(second == one + 1 for one, second in zip(first[::2], first[1::2], strict=True))
    assert [order.count(side) for side in sides] == [5, 5, 3, 3]


def test_runs_that_are_no_pairs_have_no_cost() -> None:
    with pytest.raises(RuntimeError, match="two runs of reference follow each other"):
        checkpoint_costs([RUNS[0], RUNS[0]])
    with pytest.raises(RuntimeError, match="no pair"):
        checkpoint_costs(RUNS[6:])


@pytest.mark.parametrize(
    ("interval_ms", "backend", "suffix", "name"),
    [
        (1_000, "heap", "", "reference"),
        (None, "heap", "", "reference_without_checkpoints"),
        (1_000, "rocksdb", "", "reference_rocksdb"),
        (1_000, "heap", "_sparse_keys", "reference_sparse_keys"),
    ],
)
def test_each_side_of_the_reference_has_the_name_that_the_result_asks_for(
    interval_ms: int | None, backend: str, suffix: str, name: str, tmp_path: Path
) -> None:
    totals = Totals(*(np.zeros(0, dtype=np.int64),) * 3)
    source = Input(tmp_path, 0, 0, totals, suffix)
    side = ReferenceSide(cast("SparkSession", None), source, tmp_path, interval_ms, backend)
    assert side.name == name
    assert name in {done.side for done in RUNS}


def test_a_side_without_a_run_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="structured_streaming has no run"):
        result_of(RUNS[:6], (0, 1), SHAPE)


# --- cores ------------------------------------------------------------------------------------------------------


def test_two_processors_of_different_cores_are_preferred() -> None:
    assert choose_cores({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}) == (0, 2)
    assert choose_cores({0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}) == (0, 1)
    assert choose_cores({3: "3-4", 4: "3-4"}) == (3, 4)


def test_one_processor_is_too_few() -> None:
    with pytest.raises(EnvironmentProblem, match="may use only 1; run it with more"):
        choose_cores({5: "5"})


# --- the command ------------------------------------------------------------------------------------------------


def test_a_benchmark_tells_what_it_does_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("benchmarks.throughput")

    def run(progress: Callable[[str, float], None]) -> dict[str, object]:
        progress("measuring", 0.25)
        return {"ratio": 2.0}

    monkeypatch.setattr(module, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, "benchmarks.throughput", module)
    told: list[str] = []
    assert run_benchmark("throughput", told.append) == {"ratio": 2.0}
    assert told == ["measuring (25% done)"]
