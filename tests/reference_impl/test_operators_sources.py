"""Sources: positions, splits, and reading from any record onwards (SRC-1, REC-1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import NothingYet
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sources import CollectionSource, ParquetSource, SplitReader
from barrier_tck.reference_impl.protocol.messages import SplitPosition
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RestoreError
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

FILES = LocalFileSystem("unused")
LENGTHS = {"a.parquet": 10, "b.parquet": 0, "c.parquet": 7}


def collection(batch_records: int = 3, start_offset: int = 0) -> CollectionSource:
    splits = tuple(
        (name, tuple({"split": name, "i": i} for i in range(length))) for name, length in LENGTHS.items()
    )
    return CollectionSource(splits, batch_records, start_offset=start_offset)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input")
    for name, length in LENGTHS.items():
        table = pa.table(
            {"i": pa.array(range(length), pa.int64()), "split": pa.array([name] * length, pa.string())}
        )
        pq.write_table(table, path / name, row_group_size=4)
    (path / "_SUCCESS").write_bytes(b"")
    (path / "_hidden.parquet").write_bytes(b"")
    return path


def opened(source: Any, index: int = 0, parallelism: int = 1) -> SplitReader:
    plane: Any = ArrowPlane() if isinstance(source, ParquetSource) else RowPlane()
    reader: SplitReader = source.open(index, parallelism, FILES, plane)
    return reader


def drained(reader: SplitReader) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while (payload := reader.poll()) is not None:
        assert not isinstance(payload, NothingYet)
        rows = payload if isinstance(payload, list) else payload.to_pylist()
        assert rows
        assert len({row["split"] for row in rows}) == 1, "a batch crossed splits"
        found += [(row["split"], row["i"]) for row in rows]
        assert dict(_offsets(reader))[rows[-1]["split"]] == rows[-1]["i"] + 1, (
            "a position is the offset of the next record"
        )
    assert reader.poll() is None
    return found


def _offsets(reader: SplitReader) -> list[tuple[str, int]]:
    return [(position.split, position.offset) for position in reader.positions()]


EVERYTHING = [(name, i) for name, length in LENGTHS.items() for i in range(length)]


@given(st.integers(1, 11), st.integers(0, 6), st.booleans())
def test_reading_from_a_position_gives_exactly_the_rest(
    directory: Path, batch: int, polls: int, parquet: bool
) -> None:
    source: Any = ParquetSource((str(directory),), batch_rows=batch) if parquet else collection(batch)
    first = opened(source)
    before: list[tuple[str, int]] = []
    for _ in range(polls):
        payload = first.poll()
        assert not isinstance(payload, NothingYet)
        rows = [] if payload is None else payload if isinstance(payload, list) else payload.to_pylist()
        before += [(row["split"], row["i"]) for row in rows]
    second = opened(source)
    second.restore(first.positions())
    assert second.positions() == first.positions()
    assert before + drained(second) == EVERYTHING


@pytest.mark.long
@given(st.integers(0, 10), st.integers(0, 7), st.integers(1, 5))
def test_any_position_is_reached_in_parquet(directory: Path, in_a: int, in_c: int, batch: int) -> None:
    reader = opened(ParquetSource((str(directory),), columns=("split", "i"), batch_rows=batch))
    reader.restore([SplitPosition("a.parquet", in_a), SplitPosition("c.parquet", in_c)])
    assert drained(reader) == [
        (name, i) for name, i in EVERYTHING if i >= {"a.parquet": in_a, "c.parquet": in_c}[name]
    ]


@pytest.mark.parametrize("parquet", [False, True], ids=["rows", "parquet"])
def test_every_split_is_read_by_one_subtask_and_has_a_position_from_the_start(
    directory: Path, parquet: bool
) -> None:
    source: Any = ParquetSource((str(directory),)) if parquet else collection()
    readers = [opened(source, index, 2) for index in range(2)]
    assert [_offsets(reader) for reader in readers] == [
        [("a.parquet", 0), ("c.parquet", 0)],
        [("b.parquet", 0)],
    ]
    assert sorted(record for reader in readers for record in drained(reader)) == EVERYTHING
    assert _offsets(readers[0]) == [("a.parquet", 10), ("c.parquet", 7)]


@pytest.mark.parametrize("parquet", [False, True], ids=["rows", "parquet"])
def test_input_begins_at_the_start_offset_and_a_restored_position_wins_over_it(
    directory: Path, parquet: bool
) -> None:
    source: Any = ParquetSource((str(directory),), start_offset=8) if parquet else collection(start_offset=8)
    reader = opened(source)
    assert _offsets(reader) == [("a.parquet", 8), ("b.parquet", 8), ("c.parquet", 8)]
    again = opened(source)
    again.restore(reader.positions())
    assert drained(reader) == drained(again) == [("a.parquet", 8), ("a.parquet", 9)]
    back = opened(source)
    back.restore([SplitPosition("c.parquet", 0)])
    assert ("c.parquet", 0) in drained(back), "0 is a position, not the lack of one"


@pytest.mark.parametrize(
    ("split", "offset", "match"),
    [
        ("z.parquet", 0, r"'z.parquet', which is missing.*a.parquet, b.parquet"),
        ("b.parquet", 0, "another subtask"),
        ("a.parquet", -1, "-1"),
    ],
)
def test_a_position_that_does_not_fit_is_refused(split: str, offset: int, match: str) -> None:
    with pytest.raises(RestoreError, match=match):
        opened(collection(), 0, 2).restore([SplitPosition(split, offset)])


def test_a_position_behind_the_end_is_refused(directory: Path) -> None:
    for source in (collection(), ParquetSource((str(directory),))):
        reader = opened(source)
        reader.restore([SplitPosition("a.parquet", 11)])
        with pytest.raises(RestoreError, match="11 lies behind"):
            reader.poll()


def test_files_can_be_read_several_times_as_several_splits(directory: Path) -> None:
    source = ParquetSource((str(directory / "c.parquet"),), repeat=2, rate_limit=5.0)
    reader = opened(source)
    assert reader.rate_limit == 5.0
    assert _offsets(reader) == [("c.parquet#0", 0), ("c.parquet#1", 0)]
    rows = []
    while (payload := reader.poll()) is not None:
        assert not isinstance(payload, NothingYet)
        rows += payload.column("i").to_pylist()
    assert rows == [*range(7), *range(7)]
    assert _offsets(reader) == [("c.parquet#0", 7), ("c.parquet#1", 7)]
    reader.close()
    reader.close()


def test_mistakes_are_told(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(JobUsageError, match=r"no \*\.parquet file"):
        ParquetSource((str(tmp_path),)).split_files()
    with pytest.raises(JobUsageError, match="no file or directory"):
        ParquetSource((str(tmp_path / "nothing"),)).split_files()
    with pytest.raises(JobUsageError, match="occurs twice"):
        ParquetSource((str(directory), str(directory))).split_files()
    with pytest.raises(JobUsageError, match="no column 'x'"):
        opened(ParquetSource((str(directory),), columns=("x",))).poll()
    with pytest.raises(JobUsageError, match="batch_rows"):
        ParquetSource((str(directory),), batch_rows=0)
    with pytest.raises(JobUsageError, match="start_offset"):
        collection(start_offset=-1)
    with pytest.raises(JobUsageError, match="occurs twice"):
        CollectionSource((("a", ()), ("a", ())), 1)
    with pytest.raises(JobUsageError, match="plane 'rows'"):
        ParquetSource((str(directory),)).open(0, 1, FILES, RowPlane())


def test_parquet_splits_beyond_ten_are_dealt_out_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"split-{number}.parquet" for number in range(12)]
    for name in (*names, "split-07.parquet", "other.parquet"):
        pq.write_table(pa.table({"i": [1]}), tmp_path / name)
    found = list(ParquetSource((str(tmp_path),)).split_files())
    assert found == ["other.parquet", *names[:7], "split-07.parquet", *names[7:]]
