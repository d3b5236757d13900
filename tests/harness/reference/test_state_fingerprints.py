"""Copies of one state in two formats have one fingerprint, other states have others (LOC-7)."""

from __future__ import annotations

from barrier_tck.harness.reference.state_fingerprints import fingerprint_of
from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.state.heap_files import serialised

STATE = {b"k": b"1", b"l": b"2"}


def written(table: dict[bytes, bytes], group: int = 3, compression: Compression = Compression.NONE) -> bytes:
    return b"".join(serialised([("a", {group: table})], compression))


def test_a_fingerprint_depends_on_the_state_and_not_on_its_format_or_order() -> None:
    turned = dict(reversed(STATE.items()))
    same = [written(STATE), written(STATE, compression=Compression.ZSTD), written(turned)]
    assert len(set(same)) == 3 and len({fingerprint_of(file) for file in same}) == 1


def test_another_value_another_key_group_and_a_missing_entry_have_other_fingerprints() -> None:
    files = [written(STATE), written(STATE, group=4), written({**STATE, b"k": b"0"}), written({b"k": b"1"})]
    assert len({fingerprint_of(file) for file in files}) == len(files)


def test_what_is_no_file_of_the_heap_has_none() -> None:
    assert fingerprint_of(b"rockssnp...") == fingerprint_of(written(STATE)[:-1]) == ""
