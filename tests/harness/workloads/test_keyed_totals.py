"""The generated workload and its sequential model are deterministic, have the planned size, and are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.evidence.prefix import ParquetPrefix, RowsPrefix, contributions_of
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.workloads.keyed_totals import SCHEMA, KeyedTotals
from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec, same_accumulators
from barrier_tck.harness.workloads.workload import SplitData, read_splits, write_splits
from barrier_tck.harness.workloads.workload_names import register_workload, workload_named, workload_names


def splits(seed: int = 0, sources: int = 2, **workload: Any) -> tuple[SplitData, ...]:
    plan = TrialPlan(seed=seed, workload=WorkloadPlan(**workload), job=JobPlan(widths={"source": sources}))
    return KeyedTotals().splits(plan)


def test_the_standard_scenario_has_60_records_for_each_source() -> None:
    found = splits()
    for subtask in (0, 1):
        assert sum(len(split.input) for split in found if split.subtask == subtask) == 60


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    assert splits(seed=1) == splits(seed=1)
    assert splits(seed=1) != splits(seed=2)


def test_known_rows_stay_what_they_are() -> None:
    """Saved plans replay only if the same seed gives the same rows on every version and machine."""
    rows = splits(seed=7, sources=1, batches=1, batch_records=3, keys=2)[0].rows
    assert [(row["id"], row["key"], row["value"]) for row in rows] == KNOWN


KNOWN = [(0, "k0", 37), (1, "k1", 20), (2, "k1", 15)]


def test_every_call_makes_rows_of_its_own() -> None:
    first = splits()[0].rows[0]
    first["value"] = 10**9
    assert splits()[0].rows[0]["value"] != 10**9


def test_one_more_source_does_not_change_the_splits_of_the_others() -> None:
    two, three = splits(sources=2), splits(sources=3)
    assert {split.name: split for split in two}.items() <= {split.name: split for split in three}.items()


@given(
    seed=st.integers(0, 10_000),
    sources=st.integers(1, 4),
    batches=st.integers(0, 5),
    batch_records=st.integers(1, 3),
    start_offset=st.integers(0, 3),
)
def test_splits_are_as_planned(
    seed: int, sources: int, batches: int, batch_records: int, start_offset: int
) -> None:
    found = splits(
        seed, sources, batches=batches, batch_records=batch_records, keys=3, start_offset=start_offset
    )
    ids = [row["id"] for split in found for row in split.rows]
    assert len(ids) == len(set(ids))
    assert {row["key"] for split in found for row in split.rows} <= {"k0", "k1", "k2"}
    for subtask in range(sources):
        own = [split for split in found if split.subtask == subtask]
        assert 1 <= len(own) <= 2
        assert sum(len(split.input) for split in own) == batches * batch_records
        assert found[subtask::sources] == tuple(own), (
            "splits are dealt out in turn, so each subtask gets its own"
        )
    assert all(len(split.rows) == start_offset + len(split.input) for split in found)


def test_some_seeds_give_a_split_of_exactly_one_record() -> None:
    assert any(len(split.input) == 1 for seed in range(50) for split in splits(seed=seed))


@pytest.mark.parametrize("wrong", [{"batches": -1}, {"batch_records": -1}, {"start_offset": -1}, {"keys": 0}])
def test_impossible_sizes_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        splits(**wrong)


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'flights'"):
        workload_named("flihgts")
    assert {"flights", "keyed-totals"} <= set(workload_names())


def test_a_taken_name_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="flights"):
        register_workload("flights", KeyedTotals)


NULLS = SequentialSpec("id", ("a", "b"), (Aggregate("n"), Aggregate("total", "x")))


def test_the_model_skips_nulls_in_sums_but_not_in_counts() -> None:
    rows = [{"id": 1, "a": "p", "b": None, "x": None}, {"id": 2, "a": "p", "b": None, "x": 5}]
    assert NULLS.fold(rows) == {("p", None): [2, 5]}
    assert NULLS.running(rows)[0] == {"id": 1, "a": "p", "b": None, "n": 1, "total": 0}


def test_a_null_sum_equals_no_sum_and_nothing_else() -> None:
    assert same_accumulators([1, 0], [1, None])
    assert not same_accumulators([1, 2], [1, None])
    assert not same_accumulators([1, 0], [1])


@pytest.mark.parametrize("aggregates", [(), (Aggregate("x", "x"),), (Aggregate("a"), Aggregate("b"))])
def test_a_model_needs_exactly_one_count(aggregates: tuple[Aggregate, ...]) -> None:
    with pytest.raises(ValueError, match="exactly one count"):
        SequentialSpec("id", ("key",), aggregates)


def test_a_model_needs_a_key() -> None:
    with pytest.raises(ValueError, match="key column"):
        SequentialSpec("id", (), (Aggregate("n"),))


class FromFiles(KeyedTotals):
    """The generated workload, read back from Parquet."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def input_directory(self) -> Path | None:
        return self._directory


def test_rows_written_as_parquet_are_read_back_as_they_were(tmp_path: Path) -> None:
    plan = TrialPlan(workload=WorkloadPlan(batches=2, start_offset=1))
    generated = KeyedTotals().splits(plan)
    write_splits(generated, tmp_path, {"source": SCHEMA})
    read = read_splits(FromFiles(tmp_path / "source"), plan)
    assert {split.name: split.rows for split in read} == {split.name: split.rows for split in generated}
    assert [split.start_offset for split in read] == [1] * len(read)


@pytest.mark.long
@given(data=st.data())
def test_the_column_fold_agrees_with_the_row_fold(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("splits")
    keys = st.sampled_from(["p", "q", None])
    values = st.one_of(st.none(), st.integers(-(2**40), 2**40))
    row = st.fixed_dictionaries({"a": keys, "b": keys, "x": values})
    start = data.draw(st.integers(0, 2))
    made = []
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string()), ("x", pa.int64())])
    for number in range(2):
        drawn = data.draw(st.lists(row, max_size=8))
        rows: list[dict[str, Any]] = [{"id": 100 * number + i, **row} for i, row in enumerate(drawn)]
        made.append(SplitData(f"s{number}", 0, tuple(rows), min(start, len(rows))))
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), directory / f"s{number}.parquet")
    by_rows, by_columns = (
        RowsPrefix(made, contributions_of(NULLS, made)),
        ParquetPrefix(NULLS, directory, start),
    )
    assert by_rows.extents == by_columns.extents
    for _ in range(3):
        cut = {split.name: data.draw(st.integers(0, len(split.rows))) for split in made}
        fold = NULLS.fold([r for split in made for r in split.rows[split.start_offset : cut[split.name]]])
        assert by_rows.up_to(cut) == fold
        assert by_columns.up_to(cut) == fold
