"""Benchmarks whose runs are trials of the suite: each must be VALID, and the checkpoints amid the run count."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import CheckpointRecord, SnapshotRecord, TrialRecord, TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import filled

SYSTEMS = ("reference-simulated", "reference-spark")
"""The worlds in which such a benchmark can be run."""

WINDOW = (0.15, 0.6)
"""The part of a run whose checkpoints count, from when all subtasks run: the queues are full, and the sources have not
ended."""


@contextmanager
def opened_with_scratch(name: str) -> Iterator[tuple[SystemUnderTest, Path]]:
    """Open a system and a directory for its trials, and clear both away afterwards."""
    system = open_system(name)
    with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
        try:
            yield system, Path(directory)
        finally:
            close = getattr(system, "close", None)
            if close is not None:
                close()


def valid_trial(plan: TrialPlan, system: SystemUnderTest, directory: Path) -> TrialResult:
    """Run a plan; raises RuntimeError if the trial is not VALID."""
    result = execute(plan, system, directory, checkers_for(filled(plan), system.capabilities))
    if result.record.verdict is not Verdict.VALID:
        raise RuntimeError(f"{plan.note}: {result.record.verdict.value}: {result.record.findings}")
    return result


def counted(record: TrialRecord) -> list[tuple[CheckpointRecord, list[SnapshotRecord]]]:
    """Return the checkpoints that count, each with the parts of all subtasks; raises RuntimeError if none does."""
    running_ms = record.attempts[0].running_at_ms or 0.0
    first_ms, last_ms = (running_ms + share * (record.duration_ms - running_ms) for share in WINDOW)
    chosen = [
        (checkpoint, [part for part in record.snapshots if part.checkpoint == checkpoint.checkpoint])
        for checkpoint in record.checkpoints
        if checkpoint.status == "completed" and first_ms <= checkpoint.triggered_at_ms <= last_ms
    ]
    if not chosen:
        raise RuntimeError(f"{record.plan.note}: no checkpoint between {first_ms} and {last_ms} ms")
    return chosen


def text_table(points: Sequence[dict[str, Any]], columns: Iterable[str]) -> str:
    """Return some columns of a benchmark's points as text, numbers to the right."""
    names = list(columns)
    cells = [
        names,
        *(
            [f"{point[name]:,}" if _is_number(point[name]) else str(point[name]) for name in names]
            for point in points
        ),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    right = [bool(points) and _is_number(points[0][name]) for name in names]
    lines = (
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
