"""Checkers that a system or a workload brings: they judge in addition to the standard ones, guarded like them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.workloads.workload_names import workload_named


@runtime_checkable
class ProvidesCheckers(Protocol):
    """What a system or a workload may add: its own properties, judged in every trial beside the standard ones."""

    def checkers(self, plan: TrialPlan) -> Sequence[Checker]:
        """Return the checkers that apply to a plan, whose job is filled in; no two checkers may have the same name."""


class UnavailableCheckers:
    """Stands for checkers that could not be made: their findings are not known."""

    clauses: tuple[str, ...] = ()

    def __init__(self, owner: str, error: BaseException) -> None:
        self.name = f"checkers of {owner}"
        self._error = error

    def check(self, context: TrialContext) -> Finding:
        """Raise the error."""
        raise self._error


def with_plug_ins(
    standard: Sequence[Checker], plan: TrialPlan, system: SystemUnderTest
) -> tuple[Checker, ...]:
    """Return all checkers of a trial; raises UsageError if two of them have one name."""
    chosen = [*standard, *_plug_ins_of(system, system.name, plan)]
    chosen += _plug_ins_of(workload_named(plan.workload.name), plan.workload.name, plan)
    names = [checker.name for checker in chosen]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two checkers of {system.name} with {plan.workload.name} are called {name!r}; give each its own name"
            )
    return tuple(chosen)


def _plug_ins_of(owner: object, name: str, plan: TrialPlan) -> Iterator[Checker]:
    if not isinstance(owner, ProvidesCheckers):
        return
    try:
        checkers = tuple(owner.checkers(plan))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - because of it the trial is UNKNOWN, but not lost
        checkers = (UnavailableCheckers(name, error),)
    yield from checkers
