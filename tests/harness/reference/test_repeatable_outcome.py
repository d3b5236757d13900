"""What a trial leaves names neither a directory of its run nor checksums that differ from run to run."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.history import End, History, SnapshotView, StateView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.simulated.repeatable_outcome import repeatable
from barrier_tck.harness.system.system_under_test import TrialOutcome

ONE, OTHER = "crc32:0badcafe", "crc32:deadbeef"


def outcome(detail: str, *lines: str, rows: tuple[dict[str, str], ...] = ()) -> TrialOutcome:
    return TrialOutcome(History((), End.FAILED, Reason.WRONG_CHECKSUM, detail, rows), trace=lines)


def test_equal_checksums_stay_equal_and_different_ones_different() -> None:
    found = repeatable(outcome(f"{OTHER}, expected {ONE}", ONE, OTHER), None)
    assert found == outcome("content:1, expected content:2", "content:2", "content:1")


def test_records_of_the_job_stay_as_they_are() -> None:
    rows = ({"a": OTHER},)
    history = outcome("nothing").history
    entries = {'["a"]': [OTHER]}
    view = SnapshotView(
        1, 0, {}, (StateView("totals", "totals[0]", "sum", entries),), reached_sinks=rows, in_flight=()
    )
    left = TrialOutcome(msgspec.structs.replace(history, output=rows, checkpoints=(view,)), trace=("step 1",))
    assert repeatable(left, None) is left


def test_the_directory_of_the_run_is_called_work_wherever_it_is_named() -> None:
    place = "/tmp/barrier-tck-work-world-7-aa"
    found = repeatable(outcome(f"cannot read {place}/a: no {place}/a", f"failed {place}/b"), place)
    assert found == outcome("cannot read work/a: no work/a", "failed work/b")


def test_what_names_neither_is_left_as_it_is() -> None:
    left = outcome("nothing", "step 1")
    assert repeatable(left, "/tmp/x") is left
