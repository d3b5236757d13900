"""A plan's compression reaches the snapshots of its trial (SNP-6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute


@pytest.mark.parametrize(("backend", "smaller"), [("heap", True), ("rocksdb", False)])
def test_compression_makes_the_parts_of_heap_checkpoints_smaller(
    tmp_path: Path, backend: str, smaller: bool
) -> None:
    """RocksDB leaves its files as they are; their sizes vary by a few bytes from run to run."""
    plain, packed = (written(tmp_path, backend, how) for how in ("none", "zstd"))
    assert (packed < 0.8 * plain) if smaller else (abs(packed - plain) < 0.05 * plain)


def written(directory: Path, backend: str, compression: str) -> int:
    """Return the bytes that all checkpoints of a trial wrote."""
    plan = TrialPlan(
        workload=WorkloadPlan("keyed-totals", batches=30, keys=300, batch_records=20),
        checkpoints=CheckpointPlan(interval_ms=30, compression=compression),  # type: ignore[arg-type]
        state_backend=backend,
    )
    record = execute(plan, ReferenceSimulated(), directory).record
    assert record.verdict is Verdict.VALID
    assert record.checkpoints_completed >= 2
    return sum(part.bytes_written for part in record.snapshots)
