"""Which copies lie on hosts is read from the names of files, also while others delete them."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.record.operations import CopySeen
from barrier_tck.harness.reference.seen_copies import copies_among
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.reference_impl.storage.local_copies import LOCAL, local_root

OF_TOTALS = CopySeen("host-1", "totals[1]", 7, 2)


def test_a_copy_is_named_once_whatever_files_it_has_and_files_that_are_being_written_are_none() -> None:
    found = copies_among(
        [
            ("host-1", "totals-1/chk-7-a2/_manifest"),
            ("host-1", "totals-1/chk-7-a2/totals/state"),
            ("host-1", "totals-1/incoming/a2-7-state"),
            ("host-2", "a-b-0/chk-12-a1/x"),
        ]
    )
    assert found == (OF_TOTALS, CopySeen("host-2", "a-b[0]", 12, 1))


def test_the_disks_of_workers_show_the_copies_of_one_job(tmp_path: Path) -> None:
    disks = JobDisks(tmp_path, "host-{}".format, "job", tmp_path / "files")
    assert disks.copies() == ()
    base = tmp_path / "worker-1" / "local" / "spark" / "executor"
    for job, name in (("job", "totals-1/chk-7-a2/totals/state"), ("other", "totals-0/chk-1-a1/state")):
        (base / LOCAL).mkdir(parents=True, exist_ok=True)
        file = local_root(base, job, str(tmp_path / "files")) / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x")
    assert disks.copies() == (OF_TOTALS,)
