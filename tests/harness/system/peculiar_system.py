"""A system that brings settings, profiles, checkers and a workload, and uses few fields of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.profile import CheckpointRanges, Profile, WorkloadRanges
from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import register_workload, workload_names
from tests.harness.fake_system import FakeSystem


class BriefLoad(KeyedTotals):
    """Keyed totals under another name, with its own profile and its own checker."""

    name = "brief-load"
    profiles = (
        Profile(
            "brief",
            "One batch for everybody.",
            workload=WorkloadRanges(names=("brief-load",), batches=(1, 1)),
            # Many a scenario has input of its own.
            scenarios=tuple((name, 0) for name in known_scenarios()),
        ),
    )

    def checkers(self, plan: TrialPlan) -> Sequence[Checker]:
        return (Says("load-is-brief", Verdict.VALID),)


if BriefLoad.name not in workload_names():
    register_workload(BriefLoad.name, BriefLoad)


class Says:
    """Always gives the same verdict."""

    clauses = ("PEC-1",)

    def __init__(self, name: str, verdict: Verdict) -> None:
        self.name = name
        self._verdict = verdict

    def check(self, context: TrialContext) -> Finding:
        return Finding(self.name, self.clauses, self._verdict, f"it is {self._verdict.value}")


class Stumbles(Says):
    """Cannot judge anything, and ends the program instead."""

    def check(self, context: TrialContext) -> Finding:
        raise SystemExit(0)


class Mumbles(Says):
    """Returns a value that is no finding."""

    def check(self, context: TrialContext) -> Finding:
        return "fine"  # type: ignore[return-value]


class Peculiar(FakeSystem):
    """See the head of this file. Each test chooses its checkers with ``brings``."""

    name = "peculiar"
    uses: tuple[str, ...] = ("restart", "checkpoints.interval_ms", "workload.start_offset")
    profiles = (
        Profile(
            "peculiar",
            "What a peculiar system can do.",
            workload=WorkloadRanges(batches=(2, 3)),
            checkpoints=CheckpointRanges(interval_ms=(70, 90)),
            # Many a scenario has intervals of its own.
            scenarios=tuple((name, 0) for name in known_scenarios()),
        ),
        Profile("peculiar-too", "The same, with more."),
    )
    brings: tuple[Checker, ...] = (Says("is-peculiar", Verdict.VALID),)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            if key not in ("speed", "nested"):
                raise ValueError(f"{key!r} is no setting; it has speed and nested")
            if key == "speed" and not isinstance(value, int):
                raise ValueError(f"speed is {value!r}; give a number")

    def checkers(self, plan: TrialPlan) -> Sequence[Checker]:
        return self.brings


class Choosy(Peculiar):
    """Fails when it is asked for its checkers."""

    def checkers(self, plan: TrialPlan) -> Sequence[Checker]:
        raise ZeroDivisionError("no checkers today")


class Boastful(Peculiar):
    """Claims to use a field that does not exist."""

    uses = ("checkpoint.interval_ms",)
