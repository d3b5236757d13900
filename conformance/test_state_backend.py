"""What a state backend must do at the levels contract and crash: one test for each property of ``barrier-tck certify``.

``--state-backend MODULE:NAME`` chooses the backend; it runs in a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import check
from barrier_tck.harness.certify.engine.check import NOT_DRAWN, NOT_REACHED, NOT_SHOWN
from barrier_tck.harness.certify.engine.levels import seed_of
from barrier_tck.harness.pytest_plugin import BackendUnderTest

SECONDS_MAX = 120.0
"""A property that takes longer is UNKNOWN, and its test fails."""


def _assert_holds(name: str, backend: BackendUnderTest, directory: Path) -> None:
    """Search for a violation of a property; a failure shows the smallest sequence of calls and how to repeat it."""
    backend_property = next(entry for entry in PROPERTIES if entry.name == name)
    pool = Pool(backend.target, total_s=SECONDS_MAX)
    try:
        seed = seed_of(backend.seed, name)
        outcome, failure = check(backend_property, pool, seed, backend.scale, declared=backend.capabilities)
    finally:
        pool.close()
    if outcome.status == "skipped":
        pytest.skip(outcome.reason)
    # Few examples may miss a kind of step. Only a certificate requires that each was drawn and shown.
    too_few = (
        backend.scale < 1
        and outcome.status == "unknown"
        and outcome.reason.startswith((NOT_DRAWN, NOT_SHOWN, NOT_REACHED))
    )
    if outcome.status == "passed" or too_few:
        return
    broken = outcome.violated or ", ".join(backend_property.clauses)
    lines = [f"{backend.target}: {name} ({broken}) {outcome.status}: {outcome.reason}"]
    lines += [f"  {number}. {step}" for number, step in enumerate(outcome.sequence, 1)]
    if failure is not None:
        file = directory / f"{name}.json"
        file.write_bytes(msgspec.json.encode(failure))
        lines.append(f"repeat: barrier-tck certify {backend.target} --replay {file}")
    pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.long
@pytest.mark.clause("BCK-1")
def test_reads_see_the_writes(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("reads-see-the-writes", state_backend, tmp_path)


@pytest.mark.clause("BCK-1")
def test_reads_in_every_form(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("reads-in-every-form", state_backend, tmp_path)


@pytest.mark.clause("BCK-1", "BCK-2")
def test_what_differs_stays_apart(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("what-differs-stays-apart", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-1", "BCK-2")
def test_sizes_up_the_ladder(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("sizes-up-the-ladder", state_backend, tmp_path)


@pytest.mark.clause("SNP-1")
def test_snapshots_are_isolated(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("snapshots-are-isolated", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1")
def test_writers_run_freely(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("writers-run-freely", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_a_restore_is_exact(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-restore-is-exact", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_handles_name_all_that_is_needed(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("handles-name-all-that-is-needed", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_a_restored_store_starts_anew(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-restored-store-starts-anew", state_backend, tmp_path)


@pytest.mark.clause("SNP-1", "BCK-2")
def test_hints_change_no_content(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("hints-change-no-content", state_backend, tmp_path)


@pytest.mark.clause("BCK-6")
def test_the_same_files_without_own_threads(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("the-same-files-without-own-threads", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "BCK-2")
def test_stores_go_on_from_any_snapshot(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("stores-go-on-from-any-snapshot", state_backend, tmp_path)


@pytest.mark.clause("SNP-1", "BCK-2")
def test_any_number_of_snapshots(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("any-number-of-snapshots", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "BCK-2")
def test_many_deletes_between_snapshots(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("many-deletes-between-snapshots", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_key_groups_move(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("key-groups-move", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_key_groups_part_and_meet(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("key-groups-part-and-meet", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_redistributed_stores_go_on(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("redistributed-stores-go-on", state_backend, tmp_path)


@pytest.mark.clause("BCK-4")
def test_what_is_no_snapshot_is_refused(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("what-is-no-snapshot-is-refused", state_backend, tmp_path)


@pytest.mark.clause("BCK-5")
def test_a_refused_restore_keeps_nothing_open(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-refused-restore-keeps-nothing-open", state_backend, tmp_path)


@pytest.mark.clause("BCK-1", "SNP-2")
def test_a_closed_store_refuses_calls(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-closed-store-refuses-calls", state_backend, tmp_path)


@pytest.mark.clause("BCK-1", "BCK-2")
def test_stores_side_by_side_stay_apart(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("stores-side-by-side-stay-apart", state_backend, tmp_path)


@pytest.mark.clause("BCK-2", "BCK-3")
def test_a_failed_checkpoint_is_forgotten(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-failed-checkpoint-is-forgotten", state_backend, tmp_path)


@pytest.mark.clause("BCK-3")
def test_notifications_come_in_any_order(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("notifications-come-in-any-order", state_backend, tmp_path)


@pytest.mark.clause("SNP-1", "BCK-2")
def test_words_about_others_change_no_snapshot(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("words-about-others-change-no-snapshot", state_backend, tmp_path)


@pytest.mark.clause("SNP-1", "BCK-2")
def test_large_batches_change_no_snapshot(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("large-batches-change-no-snapshot", state_backend, tmp_path)


@pytest.mark.clause("SNP-1", "BCK-2")
def test_increments_of_large_batches(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-of-large-batches", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_increments_hold_what_comes_again(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-hold-what-comes-again", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_increments_pass_over_what_is_not_confirmed(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-pass-over-what-is-not-confirmed", state_backend, tmp_path)


@pytest.mark.clause("SNP-2")
def test_a_cancelled_snapshot_stops(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-cancelled-snapshot-stops", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "SNP-2")
def test_any_thread_runs_and_cancels(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("any-thread-runs-and-cancels", state_backend, tmp_path)


@pytest.mark.clause("SNP-2", "BCK-5")
def test_nothing_is_left_behind(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("nothing-is-left-behind", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-5")
def test_snapshots_keep_nothing(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("snapshots-keep-nothing", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-5")
def test_dropped_snapshots_keep_nothing(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("dropped-snapshots-keep-nothing", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_all_at_once(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("all-at-once", state_backend, tmp_path)


@pytest.mark.clause("SNP-1")
def test_unfinished_snapshots_end_in_any_order(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("unfinished-snapshots-end-in-any-order", state_backend, tmp_path)


@pytest.mark.clause("BCK-6")
def test_snapshots_are_asynchronous(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("snapshots-are-asynchronous", state_backend, tmp_path)


@pytest.mark.clause("BCK-6")
def test_scans_are_ordered(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("scans-are-ordered", state_backend, tmp_path)


@pytest.mark.clause("BCK-6")
def test_files_stay_in_the_working_directory(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("files-stay-in-the-working-directory", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-6")
def test_files_are_deterministic(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("files-are-deterministic", state_backend, tmp_path)


@pytest.mark.clause("BCK-6")
def test_increments_build_on_what_is_confirmed(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-build-on-what-is-confirmed", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_increments_go_on_after_many_failures(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-go-on-after-many-failures", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_increments_in_a_long_chain(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-in-a-long-chain", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_increments_hold_many_deletes(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-hold-many-deletes", state_backend, tmp_path)


@pytest.mark.clause("BCK-2")
def test_increments_part_and_meet(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-part-and-meet", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_increments_in_any_order(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-in-any-order", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "BCK-2")
def test_increments_end_in_any_order(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("increments-end-in-any-order", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2")
def test_killed_anywhere(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("killed-anywhere", state_backend, tmp_path)


@pytest.mark.clause("BCK-3")
def test_a_failed_write_fails_the_snapshot(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-failed-write-fails-the-snapshot", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "BCK-3")
def test_snapshots_after_a_failed_one_are_isolated(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("snapshots-after-a-failed-one-are-isolated", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-5")
def test_a_failed_snapshot_keeps_nothing(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("a-failed-snapshot-keeps-nothing", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("SNP-1", "BCK-2")
def test_killed_amid_many_snapshots(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("killed-amid-many-snapshots", state_backend, tmp_path)


@pytest.mark.long
@pytest.mark.clause("BCK-2", "BCK-3")
def test_crashes_and_failures_mixed(state_backend: BackendUnderTest, tmp_path: Path) -> None:
    _assert_holds("crashes-and-failures-mixed", state_backend, tmp_path)
