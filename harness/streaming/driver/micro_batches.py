"""The input as a query took it: a file for each micro-batch.

Spark notes which files it takes before it notes the micro-batch that takes them. If it fails in between, the next
micro-batch takes those files and further ones. So the files of the input are only at first what the micro-batches are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def one_file_each(directory: Path, checkpoint: Path, target: Path) -> Path:
    """Return a directory with a file for each micro-batch, in the order of names and of times.

    It is ``directory`` itself if no micro-batch took more than one of its files, or if the checkpoint directory says
    nothing of files; otherwise ``target``, which is made. A file that was never taken stands for itself.
    """
    files = sorted(directory.glob("*.parquet"))
    groups = _taken_together([file.name for file in files], checkpoint)
    if all(len(group) == 1 for group in groups):
        return directory
    target.mkdir(exist_ok=True)
    first_ns = files[0].stat().st_mtime_ns
    for number, group in enumerate(groups):
        file = target / f"{number:05d}.parquet"
        pq.write_table(pa.concat_tables([pq.read_table(directory / name) for name in group]), file)
        os.utime(file, ns=(first_ns + number * 10**9,) * 2)
    return target


WITHOUT_INPUT = "barrier-tck-without-input.parquet"
"""The name of an empty file that stands for no file: a micro-batch that took only this one has no new input."""


@dataclass(frozen=True)
class MicroBatch:
    """What the checkpoint directory of a query says of one micro-batch."""

    number: int
    files: tuple[str, ...]
    """The names of the files that it took, in their order; empty if it has no new input."""
    watermark_ms: int
    """Milliseconds since 1970; 0 before there is any."""


@dataclass(frozen=True)
class NotedBatches:
    """All micro-batches of a query, from the first."""

    batches: tuple[MicroBatch, ...]
    alike: bool
    """Whether each source took the same files in each micro-batch. A join of a stream with itself has two sources, of
    which one may be ahead after a failure; then ``batches`` has each file where the last of them took it."""


class NotNoted(ValueError):
    """A checkpoint directory does not say what each micro-batch took; the text says why."""


def noted_batches(checkpoint: Path) -> NotedBatches:
    """Return what the checkpoint directory of a query says of its micro-batches.

    Raises NotNoted if it does not say it of all of them: notes of the first ones are deleted in time, some may be
    damaged, and a source may read no files.
    """
    numbers = sorted(int(file.name) for file in (checkpoint / "offsets").glob("*") if file.name.isdigit())
    if not numbers or numbers != list(range(len(numbers))):
        raise NotNoted("its checkpoint directory does not have the offsets of all micro-batches")
    try:
        offsets = [_Offsets(checkpoint / "offsets" / str(number)) for number in numbers]
        taken = [_taken_by_source(checkpoint, source, offsets) for source in _sources(checkpoint)]
        marks = [noted.watermark_ms for noted in offsets]
    except (ValueError, LookupError) as error:  # half a file, which a fault has left
        raise NotNoted(f"its checkpoint directory is damaged ({error})") from error
    if not taken:
        raise NotNoted("its sources read no files")
    last = {name: max(source.get(name, 0) for source in taken) for source in taken for name in source}
    batches = tuple(
        MicroBatch(number, tuple(name for name, batch in last.items() if batch == number), mark)
        for number, mark in enumerate(marks)
    )
    return NotedBatches(batches, alike=all(source == taken[0] for source in taken))


def _taken_by_source(checkpoint: Path, source: int, offsets: Sequence[_Offsets]) -> dict[str, int]:
    """Return the name of each file that a source has taken, in their order -> its micro-batch."""
    ends = [noted.last_entry(source) for noted in offsets]
    found = {}
    for path, entry in _entries(checkpoint, source).items():
        batch = next((number for number, end in enumerate(ends) if entry <= end), None)
        if batch is not None and Path(path).name != WITHOUT_INPUT:
            found[Path(path).name] = batch
    return found


def last_watermark_ms(checkpoint: Path) -> int:
    """Return the watermark of the last micro-batch that was committed, in milliseconds since 1970; 0 without any."""
    commits = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdigit()]
    return _Offsets(checkpoint / "offsets" / str(max(commits))).watermark_ms if commits else 0


def files_read(checkpoint: Path, batch: int) -> list[str]:
    """Return the files that the first source of a query had read when a micro-batch was over, in their order."""
    last, entries = _last_entry(checkpoint / "offsets" / str(batch)), _entries(checkpoint)
    read = [path for path, number in entries.items() if number <= last]
    return sorted(read, key=lambda path: entries[path])


def taken_by(checkpoint: Path) -> dict[str, int]:
    """Return the name of each file that the first source has taken -> its micro-batch, as far as it is noted.

    Offsets are deleted in time. Files that the first micro-batch that is left took, or one before it, are left out,
    and so are all if offsets are damaged.
    """
    try:
        ends = sorted(
            (int(file.name), _last_entry(file))
            for file in (checkpoint / "offsets").glob("*")
            if file.name.isdigit()
        )
        entries = _entries(checkpoint)
    except (ValueError, LookupError):  # half a file, which a fault has left
        return {}
    unknown = ends[0][1] if ends and ends[0][0] else -1
    found: dict[str, int] = {}
    for path, number in entries.items():
        batch = next((batch for batch, end in ends if number <= end), None)
        if batch is not None and number > unknown:
            found[Path(path).name] = batch
    return found


def _taken_together(names: Sequence[str], checkpoint: Path) -> list[list[str]]:
    """Return the names in the groups in which micro-batches took them, by what is noted of the first source."""
    noted = {Path(path).name: number for path, number in _entries(checkpoint).items()}
    ends = sorted(_last_entry(file) for file in (checkpoint / "offsets").glob("*") if file.name.isdigit())
    groups: dict[object, list[str]] = {}
    for name in names:
        took = next((number for number, end in enumerate(ends) if name in noted and noted[name] <= end), name)
        groups.setdefault(took, []).append(name)
    return list(groups.values())


def _sources(checkpoint: Path) -> list[int]:
    """Return the numbers of the sources that keep a log of files."""
    return sorted(int(log.name) for log in (checkpoint / "sources").glob("*") if log.name.isdigit())


def _entries(checkpoint: Path, source: int = 0) -> dict[str, int]:
    """Return the path of each file that a source has taken, with the number of its entry, by these numbers."""
    found: dict[str, int] = {}
    for log in (checkpoint / "sources" / str(source)).glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[entry["path"]] = int(entry["batchId"])
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _last_entry(offsets: Path) -> int:
    """Return up to which entry of the first source a micro-batch goes; -1 if that source reads no files."""
    return _Offsets(offsets).last_entry(0)


class _Offsets:
    """What Spark notes before a micro-batch: the version, the batch's metadata, and a line for each source."""

    def __init__(self, file: Path) -> None:
        self._lines = file.read_text().splitlines()

    @property
    def watermark_ms(self) -> int:
        return int(json.loads(self._lines[1])["batchWatermarkMs"])

    def last_entry(self, source: int) -> int:
        """Return up to which entry of a source the micro-batch goes; -1 if that source reads no files."""
        offset = json.loads(self._lines[2 + source])
        return int(offset["logOffset"]) if isinstance(offset, dict) and "logOffset" in offset else -1
