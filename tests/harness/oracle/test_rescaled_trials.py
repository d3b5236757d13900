"""Trials in which a job is stopped and goes on with other widths are judged job by job."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checkers.stop_with_savepoint import StopWithSavepoint
from barrier_tck.harness.oracle.evidence.rescales import NARROWER, RESCALED, WIDER
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointCompleted, JobStopped, Operation
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.kills import SHORT

PLANS = Path(__file__).parents[2] / "plans"
PLAN = filled(
    msgspec.structs.replace(
        SHORT,
        workload=WorkloadPlan("keyed-totals", batches=80, records_per_second=600),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=10),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=4),
        savepoints=tuple(SavepointPlan(after_checkpoints=number, stop=True) for number in (1, 6)),
    )
)


@cache
def drawn(seed: int) -> tuple[TrialPlan, ...]:
    """Plans with rescales, drawn once for all tests that look at them."""
    return draw_plans(seed, 120, profile_named("rescale"))


def rescaled(*widths: dict[str, int]) -> TrialPlan:
    return msgspec.structs.replace(PLAN, rescales=tuple(map(RescalePlan, widths)))


@pytest.mark.parametrize("seed", range(2))
def test_a_job_that_goes_on_wider_and_then_narrower_is_valid_and_was_rescaled(
    seed: int, tmp_path: Path
) -> None:
    plan = msgspec.structs.replace(rescaled({"totals": 5, "source": 3}, {"totals": 1, "sink": 3}), seed=seed)
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    parts = [{one.subtask for one in record.snapshots if one.attempt == a.attempt} for a in record.attempts]
    assert ["totals[4]" in taken for taken in parts] == [False, True, False]
    seen = next(finding for finding in record.findings if finding.checker == StopWithSavepoint.name).counts
    assert {name: seen[name] for name in (RESCALED, NARROWER, WIDER)} == {RESCALED: 2, NARROWER: 1, WIDER: 2}


@pytest.mark.parametrize(
    ("widths", "match"),
    [
        ({"nobody": 2}, "no vertex 'nobody'"),
        ({"totals": 17}, "above deployment.max_parallelism"),
    ],
)
def test_a_plan_that_rescales_what_cannot_be_rescaled_is_refused(widths: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        rescaled(widths)


def test_records_that_come_early_are_allowed_where_the_wider_job_lets_them(tmp_path: Path) -> None:
    """Before the stop each sink reads one channel, and waits for nobody; afterwards it reads several (ALO-3)."""
    name = "wider-vertex-before-a-sink-in-at-least-once-mode.json"
    record = run_trial(read_plan(PLANS / name), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings


def test_what_is_chained_to_a_source_has_seen_no_end_while_its_split_has_more(tmp_path: Path) -> None:
    """The other split of the vertex is empty. Subtasks have splits by number, and key groups by range."""
    name = "a-split-that-is-empty-before-two-changes-of-width.json"
    record = run_trial(read_plan(PLANS / name), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.long
@pytest.mark.parametrize("claim", [False, True])
def test_a_killed_process_with_state_on_disk_may_tell_of_its_input_at_the_end(
    claim: bool, tmp_path: Path
) -> None:
    stop = SavepointPlan(after_checkpoints=1, stop=True, claim=claim)
    killed = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=1))
    plan = msgspec.structs.replace(PLAN, state_backend="rocksdb", savepoints=(stop,), faults=(killed,))
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings


# --- chains -------------------------------------------------------------------------------------------------


def links_of(operations: Iterable[Recorded[Operation]]) -> list[str]:
    """Return what happened in a trial, as far as it belongs to a chain, without repetitions."""
    links: list[str] = []
    stopped = False
    for line in operations:
        match line.operation:
            case JobStopped():
                stopped = True
            case AttemptStarted(restored_checkpoint=int()):
                links.append("rescaled" if stopped else "recovered")
                stopped = False
            case CheckpointCompleted():
                links.append("checkpoint")
            case _:
                continue
    return [link for link, before in zip(links, ["", *links], strict=False) if link != before]


@pytest.mark.long
def test_many_drawn_plans_are_chains_of_failures_stops_and_failures() -> None:
    chains = [plan for plan in drawn(2) if is_chain(plan)]
    assert len(chains) >= 12
    assert {len(plan.savepoints) for plan in chains} == {1, 2}
    assert all(len(plan.faults) == len(plan.savepoints) + 1 for plan in chains)
    assert {plan.checkpoints.mode for plan in chains} == set(profile_named("rescale").checkpoints.modes)


def is_chain(plan: TrialPlan) -> bool:
    triggers = [scheduled.trigger for scheduled in plan.faults]
    first = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=1)
    deadly = all(scheduled.fault.ends is not None for scheduled in plan.faults)
    return deadly and triggers[:1] == [first] and len(triggers) == len(plan.savepoints) + 1 > 1


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.long)])
def test_drawn_chains_recover_checkpoint_rescale_and_recover_again(seed: int, tmp_path: Path) -> None:
    chains = [plan for plan in drawn(seed) if is_chain(plan)][:4]
    assert chains
    for number, plan in enumerate(chains):
        directory = tmp_path / str(number)
        directory.mkdir()
        trial = execute(plan, ReferenceSimulated(), directory)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        told = " ".join(links_of(trial.history.operations))
        assert "recovered checkpoint rescaled" in told, told
        assert "rescaled recovered" in told or "rescaled checkpoint recovered" in told, told


@pytest.mark.long
def test_the_state_of_joins_is_redistributed_in_drawn_plans() -> None:
    joins = [plan for plan in drawn(3) if plan.workload.name == "weather"]
    assert any("met" in one.widths for plan in joins for one in plan.rescales)


# --- how the widths change ----------------------------------------------------------------------------------


def changes(plan: TrialPlan) -> Iterable[str]:
    """Yield how vertices change from one job of a plan to the next; the same may come several times."""
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    for number, (before, after) in enumerate(itertools.pairwise(jobs)):
        for vertex in before.vertices:
            was, width = vertex.parallelism, after.vertex(vertex.name).parallelism
            if width != was:
                yield NARROWER if width < was else WIDER
                yield from ["to one"] * (width == 1)
                yield from ["to the maximum"] * (width == plan.deployment.max_parallelism)
                yield from ["back"] * any(
                    job.vertex(vertex.name).parallelism == width for job in jobs[:number]
                )


@pytest.mark.long
@pytest.mark.parametrize(
    ("plans", "least"),
    [
        (lambda: drawn(6), {NARROWER: 24, WIDER: 40, "back": 5, "to one": 9, "to the maximum": 10}),
        (
            lambda: draw_plans(3, 60, profile_named("spark-rescale")),
            {NARROWER: 12, WIDER: 20, "back": 7, "to one": 8},
        ),
    ],
    ids=["rescale", "spark-rescale"],
)
def test_drawn_jobs_go_on_narrower_and_wider_and_back_and_to_one_and_to_the_maximum(
    plans: Callable[[], Sequence[TrialPlan]], least: dict[str, int]
) -> None:
    found = Counter(how for plan in plans() for how in {*changes(plan)})
    assert {how: found[how] for how in least if found[how] < least[how]} == {}, found


def a_trial(narrower: int, wider: int, rescaled: int = 1, note: str = "") -> TrialSummary:
    counts = {RESCALED: rescaled, NARROWER: narrower, WIDER: wider}
    found = Finding(StopWithSavepoint.name, (), Verdict.VALID, "", counts)
    return TrialSummary(0, Verdict.VALID, note=note, findings=(found,))


def judged(*trials: TrialSummary) -> Finding | None:
    seen = AllSometimes().each["sometimes-rescaled"]
    for trial in trials:
        seen.add(trial)
    return seen.finding()


def test_a_campaign_that_hardly_ever_rescales_to_narrower_jobs_or_to_wider_ones_has_not_tested_it() -> None:
    both, wider, narrower = a_trial(1, 2), a_trial(0, 1), a_trial(1, 0)
    assert judged(*[a_trial(0, 0, rescaled=0)] * 100) is None, "no job was rescaled"
    assert judged(*[a_trial(0, 1, note="as somebody wants it")] * 100) is None
    assert judged(*[wider] * 60) is None, "none became narrower, and that may be chance: nothing is shown"
    found = judged(*[wider] * 100)
    assert found is not None and found.verdict is Verdict.UNKNOWN and "narrower in 0 only" in found.summary
    found = judged(*[narrower] * 100, both)
    assert found is not None and found.verdict is Verdict.UNKNOWN and "wider in 1 only" in found.summary
    found = judged(*[wider] * 88, *[both] * 12)
    assert found is not None and found.verdict is Verdict.VALID and found.clauses == ("RSC-2",)
    assert found.counts == {"trials": 100, NARROWER: 12, WIDER: 100}


@pytest.mark.parametrize(
    ("seen_in", "trials", "missed"),
    [
        (0, 72, False),
        (0, 73, True),
        (2, 23, False),
        (1, 100, True),
        (0, 1, False),
        (119_500, 1_000_000, False),
    ],
)
def test_something_is_missed_only_where_chance_hardly_explains_it(
    seen_in: int, trials: int, missed: bool
) -> None:
    [rescaled] = StopWithSavepoint.sometimes
    assert rescaled.usual == 0.12
    assert rescaled.is_missed(seen_in, trials) is missed


@pytest.mark.long
def test_a_job_that_was_to_be_rescaled_and_never_ran_does_not_count(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(
        rescaled({"totals": 5}, {"totals": 1}), workload=WorkloadPlan("keyed-totals", batches=1)
    )
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    counts = next(finding for finding in record.findings if finding.checker == StopWithSavepoint.name).counts
    assert counts["stopped"] == counts[RESCALED] == 0
