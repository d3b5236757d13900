"""What is written to RocksDB while a local checkpoint is still to be made; grain: one database."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Checkpoint, Rdict

from barrier_tck.reference_impl.runtime_errors import JobUsageError, SnapshotCancelled, StorageError
from barrier_tck.reference_impl.state import rocksdb_capture
from barrier_tck.reference_impl.state.rocksdb_capture import Capture, CapturingDatabase
from barrier_tck.reference_impl.state.rocksdb_library import close_database, open_database
from tests.waiting import PATIENCE_S

Entries = dict[tuple[bytes, bytes], bytes]
PREFIXES = (b"p", b"q")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CapturingDatabase]:
    opened = CapturingDatabase(open_database(tmp_path / "db"), later_bytes=1000)
    yield opened
    opened.close()


def entries(database: CapturingDatabase) -> Entries:
    return {(prefix, key): value for prefix in PREFIXES for key, value in database.entries(prefix)}


def files_hold(capture: Capture) -> Entries:
    """Return what a made capture holds."""
    found = open_database(capture.directory)
    try:
        return entries(CapturingDatabase(found))
    finally:
        close_database(found)


def begun(database: CapturingDatabase, directory: Path) -> Capture:
    capture = database.begin(directory)
    assert capture is not None
    return capture


@pytest.mark.long
def test_reads_see_what_is_kept_apart_and_the_files_do_not(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    draw = random.Random(1)
    model: Entries = {}
    for number in range(30):
        if model:
            before, capture = dict(model), begun(database, tmp_path / f"c{number}")
        for _ in range(20):
            prefix, key, value = draw.choice(PREFIXES), b"%d" % draw.randrange(12), b"%d" % draw.randrange(99)
            if draw.random() < 0.3:
                database.delete(prefix, key)
                model.pop((prefix, key), None)
            elif draw.random() < 0.5:
                database.put(prefix, key, value)
                model[prefix, key] = value
            else:
                database.put_many([prefix, b"p"], [key, b"k"], [value, value])
                model |= {(prefix, key): value, (b"p", b"k"): value}
            assert database.get(prefix, key) == model.get((prefix, key))
        assert entries(database) == model
        assert [key for key, _ in database.entries(b"p")] == sorted(key for at, key in model if at == b"p")
        wanted = [(prefix, b"%d" % one) for prefix in PREFIXES for one in range(12)]
        assert database.get_many([at for at, _ in wanted], [key for _, key in wanted]) == [
            model.get(one) for one in wanted
        ]
        if number:
            capture.require()
            assert files_hold(capture) == before
            assert entries(database) == model
            capture.drop()


def test_a_scan_goes_on_undisturbed_by_the_end_of_a_capture(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    database.put(b"p", b"1", b"stored")
    capture = begun(database, tmp_path / "c")
    database.put(b"p", b"2", b"later")
    scan = database.entries(b"p")
    capture.make()
    database.put(b"p", b"1", b"changed")
    database.put(b"p", b"2", b"changed")
    assert list(scan) == [(b"1", b"stored"), (b"2", b"later")]


def test_no_more_is_kept_apart_than_the_limit(database: CapturingDatabase, tmp_path: Path) -> None:
    database.put(b"p", b"0", b"before")
    capture = begun(database, tmp_path / "c")
    for number in range(99):
        database.put(b"p", b"%d" % number, b"v" * 8)
        if number < 90:
            assert not capture.ended
    assert capture.ended, "1,000 bytes were kept apart, and nobody made the capture"
    assert files_hold(capture) == {(b"p", b"0"): b"before"}
    assert len(entries(database)) == 99


def test_a_writer_goes_on_while_another_thread_makes_the_capture(
    database: CapturingDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk stands still in the middle of the flush until the writer has gone on."""
    making, written = threading.Event(), threading.Event()

    class Standing:
        def __init__(self, native: Rdict) -> None:
            self._real = real(native)

        def create_checkpoint(self, path: str) -> None:
            making.set()
            assert written.wait(PATIENCE_S), "the writer waited for the capture"
            self._real.create_checkpoint(path)

    real = Checkpoint
    monkeypatch.setattr(rocksdb_capture, "Checkpoint", Standing)
    database.put(b"p", b"k", b"before")
    capture = begun(database, tmp_path / "c")
    maker = threading.Thread(target=capture.make)
    maker.start()
    assert making.wait(PATIENCE_S)
    database.put(b"p", b"k", b"after")
    assert database.get(b"p", b"k") == b"after"
    written.set()
    maker.join()
    assert files_hold(capture) == {(b"p", b"k"): b"before"}
    assert database.get(b"p", b"k") == b"after"


def test_what_was_kept_apart_survives_a_capture_that_fails_or_is_given_up(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    database.put(b"p", b"k", b"1")
    failing = begun(database, tmp_path / "no" / "such" / "directory")
    database.put(b"p", b"k", b"2")
    with pytest.raises(StorageError, match="local checkpoint"):
        failing.require()
    assert database.get(b"p", b"k") == b"2"
    dropped = begun(database, tmp_path / "c")
    database.put(b"p", b"k", b"3")
    dropped.drop()
    with pytest.raises(SnapshotCancelled):
        dropped.require()
    assert entries(database) == {(b"p", b"k"): b"3"}
    assert not dropped.directory.exists()


def test_a_capture_that_is_made_holds_nothing_of_what_it_has_written(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    """It may be large, and freeing it takes time that the next snapshot's synchronous part does not have."""

    class Held:
        """Stands for the frozen state of an operator."""

        def write(self, native: Rdict) -> None:
            native.put(b"pk", b"v")

    held = Held()
    seen = weakref.ref(held)
    capture = database.begin(tmp_path / "c", True, held.write)
    del held
    assert capture is not None and seen() is not None
    capture.make()
    assert seen() is None


def test_what_is_no_bytes_is_refused_while_writes_are_kept_apart(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    database.put(b"p", b"k", b"1")
    begun(database, tmp_path / "c")
    with pytest.raises(JobUsageError, match="bytes"):
        database.put(b"p", b"k", "v")  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="bytes"):
        database.put_many([b"p", b"p"], [b"k", b"l"], [b"2", "v"])  # type: ignore[list-item]
    assert entries(database) == {(b"p", b"k"): b"1"}


def test_no_snapshot_passes_over_all_that_was_deleted_to_find_out_whether_anything_is_left(
    database: CapturingDatabase, tmp_path: Path
) -> None:
    """That takes as long as there was state; a snapshot of an empty database is as good as none."""
    assert database.begin(tmp_path / "of-nothing") is None
    keys = [b"%06d" % number for number in range(5_000)]
    database.put_many([b"p"] * len(keys), keys, [b""] * len(keys))
    for key in keys[:100]:
        database.delete(b"p", key)
    for key in keys[100:]:
        database.delete(b"p", key)
    capture = database.begin(tmp_path / "of-tombstones")
    assert capture is not None
    capture.make()
    assert files_hold(capture) == {}
