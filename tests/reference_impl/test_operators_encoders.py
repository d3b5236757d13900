"""Output files of both planes, and what the planes must not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

ROWS: list[dict[str, Any]] = [{"k": "a", "n": 1}, {"k": None, "n": -2}]


def written(plane: Any, root: Path, payloads: list[Any]) -> Path:
    name = f"out{plane.file_suffix}"
    stream = LocalFileSystem(root).create(name)
    encoder = plane.encoder(stream)
    for payload in payloads:
        encoder.write(payload)
    encoder.finish()
    assert not stream.closed, "the owner must still be able to sync the stream"
    stream.sync()
    stream.close()
    return root / name


def test_only_columns_of_text_have_dictionaries(tmp_path: Path) -> None:
    path = written(
        ArrowPlane(), tmp_path, [pa.RecordBatch.from_pylist([{"k": "a", "n": 1}, {"k": "a", "n": 2}])]
    )
    text, number = (pq.ParquetFile(path).metadata.row_group(0).column(index) for index in (0, 1))
    assert text.has_dictionary_page
    assert not number.has_dictionary_page, "building it takes longer than writing the numbers"


def test_rows_are_written_as_json_lines(tmp_path: Path) -> None:
    path = written(RowPlane(), tmp_path, [ROWS, ROWS[:1]])
    assert path.suffix == ".jsonl"
    assert [json.loads(line) for line in path.read_text().splitlines()] == [*ROWS, ROWS[0]]


def test_batches_are_written_as_one_parquet_file(tmp_path: Path) -> None:
    plane = ArrowPlane()
    path = written(plane, tmp_path, [plane.from_rows(ROWS), plane.from_rows(ROWS[1:]), plane.from_rows(ROWS)])
    assert path.suffix == ".parquet"
    assert pq.read_table(path).to_pylist() == [*ROWS, ROWS[1], *ROWS]
    assert pq.ParquetFile(path).num_row_groups == 1, "small batches are gathered"


def test_a_column_that_begins_with_nulls_gets_the_type_of_its_values(tmp_path: Path) -> None:
    plane = ArrowPlane()
    path = written(plane, tmp_path, [plane.from_rows([{"k": None}]), plane.from_rows([{"k": 1}])])
    assert pq.read_schema(path).field("k").type == pa.int64()


def test_later_row_groups_take_the_types_of_the_first(tmp_path: Path) -> None:
    plane = ArrowPlane()
    large = pa.RecordBatch.from_pydict({"k": list(range(1 << 17))})
    path = written(plane, tmp_path, [large, plane.from_rows([{"k": None}]), large])
    column = pq.read_table(path).column("k")
    assert (column.type, column.null_count, len(column)) == (pa.int64(), 1, (1 << 18) + 1)


def test_a_parquet_file_without_a_batch_is_refused(tmp_path: Path) -> None:
    encoder = ArrowPlane().encoder(LocalFileSystem(tmp_path).create("x"))
    with pytest.raises(JobUsageError, match="first batch"):
        encoder.finish()


def test_a_collection_feeds_both_planes(tmp_path: Path) -> None:
    source = CollectionSource((("s", tuple(ROWS)),), batch_records=5)
    files = LocalFileSystem(tmp_path)
    assert source.open(0, 1, files, RowPlane()).poll() == ROWS
    batch = source.open(0, 1, files, ArrowPlane()).poll()
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == ROWS


def test_the_row_plane_and_the_job_api_import_neither_arrow_nor_numpy() -> None:
    script = (
        "import sys, barrier_tck.reference_impl.operators.rows, barrier_tck.reference_impl.operators.job;"
        "print([name for name in ('pyarrow', 'numpy') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.strip() == "[]"
