"""Jobs that are not ours: drawn faults can strike them, and impossible ones are refused; grain: views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.oracle.checkers.faults_fired import FaultsFired
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import run_trial
from tests.harness.fake_system import FakeSystem

RECORDS, TAKEN = ProtocolPoint.RECORDS_PROCESSED, ProtocolPoint.SNAPSHOT_TAKEN
TRIGGERED = ProtocolPoint.CHECKPOINT_TRIGGERED

VIEWS: dict[str, JobView] = {
    "no points": JobView((SubtaskView("driver"), SubtaskView("task 7", (Role.STATEFUL,)))),
    "one point": JobView((SubtaskView("engine", (Role.SOURCE, Role.SINK), {TAKEN: 1}),)),
    "points of sources only": JobView(
        (SubtaskView("in", (Role.SOURCE,), {RECORDS: 4, TAKEN: 0}), SubtaskView("out", (Role.SINK,))),
        links=(("in", "out"),),
    ),
    "points of the coordinator only": JobView(
        (SubtaskView("a"), SubtaskView("b")), control_links=("b",), coordinator_passes={TRIGGERED: 1}
    ),
    "no roles": JobView(
        (SubtaskView("x", passes={TAKEN: 1}), SubtaskView("y", passes={TAKEN: 1})),
        links=(("x", "y"),),
        control_links=("x", "y"),
    ),
    "a coordinator and nobody else": JobView((), coordinator_passes={TRIGGERED: 1}),
    "nothing": JobView(()),
}


@dataclass(frozen=True)
class Everything:
    """Names of the subtasks and of the connections' ends that a fault may hit."""

    view: JobView

    def can_suffer(self, fault: Fault) -> bool:
        if fault.link is not None:
            return fault.link in self.view.connections
        return all(name in self.view.names for name in fault.subtasks)


class Foreign(FakeSystem):
    """A system with the job of a view; it passes each point exactly as often as the view promises."""

    capabilities = frozenset(Capability) - {
        Capability.STORAGE_OUTAGE,
        Capability.UNSYNCED_LOSS,
        Capability.HOST_RETURN,
        Capability.CLOCK_SKEW,
    }

    def __init__(self, view: JobView) -> None:
        super().__init__()
        self.view = view

    def job(self, plan: TrialPlan) -> JobView:
        return self.view

    def _pass_points(self, plan: TrialPlan, nemesis: NemesisHooks) -> None:
        nemesis.first_attempt_ran()
        for one, passes in (
            *((subtask.name, subtask.passes) for subtask in self.view.subtasks),
            (None, self.view.coordinator_passes),
        ):
            for point, times in passes.items():
                for _ in range(times):
                    nemesis.point_reached(point, one, 1)
        nemesis.time_reached(10_000.0)


@pytest.mark.long
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("profile", ["standard", "heavy"])
def test_every_fault_that_is_drawn_strikes(name: str, profile: str, tmp_path: Path) -> None:
    """Once, 72 of 100 plans for a system with other points aimed at points that it never passes."""
    system = Foreign(VIEWS[name])
    drawn = 0
    for plan in draw_plans(7, 40, profile_named(profile), Constraints(system.job, system.capabilities)):
        check_plan(plan, system)
        assert "unsynced" not in repr(plan.faults).replace("lose_unsynced=False", "")
        assert all(Everything(system.view).can_suffer(scheduled.fault) for scheduled in plan.faults)
        record = run_trial(plan, system, tmp_path, (FaultsFired(),))
        assert record.verdict is Verdict.VALID, [(fault.trigger, fault.reason) for fault in record.faults]
        drawn += len(plan.faults)
    assert drawn > 20


@pytest.mark.long
def test_a_system_that_passes_no_point_is_hit_at_times_of_the_whole_range() -> None:
    plans = draw_plans(7, 100, profile_named("heavy"), Constraints(lambda plan: VIEWS["no points"]))
    triggers = [scheduled.trigger for plan in plans for scheduled in plan.faults]
    assert all(isinstance(trigger, At) for trigger in triggers)
    times = [trigger.time_ms for trigger in triggers if isinstance(trigger, At)]
    assert (min(times), max(times)) == profile_named("heavy").faults.timed_ms


@pytest.mark.parametrize(
    ("kind", "struck"),
    [
        ("delay", ["points of sources only", "points of the coordinator only", "no roles"]),
        ("zombie-partitioned", ["points of the coordinator only", "no roles"]),
        ("damage-primary", []),
        ("worker", [name for name in VIEWS if name not in ("nothing", "a coordinator and nobody else")]),
        ("coordinator", list(VIEWS)),
    ],
)
def test_a_kind_that_was_dealt_is_left_out_where_there_is_nothing_to_hit(
    kind: str, struck: list[str]
) -> None:
    for name, view in VIEWS.items():

        def job(plan: TrialPlan, view: JobView = view) -> JobView:
            return view

        plan = draw_plan(3, profile_named("standard"), Constraints(job), kinds=(kind, kind))
        assert len(plan.faults) == (2 if name in struck else 0), name
        assert (f"nothing to hit: {kind}, {kind}" in plan.note) is (name not in struck)


