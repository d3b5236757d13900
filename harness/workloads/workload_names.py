"""Workloads by the name that a plan uses, and plans filled in with their workload's job graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import is_target, make, shown
from barrier_tck.harness.workloads.aircraft_sessions import AircraftSessions
from barrier_tck.harness.workloads.changed_totals import ChangedTotals
from barrier_tck.harness.workloads.connected_components import ConnectedComponents
from barrier_tck.harness.workloads.event_time import EventTime
from barrier_tck.harness.workloads.flights import Flights
from barrier_tck.harness.workloads.flights_in_weather import FlightsInWeather
from barrier_tck.harness.workloads.hourly_flights import HourlyFlights
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.lineage import Lineage
from barrier_tck.harness.workloads.money import Money
from barrier_tck.harness.workloads.passthrough import Passthrough
from barrier_tck.harness.workloads.rounds import Rounds
from barrier_tck.harness.workloads.weather import Weather
from barrier_tck.harness.workloads.workload import Workload

_FACTORIES: dict[str, Callable[[], Workload]] = {
    AircraftSessions.name: AircraftSessions,
    ChangedTotals.name: ChangedTotals,
    ConnectedComponents.name: ConnectedComponents,
    KeyedTotals.name: KeyedTotals,
    EventTime.name: EventTime,
    Flights.name: Flights,
    FlightsInWeather.name: FlightsInWeather,
    HourlyFlights.name: HourlyFlights,
    Lineage.name: Lineage,
    Money.name: Money,
    Passthrough.name: Passthrough,
    Rounds.name: Rounds,
    Weather.name: Weather,
}


def workload_names() -> tuple[str, ...]:
    """Return the names of all registered workloads, sorted."""
    return tuple(sorted(_FACTORIES))


def register_workload(name: str, factory: Callable[[], Workload]) -> None:
    """Register another workload; raises UsageError if the name is taken."""
    if name in _FACTORIES:
        raise UsageError(f"a workload named {name!r} exists already; choose another name")
    _FACTORIES[name] = factory


def workload_named(name: str) -> Workload:
    """Return the workload of that name, or the one that ``package.module:Factory`` makes.

    Raises UsageProblem, with the nearest name, if there is none.
    """
    factory = _FACTORIES.get(name)
    if factory is not None:
        return factory()
    if not is_target(name):
        raise UsageProblem(
            f"there is no workload {shown(name)}{nearest(name, workload_names())} "
            "(a workload of your own is named package.module:Factory)"
        )
    made: Workload = make(name, "workload", Workload)
    return made


def filled(plan: TrialPlan) -> FilledPlan:
    """Return the plan with its job spelled out: the vertices and edges of the shape that it asks for.

    Raises UsageProblem for a shape or width that the workload does not have, and for a job that it cannot run on.
    """
    name, wish = plan.workload.name, plan.job
    if wish.vertices:
        require_job(name, wish)
        return cast("FilledPlan", plan)
    job = job_of(name, wish)
    try:
        return cast("FilledPlan", msgspec.structs.replace(plan, job=job))
    except ValueError as error:
        raise UsageProblem(
            f"the job of the workload {name!r} does not fit the rest of the plan: {error}"
        ) from error


@lru_cache(maxsize=256)
def job_of(workload: str, wish: JobPlan) -> JobPlan:
    """Return a workload's job for a request without vertices; raises UsageProblem if it has no such job."""
    try:
        return workload_named(workload).job(wish.shape, wish.widths)
    except ValueError as error:
        raise UsageProblem(f"the workload {workload!r} cannot run as job asks: {error}") from error


@lru_cache(maxsize=256)
def require_job(workload: str, job: JobPlan) -> None:
    """Raise UsageProblem unless the workload can run on a job that is spelled out."""
    problem = workload_named(workload).problem_of(job)
    if problem is not None:
        raise UsageProblem(f"the workload {workload!r} cannot run on this job: {problem}")
