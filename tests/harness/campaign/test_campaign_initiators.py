"""A campaign of Chandy-Lamport in which nobody but the sources began a snapshot has not tested CHL-1."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checkers.consistent_cut import INITIATED_MIN
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial


def summary(directory: Path, **checkpoints: object) -> TrialSummary:
    plan = TrialPlan(
        workload=WorkloadPlan(batches=12, records_per_second=600),
        checkpoints=CheckpointPlan(**checkpoints),  # type: ignore[arg-type]
    )
    record = run_trial(plan, ReferenceSimulated(), directory)
    assert record.verdict is Verdict.VALID, record.findings
    return TrialSummary(0, record.verdict, findings=record.findings)


def seen(*trials: TrialSummary) -> Finding | None:
    counted = AllSometimes().each["sometimes-initiated"]
    for trial in trials:
        counted.add(trial)
    return counted.finding()


def test_some_snapshots_must_be_begun_by_chosen_processes(tmp_path: Path) -> None:
    sources = summary(tmp_path / "1", protocol="chandy_lamport")
    chosen = summary(tmp_path / "2", protocol="chandy_lamport", initiators=(("source[0]", "source[1]"),))
    barriers = summary(tmp_path / "3")
    few = [sources] * (INITIATED_MIN - 1)
    assert seen(*few, barriers) is None, "too few to say anything"
    nothing = seen(*few, sources)
    assert nothing is not None and nothing.verdict is Verdict.UNKNOWN and nothing.clauses == ("CHL-1",)
    shown = seen(*few, chosen)
    assert shown is not None and shown.verdict is Verdict.VALID
    assert shown.counts["with_chosen"] == 1 and shown.counts["begun_anywhere"] > 0


def test_initiators_are_drawn_that_are_no_sources() -> None:
    drawn = [
        name
        for plan in draw_plans(3, 30, profile_named("chandy-lamport"))
        for group in plan.checkpoints.initiators
        for name in group
        if name.split("[")[0] not in {vertex.name for vertex in plan.job.sources}
    ]
    assert len(drawn) > 5
