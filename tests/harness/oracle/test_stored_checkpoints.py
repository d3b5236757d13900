"""Stored checkpoints: the reader reads what the page documents, and everything wrong in storage is found."""

from __future__ import annotations

import ast
import json
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.stored_checkpoints import StoredCheckpoints
from barrier_tck.harness.oracle.evidence import stored_heap, stored_reader
from barrier_tck.harness.oracle.evidence.stored_heap import packing_of
from barrier_tck.harness.oracle.evidence.stored_reader import read_stored_checkpoints
from barrier_tck.harness.record.history import StateView, StorageView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.stored import StoredCheckpoint, StoredFile, StoredOperator, StoredPart
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.state.heap_files import serialised, serialised_increment
from tests.harness.oracle.oracle_histories import (
    SUBTASKS,
    Book,
    a_context,
    a_plan,
    input_of,
    positions_at,
    right_view,
)
from tests.test_tidy import ROOT

# --- the reader ---------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "checkpoint-files.md").read_text()
METADATA = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1].encode()  # type: ignore[index]
PLACE = "checkpoints/job/chk-7/_metadata"
STATE = "checkpoints/job/chk-7/totals-0-a2-totals-state"
FILES = {
    PLACE: METADATA,
    STATE: b"123456789",
    "checkpoints/job/counters": b"",
    "checkpoints/job/chk-8/x": b"",
}


def read(files: dict[str, bytes]) -> tuple[StoredCheckpoint, ...]:
    return read_stored_checkpoints(files, files.__getitem__, "checkpoints")


def with_body(change: Callable[[dict[str, Any]], None]) -> dict[str, bytes]:
    """Return the example with another body and a matching header."""
    header, body = (json.loads(line) for line in METADATA.splitlines())
    change(body)
    line = json.dumps(body).encode()
    header |= {"size": len(line), "checksum": f"crc32:{zlib.crc32(line):08x}"}
    return FILES | {PLACE: b"%b\n%b\n" % (json.dumps(header).encode(), line)}


def test_the_example_of_the_page_is_read_in_full() -> None:
    (stored,) = read(FILES)
    assert stored == StoredCheckpoint(
        7,
        (
            StoredPart("source[0]", (StoredOperator("source.source", {"split-0-0": 39}),)),
            StoredPart(
                "totals[0]",
                (
                    StoredOperator(
                        "totals",
                        files=(
                            StoredFile(
                                "job/chk-7/totals-0-a2-totals-state", 9, "crc32:cbf43926", 9, "crc32:cbf43926"
                            ),
                        ),
                    ),
                ),
            ),
        ),
        {"source": 1, "totals": 1},
        triggered_at_ms=1900.0,
        completed_at_ms=1944.0,
    )


CHANNEL = {
    "sender": {"vertex": "source", "index": 0},
    "receiver": {"vertex": "totals", "index": 0},
    "edge": 0,
}
FLYING = "checkpoints/job/chk-7/in-flight"


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([(CHANNEL, 2, 5)], ""),
        ([(CHANNEL, 1, 5)], "holds 2 buffers of 5 bytes, and the metadata says 1 of 5"),
        ([(CHANNEL, 2, 4)], "holds 2 buffers of 5 bytes, and the metadata says 2 of 4"),
        ([], "holds 2 buffers of 5 bytes, and the metadata says 0 of 0"),
        ([(CHANNEL, 2, 5), (CHANNEL | {"edge": 1}, 1, 3)], "holds 0 buffers of 0 bytes, and the metadata"),
    ],
    ids=["right", "buffers", "bytes", "a channel not told", "a channel not there"],
)
def test_how_much_each_channel_holds_is_compared_with_what_the_metadata_says(
    told: list[tuple[dict[str, Any], int, int]], wrong: str
) -> None:
    frame = {"direction": "input", "channel": CHANNEL, "buffers": [[3, False], [2, True]]}
    header = {"format": "channel-state", "version": 1, "encoding": "rows"}
    content = b"%b\n%b\nabcde\n" % tuple(json.dumps(line).encode() for line in (header, frame))
    handle = {
        "path": "job/chk-7/in-flight",
        "size": len(content),
        "checksum": f"crc32:{zlib.crc32(content):08x}",
    }
    inputs = [{"channel": channel, "buffers": buffers, "size": size} for channel, buffers, size in told]

    def change(body: dict[str, Any]) -> None:
        body["snapshots"][1]["channels"] = {"file": handle, "inputs": inputs, "outputs": []}

    (stored,) = read(with_body(change) | {FLYING: content})
    assert [wrong in sentence for sentence in stored.parts[1].miscounted] == [True] * bool(wrong)


