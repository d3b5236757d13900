"""The reference runtime on a real cluster: planted bugs are caught there too, and a bound ends in STUCK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from faults.targets import TargetGone
from harness.oracle.history import End
from harness.oracle.verdict import Verdict
from harness.suts.mutants import MUTANTS
from harness.suts.reference_spark import ReferenceSpark
from harness.suts.spark_targets import SignalledProcess
from harness.trial import run_trial


@pytest.fixture(scope="module")
def system() -> Iterator[ReferenceSpark]:
    opened = ReferenceSpark()
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.spark
@pytest.mark.parametrize("name", ["AL-01", "SO-02", "SI-04"])
def test_a_planted_bug_is_caught_on_spark(system: ReferenceSpark, tmp_path: Path, name: str) -> None:
    for plan in MUTANTS[name].plans("spark"):
        record = run_trial(plan, system, tmp_path)
        if record.verdict is Verdict.INVALID:
            return
    pytest.fail(f"{name} survived on Spark; the last trial was {record.verdict.value}: {record.findings}")


@pytest.mark.spark
def test_a_job_that_does_not_end_in_time_is_stuck_and_says_what_it_waits_for(
    system: ReferenceSpark, tmp_path: Path
) -> None:
    plan = next(MUTANTS["AL-01"].plans("spark"))
    slow = msgspec.structs.replace(plan.workload, records_per_second=10)
    plan = msgspec.structs.replace(
        plan, mutant=None, workload=slow, limits=msgspec.structs.replace(plan.limits, wall_s=6)
    )
    record = run_trial(plan, system, tmp_path)
    assert record.end == End.STUCK.value
    assert record.verdict is Verdict.INVALID
    assert any("input not consumed" in f.summary for f in record.findings if f.checker == "progress")


def test_a_killed_process_is_shown_to_be_dead_and_cannot_be_killed_twice() -> None:
    kills: list[int] = []
    child = psutil.Popen(["sleep", "60"])
    target = SignalledProcess(child.pid, "a sleeper", lambda: kills.append(1))
    assert not target.is_dead()
    target.kill()
    assert target.is_dead()
    assert kills == [1]
    with pytest.raises(TargetGone, match="a sleeper"):
        target.kill()
    child.wait()


def test_killing_an_executor_takes_what_it_started_with_it() -> None:
    parent = psutil.Popen(["sh", "-c", "sleep 60 & wait"])
    while not (children := parent.children()):
        assert parent.is_running()
    SignalledProcess(parent.pid, "an executor", lambda: None, with_children=True).kill()
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    parent.wait()
