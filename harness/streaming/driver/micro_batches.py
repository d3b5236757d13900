"""The input as a query took it: a file for each micro-batch.

Spark notes which files it takes before it notes the micro-batch that takes them. If it fails in between, the next
micro-batch takes those files and further ones. So the files of the input are only at first what the micro-batches are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
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


def _entries(checkpoint: Path) -> dict[str, int]:
    """Return the path of each file that the first source has taken, with the number of its entry."""
    found: dict[str, int] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[entry["path"]] = int(entry["batchId"])
    return found


def _last_entry(offsets: Path) -> int:
    """Return up to which entry of the first source a micro-batch goes; -1 if that source reads no files.

    Line by line: the version, the batch's metadata, and the offsets of each source.
    """
    offset = json.loads(offsets.read_text().splitlines()[2])
    return int(offset["logOffset"]) if isinstance(offset, dict) and "logOffset" in offset else -1