def test_the_size_and_checksum_found_are_reported_beside_those_of_the_metadata() -> None:
    (flipped,) = read(FILES | {STATE: b"123456780"})
    file = flipped.parts[1].files[0]
    assert (file.found_size, file.size) == (9, 9) and file.found_checksum != file.checksum
    gone = {path: content for path, content in FILES.items() if path != STATE}
    assert read(gone)[0].parts[1].files[0].found_size is None


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (METADATA.replace(b'"version":6', b'"version":9'), Reason.MALFORMED),
        (METADATA.replace(b"checkpoint-metadata", b"counters"), Reason.FOREIGN),
        (METADATA.replace(b'"offset":39', b'"offset":38'), Reason.WRONG_CHECKSUM),
        (METADATA.replace(b'"offset":39', b'"offset":390'), Reason.WRONG_SIZE),
        (METADATA[:-1], Reason.MALFORMED),
        (METADATA[: len(METADATA) // 2], Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (with_body(lambda body: body.update(checkpoint=6))[PLACE], Reason.FOREIGN),
        (with_body(lambda body: body.pop("snapshots"))[PLACE], Reason.MALFORMED),
    ],
    ids=["version", "format", "checksum", "size", "newline", "half", "empty", "another's", "a field"],
)
def test_metadata_that_is_not_as_documented_is_a_problem(metadata: bytes, reason: Reason) -> None:
    (stored,) = read(FILES | {PLACE: metadata})
    assert stored.problem is reason and PLACE in stored.detail and not stored.parts


