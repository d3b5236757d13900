"""The windows benchmark's input, in event time: two lanes of records that come out of order, and none that is late.

The input is made of slices, each a little later than the one before, so that it can be as long as a side needs it to
be. Every record is behind those before it in its lane by less than the bound. At the end of each lane stands a record
an hour ahead, of the key ``LAST_KEY``: behind it the last windows have ended for both sides, and what becomes of it is
not compared.

All event times are even and the gap between sessions is odd: whether records exactly one gap apart belong together
is something on which systems differ.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LANES = 2
"""How many parts of the input are read side by side; the two inputs of a join are the two lanes."""
START_MS = 1_767_225_600_000
"""Where event time begins: 2026-01-01, midnight, UTC."""
LAST_KEY = -1
HOUR_MS = 3_600_000
COLUMNS = ("key", "at_ms", "value")
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class EventShape:
    """What the input is made of. The same shape always gives the same records."""

    keys: int = 10_000
    """Distinct keys, evenly likely."""
    slice_rows: int = 20_000
    """Of a slice, both lanes together."""
    slice_ms: int = 2_000
    """Event time from one slice to the next."""
    bound_ms: int = 1_000
    """Records are behind others by less than this."""
    start_ms: int = START_MS
    seed: int = 7

    def __post_init__(self) -> None:
        if self.slice_rows % LANES or self.slice_ms % 2 or self.bound_ms % 2:
            raise ValueError(f"slice_rows, slice_ms and bound_ms must be even: {self}")

    def lane(self, number: int, lane: int) -> pa.Table:
        """Return what a slice has in a lane."""
        rows = self.slice_rows // LANES
        random = np.random.default_rng((self.seed, number, lane))
        in_order = np.arange(rows) * self.slice_ms // rows // 2 * 2
        behind = 2 * random.integers(0, self.bound_ms // 2, rows)
        at_ms = self.start_ms + number * self.slice_ms + in_order - behind
        keys = random.integers(0, self.keys, rows)
        return pa.Table.from_arrays([pa.array(keys), pa.array(at_ms), _numbers(number, rows)], schema=SCHEMA)

    def lanes(self, lane: int, slices: range) -> pa.Table:
        """Return what some slices have in a lane."""
        return pa.concat_tables([self.lane(number, lane) for number in slices])

    def last(self, slices: int) -> pa.Table:
        """Return the record at the end of a lane of so many slices."""
        at_ms = self.start_ms + slices * self.slice_ms + HOUR_MS
        return pa.Table.from_pylist([{"key": LAST_KEY, "at_ms": at_ms, "value": 0}], schema=SCHEMA)


def _numbers(number: int, rows: int) -> pa.Array:
    """Return the values of a slice: the numbers of the records in their lane, each of which occurs once."""
    return pa.array(np.arange(number * rows, (number + 1) * rows))


def write_lanes(directory: Path, shape: EventShape, slices: int) -> None:
    """Write the input as one file for each lane, into a new directory."""
    directory.mkdir(parents=True)
    for lane in range(LANES):
        write_lane(
            directory, lane, [*(shape.lane(number, lane) for number in range(slices)), shape.last(slices)]
        )


def write_lane(directory: Path, lane: int, tables: Sequence[pa.Table]) -> None:
    """Write a lane as one file."""
    pq.write_table(pa.concat_tables(tables), lane_file(directory, lane), row_group_size=1 << 18)


def lane_file(directory: Path, lane: int) -> Path:
    """Return the file of a lane."""
    return directory / f"lane-{lane}.parquet"


def write_steps(directory: Path, shape: EventShape, slices: int, slices_per_step: int) -> None:
    """Write the input as one file for each lane and step, into a new directory: steps of equal times, in their order.

    A source that takes files by age takes them in the order of event time.
    """
    directory.mkdir(parents=True)
    steps = [
        range(first, min(first + slices_per_step, slices)) for first in range(0, slices, slices_per_step)
    ]
    for number, step in enumerate(steps):
        for lane in range(LANES):
            rows = shape.lanes(lane, step)
            if step.stop == slices:
                rows = pa.concat_tables([rows, shape.last(slices)])
            file = directory / f"lane-{lane}-{number:05d}.parquet"
            pq.write_table(rows, file, row_group_size=max(1, rows.num_rows))
            os.utime(file, (number, number))
