"""The input as a query took it: files that one micro-batch took are one file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.harness.streaming.driver.micro_batches import (
    WITHOUT_INPUT,
    MicroBatch,
    NotNoted,
    noted_batches,
    one_file_each,
    taken_by,
)


def written(directory: Path, number: int) -> Path:
    directory.mkdir()
    for name in range(number):
        pq.write_table(pa.table({"id": [name, 10 + name]}), directory / f"{name:05d}.parquet")
    return directory


def noted(checkpoint: Path, entries: Sequence[Sequence[int]], offsets: Sequence[int], compact: bool) -> Path:
    """Write which entry of the source's log has which files, and up to which entry each micro-batch goes."""
    log = checkpoint / "sources" / "0"
    log.mkdir(parents=True)
    lines: list[str] = []
    for number, files in enumerate(entries):
        new = [
            json.dumps({"path": f"file:///somewhere/{name:05d}.parquet", "timestamp": 1, "batchId": number})
            for name in files
        ]
        lines = [*lines, *new] if compact else new
        last = compact and number == len(entries) - 1
        (log / f"{number}{'.compact' if last else ''}").write_text(
            "\n".join(["v1", *new * (not last), *lines * last])
        )
    (checkpoint / "offsets").mkdir()
    for number, end in enumerate(offsets):
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', json.dumps({"logOffset": end})])
        (checkpoint / "offsets" / str(number)).write_text(text)
    return checkpoint


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(
    ("entries", "offsets", "expected"),
    [
        pytest.param(
            [[0], [1], [2]], [0, 2], [[0, 10], [1, 11, 2, 12]], id="it failed between the two notes"
        ),
        pytest.param(
            [[0, 1], [2]], [0, 1, 1], [[0, 10, 1, 11], [2, 12]], id="two at once, and one without files"
        ),
        pytest.param([[0, 1]], [0], [[0, 10, 1, 11], [2, 12]], id="one was never taken"),
        pytest.param([[0], [1], [2]], [1, 2], [[0, 10, 1, 11], [2, 12]], id="the first offsets were deleted"),
    ],
)
def test_files_of_one_micro_batch_are_one(
    tmp_path: Path, entries: list[list[int]], offsets: list[int], expected: list[list[int]], compact: bool
) -> None:
    checkpoint = noted(tmp_path / "checkpoint", entries, offsets, compact)
    directory = one_file_each(written(tmp_path / "input", 3), checkpoint, tmp_path / "made")
    files = sorted(directory.iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name))
    assert [pq.read_table(file)["id"].to_pylist() for file in files] == expected
    assert files == sorted(files)


@pytest.mark.parametrize("told", [True, False])
def test_the_input_is_left_as_it_is_where_each_micro_batch_took_one_file(tmp_path: Path, told: bool) -> None:
    checkpoint = tmp_path / "checkpoint"
    if told:
        noted(checkpoint, [[0], [1], [2]], [0, 1, 2, 2], compact=False)
    given = written(tmp_path / "input", 3)
    assert one_file_each(given, checkpoint, tmp_path / "made") == given


@pytest.mark.parametrize("compact", [False, True])
def test_each_file_is_of_the_first_micro_batch_that_goes_up_to_it(tmp_path: Path, compact: bool) -> None:
    checkpoint = noted(tmp_path / "checkpoint", [[0], [1], [2], [3]], [0, 2, 2], compact)
    names = {f"{number:05d}.parquet": batch for number, batch in enumerate((0, 1, 1))}
    assert taken_by(checkpoint) == names, "the last one has no offsets yet"
    (checkpoint / "offsets" / "0").unlink()
    assert taken_by(checkpoint) == {}, (
        "an earlier micro-batch, which is not noted any more, may have taken them"
    )
    noted_last = "\n".join(["v1", "{}", json.dumps({"logOffset": 3})])
    (checkpoint / "offsets" / "3").write_text(noted_last)
    assert taken_by(checkpoint) == {"00003.parquet": 3}


def test_of_damaged_or_missing_notes_nothing_is_known(tmp_path: Path) -> None:
    assert taken_by(tmp_path / "nothing") == {}
    checkpoint = noted(tmp_path / "checkpoint", [[0], [1]], [0, 1], compact=False)
    (checkpoint / "offsets" / "0").write_text("v1\n")
    assert taken_by(checkpoint) == {}


def second_source(checkpoint: Path, ends: Sequence[int]) -> None:
    """Let a second source read the same files, up to some entry in each micro-batch."""
    shutil.copytree(checkpoint / "sources" / "0", checkpoint / "sources" / "1")
    for batch, end in enumerate(ends):
        file = checkpoint / "offsets" / str(batch)
        file.write_text(file.read_text() + "\n" + json.dumps({"logOffset": end}))


def test_each_micro_batch_is_noted_with_its_files_and_its_watermark(tmp_path: Path) -> None:
    checkpoint = noted(tmp_path / "checkpoint", [[0], [2, 1], [3]], [0, 1, 1, 2], compact=False)
    last = checkpoint / "offsets" / "3"
    last.write_text(last.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":7'))
    log = checkpoint / "sources" / "0" / "2"
    log.write_text(log.read_text().replace("00003.parquet", WITHOUT_INPUT))
    second_source(checkpoint, [0, 1, 1, 2])
    noted_of_all = noted_batches(checkpoint)
    assert noted_of_all.alike
    assert noted_of_all.batches == (
        MicroBatch(0, ("00000.parquet",), 0),
        MicroBatch(1, ("00002.parquet", "00001.parquet"), 0),
        MicroBatch(2, (), 0),
        MicroBatch(3, (), 7),
    )


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda checkpoint: (checkpoint / "offsets" / "0").unlink(), "the offsets of all micro-batches"),
        (lambda checkpoint: shutil.rmtree(checkpoint / "offsets"), "the offsets of all micro-batches"),
        (lambda checkpoint: (checkpoint / "offsets" / "1").write_text("v1\n"), "is damaged"),
        (lambda checkpoint: shutil.rmtree(checkpoint / "sources"), "read no files"),
    ],
    ids=["first deleted", "nothing", "half a file", "no files"],
)
def test_what_micro_batches_took_may_not_be_known(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    checkpoint = noted(tmp_path / "checkpoint", [[0], [1]], [0, 1], compact=False)
    spoil(checkpoint)
    with pytest.raises(NotNoted, match=why):
        noted_batches(checkpoint)


def test_where_one_source_is_ahead_a_file_is_where_the_last_one_took_it(tmp_path: Path) -> None:
    checkpoint = noted(tmp_path / "checkpoint", [[0], [1], [2]], [0, 1, 2, 2], compact=False)
    second_source(checkpoint, [1, 1, 1, 2])
    found = noted_batches(checkpoint)
    assert not found.alike
    names = [f"{number:05d}.parquet" for number in range(3)]
    assert [batch.files for batch in found.batches] == [(names[0],), (names[1],), (), (names[2],)]
