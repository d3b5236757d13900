"""Without local recovery no copy of state lies on a host; grain: literal histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.no_local_copies import NoLocalCopies
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.verdict import Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

REPORT = ops.LocalCopyReported(kept=True, confirmed=None, held=(1,), host="host-0")


@pytest.mark.parametrize(
    ("files", "local", "verdict", "clauses"),
    [
        ((), None, Verdict.VALID, ("LOC-1",)),
        (None, None, Verdict.VALID, ()),
        (("host-0:totals-0/chk-1-a1/state",), None, Verdict.INVALID, ("LOC-1",)),
        ((), REPORT, Verdict.INVALID, ("LOC-1",)),
    ],
    ids=["nothing there", "nobody looked", "a file", "a report"],
)
def test_what_lies_on_hosts_counts_and_what_is_reported(
    files: Any, local: Any, verdict: Verdict, clauses: tuple[str, ...]
) -> None:
    book = Book().attempt(1).tell(ops.Acknowledged(1, 1, "totals[0]", local=local))
    context = a_context(a_plan(), book)
    history = msgspec.structs.replace(context.history, local_files=files)
    finding = NoLocalCopies().check(replace(context, history=history))
    assert (finding.verdict, finding.clauses) == (verdict, clauses)


@pytest.mark.parametrize("stores", [True, False])
def test_a_job_that_stores_no_state_has_nothing_that_could_be_copied(stores: bool) -> None:
    files: dict[str, tuple[NamedFile, ...]] = (
        {"totals[0]": (NamedFile("chk-1/state", 9, "crc32:1"),)} if stores else {}
    )
    context = a_context(
        a_plan(), Book().attempt(1).checkpoint(1), views=(SnapshotView(1, 1, {}, files=files),)
    )
    history = msgspec.structs.replace(context.history, local_files=())
    assert NoLocalCopies().check(replace(context, history=history)).clauses == (("LOC-1",) if stores else ())