def test_the_reader_shares_no_code_with_what_writes() -> None:
    tree = ast.parse(Path(stored_reader.__file__).read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    standard = {name for name in imported if name.partition(".")[0] in sys.stdlib_module_names}
    assert imported - standard == {
        "barrier_tck.harness.oracle.evidence.stored_channels",
        "barrier_tck.harness.oracle.evidence.stored_heap",
        "barrier_tck.harness.record.reasons",
        "barrier_tck.harness.record.stored",
    }
    below = ast.walk(ast.parse(Path(stored_heap.__file__).read_text()))
    taken = [name.name for node in below if isinstance(node, ast.Import) for name in node.names]
    assert taken == ["msgspec", "pyarrow"]


CAPTURED = [("sums", {0: {b"k": b"v" * 100}, 3: {b"a": b"1", b"b": b"2"}})]


@pytest.mark.parametrize("compression", Compression)
def test_a_file_of_the_heap_tells_how_its_key_groups_are_compressed(compression: Compression) -> None:
    whole = b"".join(serialised(CAPTURED, compression))
    changes = [("sums", 0, {b"k": b"v" * 100}, [b"gone"])]
    increment = b"".join(serialised_increment(changes, 1, compression))
    assert packing_of(whole) == packing_of(increment) == (compression.value, "")


def test_key_groups_that_cannot_be_read_one_by_one_are_a_problem() -> None:
    whole = b"".join(serialised(CAPTURED, Compression.ZSTD))
    assert "one by one" in packing_of(whole[:8] + bytes(20) + whole[28:])[1]
    assert packing_of(whole[:-1])[1] == "its footer is not what the format says"
    assert packing_of(b"an SST file, or whatever") == ("", "")


# --- the judge ----------------------------------------------------------------------------------------------

PLAN = a_plan()
HALF = positions_at(PLAN, 0.5)
ROLES = {"source": Role.SOURCE, "totals": Role.STATEFUL, "sink": Role.SINK}
JOB = JobView(
    tuple(
        SubtaskView(name, (ROLES[name.partition("[")[0]],), vertex=name.partition("[")[0])
        for name in SUBTASKS
    )
)


def a_file(subtask: str, **changes: Any) -> StoredFile:
    return msgspec.structs.replace(StoredFile(f"chk-1/{subtask}", 9, "crc32:1", 9, "crc32:1"), **changes)


def parts() -> dict[str, StoredPart]:
    """Return the parts of a right checkpoint, by subtask."""
    splits = list(HALF)
    own = {
        f"source[{n}]": {split: HALF[split] for split in splits if split.split("-")[1] == str(n)}
        for n in (0, 1)
    }
    found = {}
    for subtask in SUBTASKS:
        files = (a_file(subtask),) if subtask.startswith("totals") else ()
        operator = "totals-1" if files else subtask.partition("[")[0]
        found[subtask] = StoredPart(subtask, (StoredOperator(operator, own.get(subtask, {}), files),))
    return found


def judge(
    stored: tuple[StoredPart, ...],
    retained: tuple[int, ...] = (1,),
    faults: tuple[FaultRecord, ...] = (),
    **changes: Any,
) -> Finding:
    checkpoint = StoredCheckpoint(1, stored, **changes)
    view = right_view(PLAN, 1, HALF)
    other = StateView("totals-1", "totals[1]", "totals", {'["k9"]': [1, 1]})
    view = msgspec.structs.replace(view, state=(*view.state, other))
    planned = (ScheduledFault(DamagePrimary("totals[0]"), At(1)),) if faults else ()
    context: TrialContext = replace(
        a_context(
            msgspec.structs.replace(PLAN, faults=planned),
            views=(view,),
            storage=StorageView(retained=retained, stored=(checkpoint,)),
        ),
        job=JOB,
        faults=faults,
    )
    return StoredCheckpoints(input_of(PLAN)).check(context)


def changed(subtask: str, part: StoredPart | None) -> tuple[StoredPart, ...]:
    """Return the right parts, but replace or remove one subtask's part."""
    return tuple(found for found in (parts() | {subtask: part}).values() if found is not None)


def test_a_whole_checkpoint_is_valid() -> None:
    finding = judge(tuple(parts().values()), widths={"source": 2, "totals": 2, "sink": 1})
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("STA-3",)), finding.examples
    assert finding.counts == {"checkpoints": 1, "files": 2, "wrong": 0}


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        ((1.0, 7.0), ""),
        ((None, None), ""),
        ((3.0, 7.0), "it was triggered at 3 ms, and that was at 2"),
        ((0.0, 7.0), "it was triggered at 0 ms, and that was at 2"),
        ((1.0, 2.0), "it was complete at 2 ms, and the last acknowledgement came at 7"),
        ((1.0, 9.0), "it was complete at 9 ms, and the last acknowledgement came at 7"),
        ((1.0, 0.0), "it was complete at 0 ms, and was triggered at 1"),
    ],
    ids=str,
)
def test_the_times_of_a_checkpoint_are_those_of_its_trigger_and_its_last_acknowledgement(
    times: tuple[float | None, float | None], wrong: str
) -> None:
    stored = StoredCheckpoint(1, tuple(parts().values()), triggered_at_ms=times[0], completed_at_ms=times[1])
    # The id is made durable for half a millisecond; the trigger is reported after that.
    book = Book().attempt(1).triggered(1, reserving_ms=0.5).acknowledged(1).completed(1)
    context = a_context(PLAN, book, storage=StorageView(retained=(1,), stored=(stored,)))
    again = frozenset({*context.capabilities, Capability.DETERMINISTIC_REPLAY.name})
    finding = StoredCheckpoints(input_of(PLAN)).check(replace(context, job=JOB, capabilities=again))
    assert finding.verdict is (Verdict.INVALID if wrong else Verdict.VALID), finding.examples
    assert any(wrong in example for example in finding.examples) or not wrong


def one_file(**changes: Any) -> StoredPart:
    return StoredPart("totals[0]", (StoredOperator("totals-1", files=(a_file("totals[0]", **changes),)),))