def test_only_what_the_system_exposes_is_drawn() -> None:
    constraints = Constraints(
        lambda plan: VIEWS["no roles"], capabilities=frozenset({Capability.WORKER_KILL})
    )
    faults = [s.fault for plan in draw_plans(1, 50, profile_named("heavy"), constraints) for s in plan.faults]
    assert faults
    assert all(isinstance(fault, KillWorker) for fault in faults)


@pytest.mark.parametrize(
    ("view", "fault", "trigger", "words"),
    [
        ("no points", KillWorker("driver"), After(TAKEN, "driver"), ["its points are none: use a time"]),
        ("one point", KillWorker("engine"), After(TRIGGERED), ["fake cannot be stopped", "snapshot_taken"]),
        (
            "points of sources only",
            KillWorker("out"),
            After(RECORDS, "out"),
            ["'out' cannot be stopped; its points are none"],
        ),
        ("no points", CutChannel("driver", "task 7", 5), At(1), ["no channel", "none at all"]),
        ("points of sources only", CutChannel("in", COORDINATOR, 5), At(1), ["no channel", "some to out"]),
        ("one point", KillWorker("motor"), At(1), ["no subtask of this job", "engine"]),
    ],
)
def test_an_impossible_aim_is_refused_before_anything_runs(
    view: str, fault: Fault, trigger: At | After, words: list[str]
) -> None:
    plan = TrialPlan(faults=(ScheduledFault(CrashCoordinator(), At(1)), ScheduledFault(fault, trigger)))
    with pytest.raises(UsageProblem) as caught:
        check_plan(plan, Foreign(VIEWS[view]), "plan.json")
    assert all(word in str(caught.value) for word in ["plan.json: faults[1]", *words]), str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: JobView((SubtaskView("a"), SubtaskView("a"))), "'a' cannot be the name"),
        (lambda: JobView((SubtaskView("@sink"),)), "'@sink' cannot be the name"),
        (lambda: JobView((SubtaskView(COORDINATOR),)), "'coordinator' cannot be the name"),
        (lambda: JobView((SubtaskView("a"),), links=(("a", "b"),)), "end 'b', which is no subtask"),
        (lambda: JobView((), control_links=("b",)), "end 'b', which is no subtask"),
        (lambda: JobView((SubtaskView("a", passes={TRIGGERED: 1}),)), "a point of the coordinator"),
        (lambda: JobView((SubtaskView("a", passes={TAKEN: -1}),)), "-1 times"),
        (lambda: JobView((), coordinator_passes={TAKEN: 1}), "a point of subtasks"),
    ],
)
def test_a_view_that_contradicts_itself_is_the_systems_mistake(
    make: Callable[[], JobView], words: str
) -> None:
    with pytest.raises(UsageError, match=f"contradicts itself: .*{words}"):
        make()


# --- roles instead of names ---------------------------------------------------------------------------------

TWO_OUT = JobView(
    (
        SubtaskView("in", (Role.SOURCE,), {RECORDS: 4}),
        SubtaskView("b", (Role.SINK, Role.STATEFUL), {TAKEN: 1}),
        SubtaskView("a", (Role.SINK,)),
    )
)


def test_a_listed_trial_names_roles_and_its_plans_have_the_names_of_the_system() -> None:
    fault = {"fault": {"type": "kill_worker", "subtask": "@sink:1"}}
    aim = {"type": "after", "point": "snapshot_taken", "subtask": "@stateful"}
    configuration = configuration_from(
        {"seed": 0, "trial": [{"faults": [fault | {"trigger": aim}]}]}, "c.toml"
    )
    (plan,) = islice(campaign_plans(configuration, Foreign(TWO_OUT)), 1)
    assert plan.faults == (ScheduledFault(KillWorker("a"), After(TAKEN, "b")),)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("@sink:2", "'@sink:2' is number 3 of the subtasks with the role sink, of which fake has 2"),
        ("@stateless", "of which fake has 0"),
        ("@sinc", "'@sinc' names no role; did you mean '@sink'"),
        ("@sink:x", "'@sink:x' names no role"),
    ],
)
def test_a_role_that_nobody_has_is_told_with_the_trial(name: str, words: str) -> None:
    fault = {"fault": {"type": "kill_worker", "subtask": name}, "trigger": {"type": "at", "time_ms": 1}}
    configuration = configuration_from({"trial": [{}, {"faults": [fault]}]}, "c.toml")
    with pytest.raises(UsageProblem, match=r"trial\[1\]: ") as caught:
        campaign_plans(configuration, Foreign(TWO_OUT))
    assert words in str(caught.value)
