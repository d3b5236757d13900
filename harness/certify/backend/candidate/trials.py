"""Trials of the reference runtime with a candidate as its state backend; for the candidate's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.candidate.watched_backend import Watch
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.state.backend import StateBackend

_open: dict[str, SystemUnderTest] = {}
"""Open systems; they are kept, so that a cluster is not started for each trial."""
_watch = Watch()


def judge_trial(request: wire.TrialRequest, make: Callable[[], StateBackend]) -> wire.Judged:
    """Run a plan with the candidate's backend and judge it with the standard checkers.

    If the trial is invalid, and a store was seen to break a promise of its own in it, that promise is named first. On
    Spark stores are in other processes, and the checkers' clause stands alone.
    """
    plan = msgspec.json.decode(request.plan, type=TrialPlan)
    directory = Path(request.directory)
    directory.mkdir(parents=True, exist_ok=True)
    _watch.begin()
    record = execute(plan, _system(request.system, make), directory).record
    broken = next((finding.broken for finding in record.findings if finding.broken), "")
    problems = [
        f"{finding.checker} ({finding.named_clauses}): {finding.summary}"
        for finding in record.findings
        if finding.verdict is not Verdict.VALID
    ]
    if broken and _watch.broken:
        broken = _watch.broken
        problems.insert(0, f"the backend ({broken}): {_watch.sentence}")
    shown = dict.fromkeys(
        clause
        for finding in record.findings
        if finding.verdict is Verdict.VALID
        for clause in finding.clauses
    )
    return wire.Judged(
        *(record.verdict.value, record.faults_fired, record.recoveries),
        problems=tuple(problems[:5]),
        shown=tuple(shown),
        broken=broken,
    )


def close_systems() -> None:
    """Close every system that a trial opened."""
    while _open:
        _open.popitem()[1].close()


def _system(name: str, make: Callable[[], StateBackend]) -> SystemUnderTest:
    if name not in _open:
        if name == "reference-spark":
            from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark

            spark = ReferenceSpark(state_backend=make)
            spark.prepare()
            _open[name] = spark
        else:
            from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated

            _open[name] = ReferenceSimulated(state_backend=_watch.watched(make))
    return _open[name]