SPLIT = next(iter(HALF))
WRONG = {
    "a file is gone": (changed("totals[0]", one_file(found_size=None)), "cannot be read"),
    "a file has another size": (
        changed("totals[0]", one_file(found_size=8)),
        "has 8 bytes, but the metadata says 9",
    ),
    "a file has another checksum": (
        changed("totals[0]", one_file(checksum="crc32:2")),
        "the metadata says crc32:2",
    ),
    "no pointer to state": (
        changed("totals[1]", StoredPart("totals[1]", (StoredOperator("totals-1"),))),
        "operator totals-1 of totals[1] has state, but no file",
    ),
    "no operator at all": (changed("totals[1]", StoredPart("totals[1]")), "none of its operators is named"),
    "no part": (changed("sink[0]", None), "it has 0 parts of sink[0]"),
    "two parts": ((*parts().values(), parts()["sink[0]"]), "it has 2 parts of sink[0]"),
    "a stranger's part": (changed("x[0]", StoredPart("x[0]")), "a part of x[0], which is not in the job"),
    "no position": (
        changed("source[0]", StoredPart("source[0]", (StoredOperator("source"),))),
        f"no source subtask has a position of split {SPLIT}",
    ),
    "another position": (
        changed("source[0]", StoredPart("source[0]", (StoredOperator("source", {SPLIT: HALF[SPLIT] + 1}),))),
        f"is at {HALF[SPLIT] + 1} in storage, but the system showed {HALF[SPLIT]}",
    ),
    "a position elsewhere": (
        changed("sink[0]", StoredPart("sink[0]", (StoredOperator("sink", dict(HALF)),))),
        "is in the part of sink[0], which reads nothing",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_storage_is_found(name: str) -> None:
    stored, words = WRONG[name]
    finding = judge(stored)
    assert finding.verdict is Verdict.INVALID and finding.clauses == ("STA-3",)
    assert any(words in example for example in finding.examples), finding.examples


@pytest.mark.parametrize("changes", [{"codec": "zstd"}, {"misread": "no index"}], ids=str)
def test_key_groups_compressed_otherwise_than_configured_are_found(changes: dict[str, str]) -> None:
    finding = judge(changed("totals[0]", one_file(**changes)))
    assert (finding.verdict, finding.clauses) == (Verdict.INVALID, ("SNP-6",)), finding.examples
    assert judge(changed("totals[0]", one_file(codec="none"))).clauses == ("STA-3",)


def test_metadata_that_cannot_be_read_is_invalid() -> None:
    finding = judge((), problem=Reason.WRONG_CHECKSUM, detail="a bit")
    assert (
        finding.verdict is Verdict.INVALID and "its metadata is wrong_checksum: a bit" in finding.examples[0]
    )


def test_widths_that_do_not_fit_the_parts_are_invalid() -> None:
    finding = judge(tuple(parts().values()), widths={"totals": 3})
    assert "it says that totals had 3 subtasks, but has parts of 2" in finding.examples[0]


def test_the_retained_checkpoints_that_the_system_reports_are_those_in_storage() -> None:
    for retained in ((), (1, 2), (2,)):
        assert judge(tuple(parts().values()), retained=retained).verdict is Verdict.INVALID


def test_a_file_that_the_trial_damaged_proves_nothing() -> None:
    stored = changed("totals[0]", one_file(found_checksum="crc32:2"))
    hit = FaultRecord(
        0, "damage", "damage_primary", "at 1 ms", None, "fired", 1.0, files=("chk-1/totals[0]",)
    )
    assert judge(stored, faults=(hit,)).verdict is Verdict.VALID
    other = msgspec.structs.replace(hit, files=("chk-1/totals[1]",))
    assert judge(stored, faults=(other,)).verdict is Verdict.INVALID
    packed = judge(changed("totals[0]", one_file(codec="zstd")), faults=(hit,))
    assert packed.clauses == ("STA-3",), "how a damaged file is compressed is not looked at"


def test_nothing_is_said_where_nobody_looked() -> None:
    finding = StoredCheckpoints(input_of(PLAN)).check(a_context(PLAN, storage=StorageView(retained=(1,))))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_only_this_reader_finds_a_mistake_that_the_systems_writer_and_reader_share(tmp_path: Path) -> None:
    record = run_trial(next(planted_bugs()["MD-03"].plans("simulated")), ReferenceSimulated(), tmp_path)
    assert [finding.checker for finding in record.findings if finding.verdict is not Verdict.VALID] == [
        "stored-checkpoints"
    ]
