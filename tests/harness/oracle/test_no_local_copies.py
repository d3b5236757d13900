"""Without local recovery no copy of state lies on a host; grain: literal histories, and simulated trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.checkers.no_local_copies import NoLocalCopies
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import NamedFile, SnapshotView
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated import hosts
from barrier_tck.harness.reference.simulated.file_system import SimulatedFileSystem
from barrier_tck.harness.reference.simulated.hosts import LocalDisk
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.reference_impl.storage.copy_memory import MemoryFileSystem
from barrier_tck.reference_impl.storage.filesystem import FileSystem
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


@pytest.mark.parametrize("medium", ["disk", "memory"])
@pytest.mark.parametrize("mutant", [None, "LO-16"])
def test_disks_and_memory_are_looked_at_where_nothing_is_to_be_copied(
    medium: Any, mutant: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LO-16 copies state to the place of the executors, although local recovery is off, and reports nothing."""
    listed: dict[type[FileSystem], None] = {}

    class Listed(LocalDisk):
        def list_files(self, path: str) -> list[str]:
            listed[type(self.inner)] = None
            return super().list_files(path)

    monkeypatch.setattr(hosts, "LocalDisk", Listed)
    plan = msgspec.structs.replace(
        a_plan(checkpoints=CheckpointPlan(local_copies=medium)),
        local_recovery=None,
        mutant=mutant,
        faults=(ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
    )
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    (finding,) = (one for one in record.findings if one.checker == NoLocalCopies.name)
    assert list(listed) == [MemoryFileSystem if medium == "memory" else SimulatedFileSystem]
    assert finding.verdict is (Verdict.INVALID if mutant else Verdict.VALID), finding.summary
    assert (finding.counts["copies"] > 0) is bool(mutant)
    assert finding.clauses == ("LOC-1",)
