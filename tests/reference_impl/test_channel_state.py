"""The file of records in flight: what is written is read back, and what is damaged or foreign is refused.

Grain: pure functions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.messages import ChannelContent
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    StorageCause,
    StorageError,
)
from barrier_tck.reference_impl.storage import channel_state
from barrier_tck.reference_impl.storage.channel_state import Fragment

FIRST = ChannelId(SubtaskId("source", 0), SubtaskId("totals", 1))
SECOND = ChannelId(SubtaskId("source", 1), SubtaskId("totals", 1), 1)
OUT = ChannelId(SubtaskId("totals", 1), SubtaskId("sink", 0))

Fragments = st.lists(st.builds(Fragment, st.binary(max_size=40), st.booleans()), max_size=4).map(tuple)


def file_of(inputs: Any, outputs: Any, encoding: str = "rows") -> bytes:
    return b"".join(channel_state.encode(inputs, outputs, encoding))


@given(first=Fragments, second=Fragments, out=Fragments)
def test_what_is_written_is_read_back(
    first: tuple[Fragment, ...], second: tuple[Fragment, ...], out: tuple[Fragment, ...]
) -> None:
    inputs, outputs = {FIRST: first, SECOND: second}, {OUT: out}
    found = channel_state.decode(file_of(inputs, outputs), "rows")
    assert found.inputs == {channel: held for channel, held in inputs.items() if held}
    assert found.outputs == {channel: held for channel, held in outputs.items() if held}


def test_how_much_each_channel_holds_is_told() -> None:
    held = {FIRST: (Fragment(b"abc"), Fragment(b"de", more=True)), SECOND: ()}
    assert channel_state.contents(held) == (ChannelContent(FIRST, 2, 5),)


def test_another_data_plane_and_a_newer_release_are_refused_and_nothing_else_is_blamed() -> None:
    content = file_of({FIRST: (Fragment(b"abc"),)}, {})
    with pytest.raises(StorageError, match="data plane 'rows', and this job runs on 'arrow'"):
        channel_state.decode(content, "arrow")
    newer = content.replace(b'"version":1', b'"version":2')
    with pytest.raises(StorageError, match="version 2, written by a newer release"):
        channel_state.decode(newer, "rows")
    with pytest.raises(CorruptStateError) as caught:
        channel_state.decode(content.replace(b"channel-state", b"counters"), "rows", "the file")
    assert caught.value.cause is StorageCause.FOREIGN


def test_every_cut_of_a_file_is_noticed() -> None:
    content = file_of({FIRST: (Fragment(b"abc"), Fragment(b"\n{", more=True))}, {OUT: (Fragment(b"x"),)})
    whole = [content.index(b"\n") + 1, content.index(b'{"direction":"output"')]
    for end in range(len(content)):
        if end in whole:
            continue  # between two frames; the size in the handle shows it
        with pytest.raises(CorruptStateError, match="the file"):
            channel_state.decode(content[:end], "rows", "the file")


def test_rows_and_arrow_batches_survive_and_what_cannot_be_stored_is_a_clear_error() -> None:
    rows = [{"id": 1, "path": "a", "x": None, "y": 0.5, "z": [1, 2]}, {"id": -(2**63), "path": "", "x": True}]
    plane = RowPlane()
    assert plane.decode(plane.encode(rows)) == rows
    with pytest.raises(JobUsageError, match="cannot be stored with a checkpoint"):
        plane.encode([{"id": 2**70}])
    with pytest.raises(CorruptStateError):
        plane.decode(plane.encode(rows)[:-1])
    arrow = ArrowPlane()
    batch = pa.RecordBatch.from_pylist([{"id": 1, "path": "a"}, {"id": 2, "path": None}]).slice(1)
    assert arrow.decode(arrow.encode(batch)).equals(batch)
    with pytest.raises(CorruptStateError):
        arrow.decode(arrow.encode(batch)[:40])
