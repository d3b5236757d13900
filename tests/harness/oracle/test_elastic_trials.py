"""Trials of elastic jobs: which jobs a history tells of, and what the checker says about their parallelism."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.narrowed_jobs import LOST_FOR_GOOD, NARROWED, NarrowedJobs
from barrier_tck.harness.oracle.jobs_of_trial import jobs_of_trial
from barrier_tck.harness.plan.job_graph import SINK, JobPlan
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    RescalePlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.records import FaultRecord, TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

PLANS = Path(__file__).parents[2] / "plans"
OFTEN_LATE = replace(profile_named("rescale").elastic, replaced_late_per_mille=1_000)
LOSS = ScheduledFault(LoseExecutor("sink[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED))
PLAN = a_plan(
    job=JobPlan("", {"source": 2, "totals": 4, "sink": 1}),
    deployment=DeploymentPlan(executors=3, slots_per_executor=3, elastic_wait_ms=10),
    faults=(LOSS,),
)
FIRED = FaultRecord(0, LOSS.fault.description(), "lose_executor", "after it", "checkpoint_completed", "fired")


def the_job(source: int, totals: int, sink: int = 1) -> dict[str, int]:
    return {"source": source, "totals": totals, "sink": sink}


def judged(*narrowed: ops.Narrowed, plan: TrialPlan = PLAN, lost: bool = True, exact: bool = True) -> Finding:
    book = Book().attempt(1)
    if lost:
        book.tell(ops.FaultStarted(0), "nemesis").tell(ops.FaultFired(0), "nemesis")
    book.attempt_failed(1)
    for one in narrowed:
        book.tell(one).attempt(one.attempt)
    capabilities = frozenset({Capability.DETERMINISTIC_REPLAY.name} if exact else ())
    history = a_context(plan, book).history
    return NarrowedJobs().check(
        TrialContext(plan, history, faults=(FIRED,) if lost else (), capabilities=capabilities)
    )


def test_a_parallelism_that_fills_the_slots_that_are_left_is_right() -> None:
    found = judged(ops.Narrowed(2, 6, the_job(2, 3)))
    assert found.verdict is Verdict.VALID and found.clauses == ("RSC-2",), found.summary
    assert found.counts == {NARROWED: 1, LOST_FOR_GOOD: 1, "violations": 0}


def test_a_job_that_was_never_narrower_says_nothing() -> None:
    found = judged()
    assert (found.verdict, found.clauses, found.counts[NARROWED]) == (Verdict.VALID, (), 0)


FIXED = msgspec.structs.replace(
    PLAN, deployment=msgspec.structs.replace(PLAN.deployment, fixed_vertices=("totals",))
)


@pytest.mark.parametrize(
    ("told_", "plan", "words"),
    [
        (ops.Narrowed(2, 6, the_job(2, 4)), PLAN, "7 subtasks, and there were 6 slots"),
        (ops.Narrowed(2, 7, the_job(2, 3)), PLAN, "7 slots are enough"),
        (ops.Narrowed(2, 6, the_job(1, 3)), PLAN, "source could have one subtask more: 1 slots are left"),
        (ops.Narrowed(2, 6, the_job(3, 2)), PLAN, "source has 3 subtasks, and is meant to have 2"),
        (ops.Narrowed(2, 6, the_job(2, 0)), PLAN, "totals has 0 subtasks"),
        (ops.Narrowed(2, 6, the_job(2, 3)), FIXED, "must keep its 4"),
        (ops.Narrowed(2, 6, {"source": 2, "totals": 3}), PLAN, "it has the vertices"),
    ],
    ids=["too many", "needless", "too few", "wider", "none", "fixed", "another job"],
)
def test_a_parallelism_that_does_not_fit_is_wrong(told_: ops.Narrowed, plan: TrialPlan, words: str) -> None:
    found = judged(told_, plan=plan)
    assert found.verdict is Verdict.INVALID and words in " ".join(found.examples), found.examples


def test_slots_that_are_missing_without_a_fault_are_wrong_where_the_plan_tells_how_many_there_are() -> None:
    one = ops.Narrowed(2, 6, the_job(2, 3))
    assert "no fault had taken any" in judged(one, lost=False).summary
    assert judged(one, lost=False, exact=False).verdict is Verdict.VALID


def test_a_job_that_is_narrower_at_the_very_moment_of_the_loss_is_right() -> None:
    """With no delay and no wait, of two things at one moment the loss may be told second."""
    book = Book().attempt(1).attempt_failed(1).tell(ops.Narrowed(2, 6, the_job(2, 3))).attempt(2)
    book.tell(ops.FaultStarted(0), "nemesis").tell(ops.FaultFired(0), "nemesis")
    history = a_context(PLAN, book).history
    at_once = [msgspec.structs.replace(line, time_ms=7.0) for line in history.operations]
    history = msgspec.structs.replace(history, operations=tuple(at_once))
    exact = frozenset({Capability.DETERMINISTIC_REPLAY.name})
    found = NarrowedJobs().check(TrialContext(PLAN, history, faults=(FIRED,), capabilities=exact))
    assert found.verdict is Verdict.VALID, found.summary


def judged_after(*slots: tuple[int, int], wait_ms: int = 10) -> Finding:
    """Judge a job that goes on narrower after so many slots were there for so many milliseconds."""
    deployment = msgspec.structs.replace(PLAN.deployment, elastic_wait_ms=wait_ms)
    plan = msgspec.structs.replace(PLAN, deployment=deployment)
    book = Book().attempt(1).tell(ops.FaultStarted(0), "nemesis").attempt_failed(1)
    for number, for_ms in slots:
        book.tell(ops.SlotsChanged(number), "executors").nothing(for_ms - 1)
    book.tell(ops.Narrowed(2, 6, the_job(2, 3))).attempt(2)
    exact = frozenset({Capability.DETERMINISTIC_REPLAY.name})
    return NarrowedJobs().check(
        TrialContext(plan, a_context(plan, book).history, faults=(FIRED,), capabilities=exact)
    )


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (((6, 10),), ""),
        (((6, 9),), "missing for 9 ms only; it is to wait 10 ms"),
        (((6, 30), (9, 20), (6, 3)), "missing for 3 ms only"),
        (((3, 5), (6, 5)), ""),
        (((6, 5), (9, 2), (6, 5)), ""),  # it looked before and after, and not between
        (((6, 5), (9, 3), (6, 7)), "missing for 7 ms only"),
        (((6, 20), (9, 5)), "missing for 0 ms only"),
        (((6, 5), (3, 20)), "it found 6 slots, and there were 3"),
    ],
)
def test_slots_must_have_been_missing_for_as_long_as_the_job_is_to_wait(
    slots: tuple[tuple[int, int], ...], words: str
) -> None:
    found = judged_after(*slots)
    assert found.verdict is (Verdict.INVALID if words else Verdict.VALID), found.summary
    assert words in " ".join(found.examples)


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (((9, 0, 5), (6, 0, 1_000)), ""),
        (((9, 0, 5), (6, 0, 950)), ""),  # whoever counts may have been held up
        (((9, 0, 5), (6, 0, 850)), "missing for 850 ms only; it is to wait 1000 ms"),
        (((9, 0, 5), (6, 200, 850)), ""),  # it was seen 200 ms before it was told
        (((9, 0, 5), (6, 0, 2_500), (9, 0, 3_000), (6, 0, 3)), "missing for 3 ms only"),
        (((6, 0, 1_000),), ""),
        (((6, 0, 10),), "missing for 10 ms only"),
    ],
)
def test_on_a_real_cluster_the_slots_are_those_that_it_tells(
    slots: tuple[tuple[int, int, int], ...], words: str
) -> None:
    deployment = msgspec.structs.replace(PLAN.deployment, elastic_wait_ms=1_000)
    plan = msgspec.structs.replace(PLAN, deployment=deployment)
    book = Book().tell(ops.FaultStarted(0), "nemesis")
    for number, ago_ms, for_ms in slots:
        book.tell(ops.SlotsChanged(number, float(ago_ms)), "executors").nothing(for_ms - 1)
    book.tell(ops.Narrowed(1, 6, the_job(2, 3))).attempt(1)
    found = NarrowedJobs().check(TrialContext(plan, a_context(plan, book).history, faults=(FIRED,)))
    assert found.verdict is (Verdict.INVALID if words else Verdict.VALID), found.summary
    assert words in " ".join(found.examples)


ALONE = a_plan(
    workload=WorkloadPlan("keyed-totals", batches=60, keys=20, records_per_second=600),
    job=JobPlan("", {"source": 2, "totals": 2, "sink": 1}),
    checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=4),
    deployment=DeploymentPlan(executors=1, slots_per_executor=6, elastic_wait_ms=20, replaced_after_ms=1_000),
    restart=RestartPlan(attempts_max=20, delay_ms=10),
    faults=(ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),),
)
"""A job that has nothing at all until a second executor is there, which takes longer than it waits."""


@pytest.mark.parametrize(
    ("plan", "verdict"),
    [
        (ALONE, Verdict.VALID),
        (msgspec.structs.replace(ALONE, restart=RestartPlan(attempts_max=3, delay_ms=10)), Verdict.VALID),
        (msgspec.structs.replace(ALONE, limits=LimitsPlan(virtual_ms=900)), Verdict.UNKNOWN),
        (msgspec.structs.replace(ALONE, mutant="EL-01"), Verdict.VALID),
    ],
    ids=[
        "it goes on",
        "it gives up",
        "the trial is over before",
        "what is wrong with narrower jobs is not seen here",
    ],
)
def test_a_job_without_room_is_not_blamed_for_attempts_that_wait_in_vain(
    plan: TrialPlan, verdict: Verdict, tmp_path: Path
) -> None:
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is verdict, record.findings
    assert len(record.attempts) > 3


def test_a_job_that_could_be_narrower_is_blamed_for_attempts_that_wait_in_vain(tmp_path: Path) -> None:
    deployment = msgspec.structs.replace(ALONE.deployment, executors=2, slots_per_executor=3)
    plan = msgspec.structs.replace(ALONE, deployment=deployment, mutant="EL-01")
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert {one.checker for one in record.findings if one.verdict is Verdict.INVALID} >= {
        "progress",
        "restorability",
    }


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (
            DeploymentPlan(executors=1, slots_per_executor=2, elastic_wait_ms=1),
            "needs 3 slots at its narrowest",
        ),
        (DeploymentPlan(executors=2, slots_per_executor=2), "needs 5 slots, and"),
        (
            DeploymentPlan(executors=1, slots_per_executor=3, elastic_wait_ms=1, fixed_vertices=("totals",)),
            "needs 4 slots at its narrowest",
        ),
        (DeploymentPlan(executors=1, slots_per_executor=3, elastic_wait_ms=1), ""),
    ],
)
def test_a_plan_whose_job_has_no_room_though_every_executor_is_there_is_refused(
    deployment: DeploymentPlan, words: str
) -> None:
    plan = msgspec.structs.replace(ALONE, deployment=deployment)
    if not words:
        check_plan(plan, ReferenceSimulated())
        return
    with pytest.raises(UsageProblem, match=words):
        check_plan(plan, ReferenceSimulated())


def test_nothing_is_said_about_the_wait_where_nobody_observed_the_slots() -> None:
    assert judged_after(wait_ms=1_000).verdict is Verdict.VALID


KILLS = tuple(
    ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
    for nth in (2, 6)
)


@pytest.mark.parametrize(("replaced_after_ms", "narrower"), [(0, 0), (20, 0), (60, 2)])
def test_an_executor_that_is_replaced_late_is_waited_for_and_then_done_without(
    replaced_after_ms: int, narrower: int, tmp_path: Path
) -> None:
    plan = a_plan(
        workload=WorkloadPlan("keyed-totals", batches=60, keys=20, records_per_second=600),
        job=JobPlan("", {"source": 3, "totals": 4, "sink": 1}),
        checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=4),
        deployment=DeploymentPlan(
            executors=3, slots_per_executor=3, elastic_wait_ms=30, replaced_after_ms=replaced_after_ms
        ),
        faults=KILLS,
    )
    trial = execute(plan, ReferenceSimulated(), tmp_path)
    assert trial.record.verdict is Verdict.VALID, trial.record.findings
    assert trial.history is not None
    assert len([*trial.history.of(ops.Narrowed)]) == narrower
    changes = [line.operation.slots for line in trial.history.of(ops.SlotsChanged)]
    assert changes == ([6, 9, 6, 9] if replaced_after_ms else [])


def test_the_ends_of_a_forward_edge_stay_equally_parallel() -> None:
    plan = a_plan(
        workload=msgspec.structs.replace(PLAN.workload, name="passthrough"),
        job=JobPlan("", {"source": 4, "steps": 4, "sink": 4}),
        deployment=PLAN.deployment,
        faults=PLAN.faults,
    )

    def found(*widths: int) -> Finding:
        named = dict(zip(("source", "steps", "sink"), widths, strict=True))
        return judged(ops.Narrowed(2, 9, named), plan=plan)

    assert found(3, 3, 3).verdict is Verdict.VALID
    assert "are not equally parallel" in " ".join(found(4, 3, 2).examples)
    assert "source and steps and sink could have one subtask more" in " ".join(found(2, 2, 2).examples)


def test_a_history_tells_which_attempt_ran_which_job() -> None:
    plan = msgspec.structs.replace(PLAN, rescales=(RescalePlan({"totals": 5}),))
    book = Book().attempt(1).attempt_failed(1)
    book.tell(ops.Narrowed(2, 6, the_job(2, 3))).attempt(2).attempt_failed(2)
    book.tell(ops.Narrowed(3, 6, the_job(2, 3))).attempt(3)
    book.tell(ops.JobStopped(1)).tell(ops.Narrowed(4, 6, the_job(2, 3))).attempt(4).attempt_failed(4)
    book.attempt(5)
    history = a_context(plan, book).history
    jobs = jobs_of_trial(plan, history)
    assert dict(jobs.of) == {1: 0, 2: 1, 3: 1, 4: 2, 5: 3}
    assert [one.job.vertex("totals").parallelism for one in jobs.plans] == [4, 3, 3, 5]
    assert [jobs.plan_of(number).job.vertex("totals").parallelism for number in range(4)] == [4, 4, 5, 5]
    context = TrialContext(
        plan,
        history,
        subtasks=barrier_view(plan).names,
        job=barrier_view(plan),
        later_jobs=tuple(map(barrier_view, jobs.plans[1:])),
    )
    assert ["totals[3]" in context.subtasks_of(attempt) for attempt in range(1, 6)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert context.job_number(None) == context.job_number(9) == 0


@pytest.mark.parametrize(
    "name",
    [
        # No attempt before the first one was wider, so the checkpoints of all attempts are those of one job.
        "narrower-from-the-start-with-finished-subtasks",
        # They are dealt out, so that they come on other channels than those on which they were sent.
        "narrower-with-messages-of-a-loop-in-flight",
    ],
)
def test_jobs_that_are_narrower_are_not_blamed_for_what_follows_from_that(name: str, tmp_path: Path) -> None:
    record = run_trial(read_plan(PLANS / f"{name}.json"), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings


def a_trial(narrowed: int, lost: int) -> TrialSummary:
    counts = {NARROWED: narrowed, LOST_FOR_GOOD: lost}
    return TrialSummary(
        0, Verdict.VALID, findings=(Finding(NarrowedJobs.name, (), Verdict.VALID, "", counts),)
    )


def test_of_the_elastic_jobs_that_lost_an_executor_for_good_some_must_go_on_narrower() -> None:
    seen = AllSometimes().each["sometimes-narrowed"]
    seen.add(a_trial(0, 0))
    assert seen.finding() is None
    for _ in range(4):
        seen.add(a_trial(0, 1))
    found = seen.finding()
    assert found is None, "there may have been slots for all of so few"
    seen.add(a_trial(0, 1))
    found = seen.finding()
    assert found is not None and found.verdict is Verdict.UNKNOWN and "none of the 5" in found.summary
    seen.add(a_trial(2, 1))
    found = seen.finding()
    assert found is not None and found.verdict is Verdict.VALID
    assert found.counts == {"trials": 6, "with_narrower": 1, NARROWED: 2}


@pytest.mark.parametrize(
    ("deployment", "checkpoints", "words"),
    [
        (DeploymentPlan(fixed_vertices=("nobody",)), CheckpointPlan(), "no vertex 'nobody'"),
        (DeploymentPlan(elastic_wait_ms=1), CheckpointPlan(protocol="chandy_lamport"), "cannot be elastic"),
        (DeploymentPlan(elastic_wait_ms=1, replaced_after_ms=1), CheckpointPlan(), "slots are counted"),
        (DeploymentPlan(slots_per_executor=9, replaced_after_ms=1), CheckpointPlan(), "slots are counted"),
    ],
)
def test_a_plan_of_an_elastic_job_that_contradicts_itself_is_refused(
    deployment: DeploymentPlan, checkpoints: CheckpointPlan, words: str
) -> None:
    # What a value is wrong in by itself is a ValueError; what does not fit the workload's job, a problem of the plan.
    with pytest.raises((ValueError, UsageProblem), match=words):
        a_plan(deployment=deployment, checkpoints=checkpoints)


@pytest.mark.nightly
def test_drawn_elastic_jobs_have_room_before_the_loss_and_for_each_vertex_after_it() -> None:
    plans = draw_plans(3, 120, profile_named("rescale").with_shares(fallbacks=0))
    elastic = [plan for plan in plans if plan.deployment.elastic_wait_ms is not None]
    assert len(elastic) > 10
    for plan in elastic:
        each = plan.deployment.slots_per_executor
        assert each is not None
        assert len(plan.job.subtasks) <= each * plan.deployment.executors
        losses = sum(isinstance(one.fault, LoseExecutor) for one in plan.faults)
        assert len(plan.job.vertices) <= each * (plan.deployment.executors - losses)
        assert losses >= 1
    too_few = [
        plan
        for plan in elastic
        if len(plan.job.subtasks)
        > (plan.deployment.slots_per_executor or 0) * (plan.deployment.executors - 1)
    ]
    assert len(too_few) > len(elastic) // 2, "most of them must go on narrower"
    # A job whose sinks are chained has no vertex of them.
    widest = [
        max((vertex.parallelism for vertex in plan.job.vertices if vertex.kind == SINK), default=0)
        for plan in elastic
    ]
    assert any(width > profile_named("rescale").job.sinks[1] for width in widest), (
        "sinks of which some must go"
    )


@pytest.mark.nightly
def test_jobs_are_drawn_that_lose_several_executors_one_after_the_other_and_nothing_else_happens() -> None:
    plans = draw_plans(5, 240, profile_named("rescale"))
    several = [plan for plan in plans if sum(isinstance(one.fault, LoseExecutor) for one in plan.faults) > 1]
    assert len(several) >= 6
    assert {plan.on_unreadable for plan in several} == {"fail", "older"}
    assert {plan.checkpoints.incremental for plan in several} == {False, True}
    for plan in several:
        for_good = plan.faults[1:] if plan.deployment.replaced_after_ms else plan.faults
        assert all(isinstance(one.fault, LoseExecutor) for one in for_good) and not plan.savepoints
        numbers = [one.trigger.nth for one in plan.faults if isinstance(one.trigger, After)]
        assert len(numbers) == len(plan.faults) and numbers == sorted(set(numbers))
        slots, executors = plan.deployment.slots_per_executor or 0, plan.deployment.executors
        assert len(plan.job.subtasks) <= slots * executors


@pytest.mark.nightly
def test_drawn_jobs_become_narrower_again_and_again(tmp_path: Path) -> None:
    profile = profile_named("rescale").with_shares(
        chain=0, refused_deletions=0, overlapping_copies=0, losses=1_000
    )
    became: list[int] = []
    for number, plan in enumerate(draw_plans(3, 20, profile)):
        (tmp_path / str(number)).mkdir()
        trial = execute(plan, ReferenceSimulated(), tmp_path / str(number))
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        became.append(len({sum(line.operation.widths.values()) for line in trial.history.of(ops.Narrowed)}))
    assert sum(times > 1 for times in became) > len(became) // 3, became


@pytest.mark.long
def test_elastic_jobs_are_drawn_with_loops_which_have_room_after_the_loss() -> None:
    plans = draw_plans(3, 180, profile_named("loops"))
    elastic = [plan for plan in plans if plan.deployment.elastic_wait_ms is not None]
    assert len(elastic) > 10
    for plan in elastic:
        left = (plan.deployment.slots_per_executor or 0) * (plan.deployment.executors - 1)
        in_loops = [name for loop in plan.job.loops for name in loop]
        needed = [v.parallelism if v.name in in_loops else 1 for v in plan.job.vertices]
        assert sum(needed) <= left


@pytest.mark.long
def test_no_drawn_replacement_comes_too_late_for_a_job_that_has_no_room_without_it() -> None:
    profile = replace(profile_named("rescale"), elastic=OFTEN_LATE).with_shares(
        elastic=1_000, merged_increments=0
    )
    late = [plan for plan in draw_plans(7, 160, profile) if plan.deployment.replaced_after_ms]
    assert len(late) >= 10
    for plan in late:
        deployment, after_ms = plan.deployment, plan.deployment.replaced_after_ms
        kills = [one for one in plan.faults if isinstance(one.fault, KillExecutor | LoseExecutor | LoseHost)]
        left = (deployment.executors - len(kills)) * (deployment.slots_per_executor or 0)
        if left < len(plan.job.vertices):
            assert len(kills) == 1
            assert after_ms <= plan.restart.delay_ms + (deployment.elastic_wait_ms or 0)


@pytest.mark.nightly
def test_elastic_jobs_are_drawn_whose_executors_are_replaced_late(tmp_path: Path) -> None:
    profile = replace(profile_named("rescale"), elastic=OFTEN_LATE).with_shares(
        chain=0, fallbacks=0, losses=1_000, merged_increments=0, backlog=0, ends_apart=0
    )
    late = [plan for plan in draw_plans(3, 40, profile) if plan.deployment.replaced_after_ms]
    assert len(late) >= 12
    for plan in late:
        assert plan.deployment.elastic_wait_ms is not None
        assert plan.deployment.elastic_wait_ms > plan.restart.delay_ms < plan.deployment.replaced_after_ms
        assert any(isinstance(one.fault, LoseExecutor) for one in plan.faults)
    back = [plan for plan in late if plan.faults and isinstance(plan.faults[0].fault, KillExecutor)]
    in_time = [
        plan for plan in back if plan.deployment.replaced_after_ms < (plan.deployment.elastic_wait_ms or 0)
    ]
    assert len(in_time) >= 5
    for number, plan in enumerate(in_time[:5]):
        (tmp_path / str(number)).mkdir()
        record = run_trial(plan, ReferenceSimulated(), tmp_path / str(number))
        assert record.verdict is Verdict.VALID, (plan, record.findings)


WAITING = After(ProtocolPoint.WAITING_FOR_SLOTS)
LOSES_ONE = (
    replace(profile_named("rescale"), faults=replace(profile_named("rescale").faults, number=(1, 1)))
).with_shares(elastic=1_000, savepoints=0, chain=0, losses=0, backlog=0, windows=0)
"""Draws elastic jobs that lose one executor, and nothing else happens: while one waits, its coordinator may crash."""


@pytest.mark.long
@pytest.mark.parametrize(("profile", "least"), [(LOSES_ONE, 4), (profile_named("chains"), 1)])
def test_coordinators_are_drawn_that_crash_while_their_job_waits_for_slots_and_they_do(
    profile: Profile, least: int, tmp_path: Path
) -> None:
    system = ReferenceSimulated()
    plans = draw_plans(4, 60, profile, Constraints(system.job, system.capabilities))
    hit = [plan for plan in plans if any(planned.trigger == WAITING for planned in plan.faults)]
    assert len(hit) >= least
    for number, plan in enumerate(hit[:4]):
        (tmp_path / str(number)).mkdir()
        trial = execute(plan, system, tmp_path / str(number))
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        (crash,) = (index for index, planned in enumerate(plan.faults) if planned.trigger == WAITING)
        assert trial.record.faults[crash].outcome == "fired"
        told = [line.operation for line in trial.history.operations]
        (fired,) = (n for n, one in enumerate(told) if isinstance(one, ops.FaultFired) and one.fault == crash)
        before = [one for one in told[:fired] if isinstance(one, ops.AttemptStarted | ops.AttemptEnded)]
        after = [one for one in told[fired:] if isinstance(one, ops.AttemptStarted | ops.Narrowed)]
        assert isinstance(before[-1], ops.AttemptEnded), "no attempt had begun: the job was waiting"
        assert isinstance(after[0], ops.Narrowed), "and it waited for slots, which did not come"
