"""Real data in event time: what comes in which order, and what the comparison with a batch finds; grain: simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.batch_result import BatchResult
from barrier_tck.harness.oracle.evidence.exactness import is_exact
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import End, History, Row
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.aircraft_sessions import LONGEST_MS
from barrier_tck.harness.workloads.flight_tables import WEATHER_IDS, departures, hourly_weather, landings
from barrier_tck.harness.workloads.real_event_time import HOUR_MS, MINUTE_MS
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from tests.harness.kills import kill

NAMES = ("hourly-flights", "aircraft-sessions", "flights-in-weather")
SYSTEM = ReferenceSimulated()


def plan_of(name: str, job: JobPlan | None = None, vertex: str = "") -> FilledPlan:
    return filled(
        TrialPlan(
            seed=2,
            workload=WorkloadPlan(name, batches=20, batch_records=4, keys=6, records_per_second=600),
            job=job or JobPlan(),
            checkpoints=CheckpointPlan(interval_ms=12),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, f"{vertex}[0]", worker=True) if vertex else (),
        )
    )


# --- the input ----------------------------------------------------------------------------------------------


def test_the_order_of_arrival_is_that_of_departure_and_a_fifth_is_late_by_a_quarter_of_an_hour() -> None:
    flights: Any = departures()
    assert flights["departed"].is_monotonic_increasing and len(flights) > 328_000
    behind = flights["scheduled"].cummax() - flights["scheduled"]
    assert 0.15 < (behind > 15 * MINUTE_MS).mean() < 0.3
    assert behind.max() > 20 * HOUR_MS


def test_no_landing_is_further_behind_than_the_bound_of_sessions_and_some_are_nearly() -> None:
    flights: Any = landings()
    behind = flights["departed"].cummax() - flights["departed"]
    assert 0.9 * LONGEST_MS < behind.max() < LONGEST_MS


def test_ids_of_flights_and_weather_do_not_meet_and_a_sum_of_two_says_which_they_were() -> None:
    assert departures()["id"].max() < WEATHER_IDS <= hourly_weather()["id"].min()


@pytest.mark.parametrize("name", NAMES)
def test_the_splits_are_dealt_in_turn_from_one_order_of_arrival(name: str) -> None:
    plan = plan_of(name)
    workload = workload_named(name)
    splits = workload.splits(plan)
    assert splits == workload.splits(plan)
    assert splits != workload.splits(msgspec.structs.replace(plan, seed=3))
    parts = [split.rows for split in splits if split.vertex == "flights"]
    dealt = [row for turn in zip(*parts, strict=False) for row in turn]
    times = [row["ts"] for row in dealt]
    assert times != sorted(times), "the disorder is real"
    table: Any = landings() if name == "aircraft-sessions" else departures()
    order = {identifier: place for place, identifier in enumerate(table["id"])}
    places = [order[row["id"]] for row in dealt]
    assert places == sorted(places)


# --- the jobs -----------------------------------------------------------------------------------------------


def with_parameters(job: JobPlan, vertex: str, **parameters: Any) -> JobPlan:
    vertices = tuple(
        msgspec.structs.replace(one, parameters={**one.parameters, **parameters})
        if one.name == vertex
        else one
        for one in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


@pytest.mark.parametrize(
    ("name", "shape", "vertex", "parameters", "problem"),
    [
        ("hourly-flights", "hourly", "hourly", {"slide_ms": 5}, "knows no slide_ms"),
        ("hourly-flights", "hourly", "hourly", {"every": 2}, "knows no every"),
        ("hourly-flights", "hourly", "flights", {"skew": 2}, "its keys are those of the data"),
        ("hourly-flights", "daily", "hourly", {"lateness_ms": 2}, "knows no lateness_ms"),
        ("aircraft-sessions", "sessions", "flights", {"bound_ms": HOUR_MS}, "records must not be late"),
        ("aircraft-sessions", "sessions", "flights", {"idle_after_ms": 2}, "records must not be late"),
        ("aircraft-sessions", "sessions", "sessions", {"lateness_ms": 2}, "with a gap_ms alone"),
        ("flights-in-weather", "around", "joined", {"form": "full"}, "must have the form left"),
    ],
)
def test_a_job_for_which_the_batch_query_would_not_hold_is_refused(
    name: str, shape: str, vertex: str, parameters: dict[str, Any], problem: str
) -> None:
    workload = workload_named(name)
    job = workload.job(shape, {})
    assert workload.problem_of(job) is None
    assert problem in str(workload.problem_of(with_parameters(job, vertex, **parameters)))


def test_another_graph_is_refused() -> None:
    job = workload_named("flights-in-weather").job("", {})
    assert "not those of a shape" in str(workload_named("hourly-flights").problem_of(job))


# --- drawn plans --------------------------------------------------------------------------------------------


@cache
def drawn(number: int) -> FilledPlan:
    """Return a plan of the profile of event time with one of these workloads."""
    profile = profile_named("event-time")
    real = replace(profile, workload=replace(profile.workload, names=NAMES))
    return draw_plan(7_000_000 + number, real, Constraints(SYSTEM.job, SYSTEM.capabilities))


def findings(plan: TrialPlan, directory: Path) -> dict[str, Finding]:
    return {one.checker: one for one in run_trial(plan, SYSTEM, directory).findings}


def test_drawn_trials_are_valid_and_many_of_them_have_late_records(tmp_path: Path) -> None:
    late = compared = 0
    for number in range(20):
        found = findings(drawn(number), tmp_path)
        assert {one.verdict for one in found.values()} == {Verdict.VALID}
        counts = found["batch-result"].counts if "batch-result" in found else {}
        compared += counts.get("expected", 0) > 0
        late += counts.get("late", 0) > 0
    assert compared >= 5
    assert late >= 2


def test_the_profile_of_event_time_draws_each_of_them() -> None:
    assert set(NAMES) < set(profile_named("event-time").workload.names)


def test_the_batch_judges_each_of_them_in_exact_modes_and_nothing_else() -> None:
    names = set()
    for number in range(20):
        plan = drawn(number)
        is_judged = "batch-result" in [one.name for one in checkers_for(plan, SYSTEM.capabilities)]
        assert is_judged is is_exact(plan)
        names.add(plan.workload.name if is_judged else "")
    assert names == {*NAMES, ""}
    generated = filled(TrialPlan(workload=WorkloadPlan("event-time")))
    assert "batch-result" not in [one.name for one in checkers_for(generated, SYSTEM.capabilities)]


def caught(bug: str, checker: str, directory: Path, within: int = 60) -> bool:
    """Return whether a checker finds a planted bug in one of the first drawn plans."""
    for number in range(within):
        plan = msgspec.structs.replace(drawn(number), mutant=bug)
        finding = findings(plan, directory).get(checker)
        if finding is not None and finding.verdict is Verdict.INVALID:
            return True
    return False


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "checkers"),
    [
        ("ET-40", ("event-time", "batch-result")),  # a window fires again behind a restore
        ("ET-43", ("event-time", "batch-result")),  # of sessions that become one, one content is kept
        ("ET-51", ("event-time", "batch-result")),  # late records go nowhere
        ("EJ-04", ("event-time", "batch-result")),  # a flight that was joined is emitted alone, too
        ("EJ-05", ("event-time",)),  # rows that were emitted alone are so again behind a restore
    ],
)
def test_drawn_plans_catch_planted_bugs_and_the_batch_does_so_alone(
    bug: str, checkers: Sequence[str], tmp_path: Path
) -> None:
    assert [checker for checker in checkers if not caught(bug, checker, tmp_path)] == []


# --- the comparison with the batch --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["updated", "sessions", "joined"])
def trial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FilledPlan, History]:
    """A trial with a kill, and its history."""
    if request.param == "updated":
        job = workload_named("hourly-flights").job("hourly", {})
        job = with_parameters(job, "flights", bound_ms=0)
        job = with_parameters(job, "hourly", size_ms=15 * MINUTE_MS, lateness_ms=30 * MINUTE_MS)
        plan = plan_of("hourly-flights", job, "hourly")
    elif request.param == "sessions":
        plan = plan_of("aircraft-sessions", vertex="sessions")
    else:
        job = with_parameters(workload_named("flights-in-weather").job("", {}), "flights", bound_ms=0)
        plan = plan_of("flights-in-weather", job, "joined")
    result = execute(plan, SYSTEM, tmp_path_factory.mktemp("trial"))
    assert (result.record.verdict, result.record.faults_fired) == (Verdict.VALID, 1)
    assert result.history is not None
    return plan, result.history


def judged(trial: tuple[FilledPlan, History], output: Sequence[Row] | None = None, **changes: Any) -> Finding:
    plan, history = trial
    if output is not None:
        changes |= {"output": tuple(output), "output_by": ()}
    workload: Any = workload_named(plan.workload.name)
    checker = BatchResult(TrialInput(workload, plan), workload.batch_query(plan.job))
    return checker.check(TrialContext(plan, msgspec.structs.replace(history, **changes)))


def changed(rows: Sequence[Row], place: int) -> Iterator[list[Row]]:
    """Yield outputs with one row changed: lost, doubled, and with another value in each column that is compared."""
    row = rows[place]
    others = [*rows[:place], *rows[place + 1 :]]
    yield others
    yield [*rows, row]
    for column in ("ts", "id", "mark", "n"):
        yield [*others, {**row, column: row[column] + 1}]
    yield [*others, {**row, "key": "nobody"}]


def test_an_output_in_which_anything_is_changed_is_not_that_of_the_batch(
    trial: tuple[FilledPlan, History],
) -> None:
    assert judged(trial).verdict is Verdict.VALID
    output = trial[1].output or ()
    made = [place for place, row in enumerate(output) if row["how"]]
    late = [place for place, row in enumerate(output) if not row["how"]]
    assert len(made) > 10
    assert trial[0].workload.name == "aircraft-sessions" or late
    for place in [*islice(made, 3), *late[:2]]:
        for rows in changed(output, place):
            finding = judged(trial, rows)
            assert finding.verdict is Verdict.INVALID, rows[-1]
            assert finding.broken == ("EVT-4" if trial[0].workload.name == "flights-in-weather" else "EVT-2")


def test_an_update_comes_once_and_has_grown(trial: tuple[FilledPlan, History]) -> None:
    if trial[0].workload.name != "hourly-flights":
        return
    output = trial[1].output or ()
    place = next(place for place, row in enumerate(output) if row["how"].endswith("#1"))
    update = output[place]
    of = update["how"].removesuffix("1")
    first = next(row for row in output if (row["key"], row["how"]) == (update["key"], f"{of}0"))
    without_first = [row for row in output if row is not first]
    for rows in (without_first, [*without_first, {**first, "n": update["n"]}], [*output, first]):
        assert judged(trial, rows).verdict is Verdict.INVALID


def test_what_spark_sql_gave_is_believed_before_what_this_process_gives(
    trial: tuple[FilledPlan, History],
) -> None:
    row = {"key": "k", "ts": 1, "id": 2, "mark": 3, "n": 4}
    finding = judged(trial, batch=(row,))
    assert finding.verdict is Verdict.INVALID and "Spark SQL" in finding.summary
    assert judged(trial, [{**row, "how": "x"}], batch=(row,)).verdict is Verdict.VALID


def test_a_job_that_did_not_finish_is_not_compared(trial: tuple[FilledPlan, History]) -> None:
    assert judged(trial, [], end=End.STUCK).verdict is Verdict.UNKNOWN
