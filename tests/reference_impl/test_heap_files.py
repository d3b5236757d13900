"""The files of the heap's snapshots: compressed per key group, each group readable alone, older files too (SNP-6)."""

from __future__ import annotations

import pytest

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import StateScope
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.state.heap_files import CapturedState, read_snapshot, serialised
from tests.reference_impl.state_worlds import ALL, StateWorld, content

STATES: list[CapturedState] = [
    ("b", {3: {b"k%d" % i: b"value" * 20 for i in range(50)}}),
    ("a", {2: {b"k%d" % i: b"value" * 20 for i in range(100)}, 5: {b"x": b"1"}, 6: {}}),
]
EXPECTED = [("a", 2, STATES[1][1][2]), ("a", 5, {b"x": b"1"}), ("b", 3, STATES[0][1][3])]
HANDLE = StateHandle("chk-1/state", 0, "", ALL)
BOTH = pytest.mark.parametrize("compression", Compression)


def file_with(compression: Compression) -> bytes:
    return b"".join(serialised(STATES, compression))


class OnlySlices:
    """A file of which slices can be read, and nothing else; notes which."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.read: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.content)

    def __getitem__(self, wanted: slice) -> bytes:
        start, stop, _ = wanted.indices(len(self.content))
        self.read.append((start, stop))
        return self.content[start:stop]


@BOTH
def test_a_file_gives_back_what_was_written(compression: Compression) -> None:
    assert list(read_snapshot(HANDLE, file_with(compression), ALL)) == EXPECTED


def test_a_compressed_file_is_smaller_and_its_bytes_are_the_same_each_time() -> None:
    plain, packed = file_with(Compression.NONE), file_with(Compression.ZSTD)
    assert len(packed) < len(plain) / 5
    assert packed == file_with(Compression.ZSTD)


@BOTH
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_key_group_is_read_without_the_bytes_of_the_others(compression: Compression, wanted: int) -> None:
    whole = file_with(compression)
    name, group, table = EXPECTED[wanted]
    file = OnlySlices(whole)
    assert list(read_snapshot(HANDLE, file, KeyGroupRange(group, group + 1))) == [(name, group, table)]
    # What was not asked for is wiped: then it cannot have been needed.
    blank = bytearray(b"\xc1" * len(whole))
    for start, stop in file.read:
        blank[start:stop] = whole[start:stop]
    assert bytes(blank) != whole
    assert list(read_snapshot(HANDLE, bytes(blank), KeyGroupRange(group, group + 1))) == [
        (name, group, table)
    ]
    with pytest.raises(CorruptStateError):
        list(read_snapshot(HANDLE, bytes(blank), ALL))


def test_files_of_the_format_before_compression_are_still_read() -> None:
    # magic, {b"k": b"1"}, [["a", 0, 8, 7, 1]], and the footer: offset 15, version 1.
    written = (
        b"heapsnap"
        + bytes.fromhex("81c4016bc40131")
        + bytes.fromhex("9195a16100080701")
        + b"\x0f"
        + b"\0" * 7
    )
    written += b"\x01\0\0\0INDX"
    assert list(read_snapshot(HANDLE, written, ALL)) == [("a", 0, {b"k": b"1"})]
    assert b"".join(serialised([("a", {0: {b"k": b"1"}})])) == written


def test_every_changed_byte_of_a_compressed_block_is_noticed_without_the_rest_of_the_file() -> None:
    whole = b"".join(serialised([("a", {0: {b"k": b"1" * 40}, 1: {b"l": b"2" * 40}})], Compression.ZSTD))
    ends = [stop for _, stop in _blocks(whole, 2)]
    for position in range(8, ends[0]):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(CorruptStateError, match="checksum"):
            list(read_snapshot(HANDLE, bytes(damaged), KeyGroupRange(0, 1)))
        assert list(read_snapshot(HANDLE, bytes(damaged), KeyGroupRange(1, 2))) == [
            ("a", 1, {b"l": b"2" * 40})
        ]


def _blocks(whole: bytes, count: int) -> list[tuple[int, int]]:
    file = OnlySlices(whole)
    assert len(list(read_snapshot(HANDLE, file, ALL))) == count
    return file.read[-count:]


def test_an_unknown_codec_and_an_unknown_version_are_refused_with_their_names() -> None:
    packed = file_with(Compression.ZSTD)
    with pytest.raises(CorruptStateError, match="'zsta'"):
        list(read_snapshot(HANDLE, packed.replace(b"zstd", b"zsta"), ALL))
    newer = packed[:-8] + b"\x63\0\0\0INDX"
    with pytest.raises(CorruptStateError, match="version 99"):
        list(read_snapshot(HANDLE, newer, ALL))


@pytest.mark.parametrize(("before", "after"), [("none", "zstd"), ("zstd", "none")])
def test_a_store_restores_whatever_compression_its_snapshot_had(before: str, after: str) -> None:
    world = StateWorld()
    store = HeapStateBackend().new_store(scope(before, files_wanted=3))
    for group in ALL:
        store.put("a", group, b"key", b"%d" % group)
    handles = world.snapshot(store).run()
    assert len(handles) == 3
    again = HeapStateBackend().open(scope(after), handles, world.storage)
    assert content(again) == content(store)
    versions = {world.storage.read(handle)[-8] for handle in handles}
    assert versions == {2 if before == "zstd" else 1}
    world.close()


def scope(compression: str, files_wanted: int = 1) -> StateScope:
    return StateScope(
        "job", "v", "o", 0, 1, ALL, files_wanted=files_wanted, compression=Compression(compression)
    )
