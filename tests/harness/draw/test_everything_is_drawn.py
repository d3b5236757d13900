"""Every public option is set by a plan of a campaign file, and every condition of a chain is reached and counted.

Grain: drawn plans, and a few simulated trials.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.catalogue import BY_TAG
from barrier_tck.faults.fault import tag_of
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import COORDINATOR, Direction
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import read_configuration
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.reached_links import Condition, ReachedConditions, reached
from barrier_tck.harness.cli.drawn_page import (
    DrawnPlans,
    campaigns_that_draw,
    choices_of,
    drawn_plans,
    drawn_queries,
    faults_drawn,
    options_drawn,
    run_chains,
)
from barrier_tck.harness.cli.shipped import found_campaign
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, History, Recorded
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference import public_options
from barrier_tck.harness.reference.public_options import NOT_DRAWN, known_options, require_known, set_by
from barrier_tck.harness.reference.table_coverage import (
    IMPOSSIBLE,
    TableCoverage,
    TableEntry,
    handled_entries,
)
from barrier_tck.harness.support.errors import InternalError
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from tests.harness.draw.test_drawn_values import AIMED_BY_NOBODY

PAGE = Path(__file__).parents[3] / "docs" / "drawn.md"


def rows(head: str) -> list[list[str]]:
    """Return the cells of the page's table that begins so."""
    lines = PAGE.read_text(encoding="utf-8").split(head, 1)[1].splitlines()[2:]
    found = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return found[: next((place for place, cells in enumerate(found) if len(cells) < 2), len(found))]


def test_the_page_has_every_option_and_none_that_is_never_drawn() -> None:
    counted = rows("| option | plans | most often in |")
    assert [cells[0] for cells in counted] == [name for name in known_options() if name not in NOT_DRAWN], (
        "run: python -m barrier_tck.harness.cli.drawn_page > docs/drawn.md"
    )
    assert [cells for cells in counted if int(cells[1]) == 0] == []
    assert dict(rows("| option | why |")) == NOT_DRAWN


def test_the_page_counts_a_thousand_plans_and_as_many_trials() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for counted in (r"(\d+) plans were drawn", r"(\d+) trials of the campaign `chains` were run"):
        assert [int(number) >= 1_000 for number in re.findall(counted, text)] == [True]


def test_the_page_has_every_condition_and_every_pair() -> None:
    counted = rows("| | condition | trials |")
    assert [cells[1] for cells in counted] == [condition.value for condition in Condition]
    assert [cells for cells in counted if "0" in cells] == []


def pairs_below(head: str) -> dict[str, tuple[int, dict[str, int]]]:
    """Return the pairs that the page names below a heading: fault -> plans, and how many of them have another one."""
    text = PAGE.read_text(encoding="utf-8").split(head, 1)[1]
    lines = text.split("| fault | plans | together with |", 1)[1].splitlines()[2:]
    found = {}
    for line in takewhile(lambda line: line.startswith("|"), lines):
        tag, plans, others = (cell.strip(" `") for cell in line.strip("|").split("|"))
        found[tag] = int(plans), {other: int(n) for other, n in re.findall(r"(\w+)` (\d+)", others)}
    return found


@pytest.mark.parametrize("head", ["## Pairs of faults\n", "## Pairs of faults on queries\n"])
def test_the_page_says_each_pair_of_faults_in_both_rows(head: str) -> None:
    together = pairs_below(head)
    assert len(together) >= 8
    for tag, (plans, others) in together.items():
        assert plans >= max([1, *others.values()]), tag
        assert all(together[other][1][tag] == number for other, number in others.items()), tag


def test_the_page_has_every_kind_of_fault() -> None:
    assert {*pairs_below("## Pairs of faults\n"), *pairs_below("## Pairs of faults on queries\n")} == set(
        BY_TAG
    )


def test_half_of_the_plans_of_queries_are_for_hosts_that_can_be_lost() -> None:
    of_hosts = {"lose_host", "partition_executor", "exhaust_memory"}
    kinds = drawn_queries(120).kinds
    assert of_hosts <= set(kinds)
    assert sum(kinds[tag] for tag in of_hosts) < sum(kinds.values()) / 2


@pytest.mark.long
def test_what_the_page_says_of_plans_is_what_is_drawn_now() -> None:
    """What it says of trials takes many minutes; with the plans, it is made anew."""
    plans, text = drawn_plans(), PAGE.read_text(encoding="utf-8")
    for part in (options_drawn(plans), faults_drawn(plans)):
        assert "\n".join(part) in text, "run: python -m barrier_tck.harness.cli.drawn_page > docs/drawn.md"


def test_the_page_says_which_pairs_strike_one_target_at_one_moment_in_both_rows() -> None:
    (most,) = re.findall(
        r"In (\d+) plans two faults strike one target at one moment", PAGE.read_text("utf-8")
    )
    together = {
        cells[0]: {other: int(number) for other, number in re.findall(r"(\w+)` (\d+)", cells[1])}
        for cells in rows("| fault | at one moment with |")
    }
    for tag, others in together.items():
        assert 1 <= max(others.values()) <= int(most), tag
        assert all(together[other][tag] == number for other, number in others.items()), tag
    assert sum(map(len, together.values())) >= 10


def test_the_page_has_every_choice_of_faults_that_is_a_yes_or_no_and_none_is_never_made() -> None:
    counted = {cells[0]: int(cells[1]) for cells in rows("| choice | plans |")}
    kinds = [cells[0] for cells in rows("| fault | plans | together with |")]
    choices = [name for tag in kinds for name in choices_of(BY_TAG[tag])]
    assert {name for name in choices if ":" not in name} <= set(counted) <= set(choices)
    assert "lose_host.returns" in counted, "a host that comes back empty is counted apart"
    assert [name for name, number in counted.items() if number == 0] == []


def test_the_page_has_every_point_at_which_faults_strike() -> None:
    counted = {cells[0]: (int(cells[1]), int(cells[2])) for cells in rows("| point | plans |")}
    assert list(counted) == [point.value for point in ProtocolPoint]
    never = [point for point, (plans, _) in counted.items() if plans == 0]
    assert never == [point.value for point in AIMED_BY_NOBODY]
    assert all(plans >= deaths for plans, deaths in counted.values())
    assert counted[ProtocolPoint.CLOSING][1] > 0, "processes die in their own finalisers"


def planned(*faults: ScheduledFault) -> FilledPlan:
    return filled(TrialPlan(faults=faults))


TAKEN = After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]")
PAUSED = ScheduledFault(PauseWorker("totals[0]", 5), TAKEN)


@pytest.mark.parametrize(
    ("second", "at_once"),
    [
        (ScheduledFault(KillWorker("totals[0]"), TAKEN), True),
        (ScheduledFault(DelayChannel("totals[0]", COORDINATOR, 5, 5), TAKEN), True),
        (ScheduledFault(KillWorker("totals[1]"), TAKEN), False),
        (ScheduledFault(KillWorker("totals[0]"), msgspec.structs.replace(TAKEN, nth=2)), False),
        (ScheduledFault(CrashCoordinator(), TAKEN), False),
    ],
    ids=["the same", "its connection", "another target", "another moment", "the coordinator"],
)
def test_a_pair_is_at_once_if_target_and_moment_are_the_same(second: ScheduledFault, at_once: bool) -> None:
    pair, counted = tuple(sorted((tag_of(PauseWorker), tag_of(type(second.fault))))), DrawnPlans()
    counted.add(planned(PAUSED, second, second), "standard", on_spark=False)
    counted.add(planned(PAUSED, second), "standard", on_spark=False)
    counted.add(planned(second, PAUSED), "standard", on_spark=False)
    assert counted.pairs[pair[0], pair[1]] == 3
    assert counted.at_once[pair[0], pair[1]] == (3 if at_once else 0)
    assert counted.with_at_once == (3 if at_once else 1), (
        "once for each plan; in the first, of two that are equal"
    )


def test_two_faults_of_the_coordinator_or_of_the_service_are_at_once_too() -> None:
    published, counted = After(ProtocolPoint.PUBLICATION_STEP), DrawnPlans()
    for one, other in (
        (CrashCoordinator(), DelayChannel("totals[0]", COORDINATOR, 5, 5)),
        (CutObjectStore(5), KillObjectStore(5)),
        (CrashCoordinator(), KillObjectStore(5)),
    ):
        plan = planned(ScheduledFault(one, published), ScheduledFault(other, published))
        counted.add(plan, "standard", on_spark=False)
    assert dict(counted.at_once) == {
        ("crash_coordinator", "delay_channel"): 1,
        ("cut_object_store", "kill_object_store"): 1,
    }


def test_hosts_that_come_back_empty_are_counted_apart() -> None:
    counted = DrawnPlans()
    for returns in (False, True, True):
        lost = ScheduledFault(LoseHost("totals[0]", returns=returns), TAKEN)
        counted.add(planned(lost, lost), "standard", on_spark=False)
    assert (counted.kinds["lose_host"], counted.choices["lose_host.returns"]) == (3, 2)
    assert choices_of(LoseHost) == ("lose_host.returns",)


def test_a_choice_among_values_is_counted_by_its_value() -> None:
    counted, delay = DrawnPlans(), DelayChannel("totals[0]", COORDINATOR, 5, 5, direction=Direction.BACKWARD)
    counted.add(planned(ScheduledFault(delay, TAKEN)), "standard", on_spark=False)
    assert dict(counted.choices) == {"delay_channel.direction: backward": 1}
    assert len(choices_of(DelayChannel)) == len(Direction)


def test_processes_that_die_in_their_finalisers_are_counted_where_they_die() -> None:
    closing, counted = After(ProtocolPoint.CLOSING, "totals[0]"), DrawnPlans()
    counted.add(planned(ScheduledFault(KillWorker("totals[0]"), closing), PAUSED), "standard", on_spark=False)
    counted.add(
        planned(ScheduledFault(PauseWorker("totals[0]", 5), closing), PAUSED), "standard", on_spark=False
    )
    assert (counted.struck[ProtocolPoint.CLOSING], counted.deaths[ProtocolPoint.CLOSING]) == (2, 1)
    assert (counted.struck[ProtocolPoint.SNAPSHOT_TAKEN], counted.deaths[ProtocolPoint.SNAPSHOT_TAKEN]) == (
        2,
        0,
    )


def test_the_page_has_every_entry_of_the_tables_that_trials_can_reach_or_do_not() -> None:
    """An entry that no trial reaches is named: the number of the others is what is left."""
    machines = {cells[0]: (int(cells[1]), int(cells[2])) for cells in rows("| machine | entries | reached |")}
    never = [tuple(cells[:2]) for cells in rows("| machine | entry | why |")]
    entries = handled_entries()
    assert {(entry.machine, f"{entry.state}: `{entry.event}") for entry in entries} >= set(never)
    for machine, (known, reached_ones) in machines.items():
        own = [entry for entry in entries if entry.machine == machine]
        assert known == len(own), "run: python -m barrier_tck.harness.cli.drawn_page > docs/drawn.md"
        assert reached_ones == known - sum(name == machine for name, _ in never)
    assert set(machines) == {entry.machine for entry in entries}


def test_an_entry_counts_once_for_each_trial_that_reaches_it(tmp_path: Path) -> None:
    system, coverage = open_system("reference-simulated"), TableCoverage()
    triggered = TableEntry("CoordinatorMachine", "running", "TriggerDue")
    before = CoordinatorMachine.handle
    for _ in range(2):
        with coverage.trial():
            execute(filled(TrialPlan()), system, tmp_path, ())
    assert (coverage.trials, coverage.reached[triggered]) == (2, 2)
    assert CoordinatorMachine.handle is before
    with coverage.trial():
        pass
    assert (coverage.trials, coverage.reached[triggered]) == (3, 2)
    assert triggered not in coverage.never
    assert TableEntry("LoopTermination", *_first_of_loops()) in coverage.never


def _first_of_loops() -> tuple[str, str]:
    entry = next(entry for entry in handled_entries() if entry.machine == "LoopTermination")
    return entry.state, entry.event


def test_what_is_called_impossible_is_an_entry() -> None:
    assert set(IMPOSSIBLE) <= set(handled_entries())


def test_a_rule_or_a_reason_for_an_option_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_known()
    monkeypatch.setattr(public_options, "NOT_DRAWN", {**NOT_DRAWN, "JobConfig.gone": "a path"})
    with pytest.raises(InternalError, match=re.escape("'JobConfig.gone'")):
        require_known()


def test_an_option_that_is_new_counts_as_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Brand:
        new: int = 1

    from barrier_tck.reference_impl import job_api

    monkeypatch.setattr(job_api, "Brand", Brand, raising=False)
    monkeypatch.setattr(job_api, "__all__", [*job_api.__all__, "Brand"])
    known_options.cache_clear()
    try:
        assert {"Brand", "Brand.new"} <= set(DrawnPlans().never)
    finally:
        known_options.cache_clear()


def test_a_plan_of_defaults_sets_what_every_job_has_and_no_more() -> None:
    options = set_by(filled(TrialPlan()), on_spark=False)
    assert {"JobConfig.checkpoints", "KeyedStream.aggregate(emit)", "Emission.EACH_RECORD"} <= set(options)
    assert {"JobConfig.elastic", "ParquetSource", "Emission.CHANGES", "JobConfig.local_recovery"}.isdisjoint(
        options
    )


STATELESS = ("map", "filter", "flat_map")


@pytest.mark.parametrize("method", STATELESS)
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, set()),
        ({"uid": "mine"}, {"uid"}),
        ({"name": "mine"}, {"name"}),
        ({"parallelism": 3}, {"parallelism"}),
        ({"name": "mine", "uid": "mine", "parallelism": 3}, {"name", "uid", "parallelism"}),
    ],
    ids=["none", "uid", "name", "parallelism", "all"],
)
def test_a_stateless_step_shows_its_own_options_and_those_of_no_other_step(
    method: str, options: dict[str, Any], shown: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others stand beside it, one chained to the source and one behind a shuffle, with nothing set.

    It is chained, too, unless it is to be a vertex of its own: there its uid would be a name as well.
    """
    before, after = (other for other in STATELESS if other != method)
    stream = StreamJob("job").source(CollectionSource((), 1), parallelism=2, name="read")
    stream = step(step(stream, before), method, **options)
    graph = step(stream.rebalance(), after).sink(FileSink("out"), parallelism=1).build()
    monkeypatch.setattr(public_options, "build_graph", lambda *_: graph)
    found = {name for name in set_by(filled(TrialPlan()), on_spark=False) if name.startswith("Stream.")}
    of_steps = {name for name in found if any(f".{one}(" in name for one in STATELESS)}
    assert of_steps == {
        *(f"Stream.{one}()" for one in STATELESS),
        *(f"Stream.{method}({option})" for option in shown),
    }


def step(stream: Stream, method: str, **options: Any) -> Stream:
    functions: dict[str, Callable[[Row], Any]] = {"map": dict, "filter": bool, "flat_map": lambda row: [row]}
    added: Stream = getattr(stream, method)(functions[method], **options)
    return added


@pytest.mark.nightly
def test_every_option_is_set_by_a_plan_of_a_campaign_file() -> None:
    assert drawn_plans().never == ()


def test_campaigns_of_both_worlds_draw() -> None:
    assert set(campaigns_that_draw().values()) == {"reference-simulated", "reference-spark"}


def history(*operations: tuple[float, ops.Operation]) -> History:
    return History(
        operations=tuple(
            Recorded(number, time_ms, "coordinator", operation)
            for number, (time_ms, operation) in enumerate(operations)
        ),
        end=End.FINISHED,
        reason=Reason.FINISHED,
        detail="",
        output=None,
    )


def test_a_trace_shows_failures_by_what_came_before_them() -> None:
    plan = filled(TrialPlan())
    completed = [(float(number), ops.CheckpointCompleted(number, 1)) for number in range(1, 5)]
    trace = history(
        (0.0, ops.AttemptStarted(1, None)),
        *completed,
        (10.0, ops.AttemptEnded(1, Reason.PROCESS_LOST)),
        (11.0, ops.AttemptStarted(2, 4)),
        (12.0, ops.AttemptEnded(2, Reason.PROCESS_LOST)),
        (13.0, ops.Narrowed(3, 2, {"totals": 1})),
        (13.0, ops.AttemptStarted(3, 4)),
        (14.0, ops.CheckpointCompleted(5, 3)),
        (15.0, ops.AttemptEnded(3, Reason.PROCESS_LOST)),
        (16.0, ops.AttemptStarted(4, 5)),
        (20.0, ops.AttemptEnded(4, Reason.FINISHED)),
    )
    assert reached(plan, trace) == (
        Condition.FAILED_LATE,
        Condition.FAILED_AGAIN,
        Condition.NARROWER,
        Condition.FAILED,
        Condition.WIDE_AGAIN,
    )


def test_pairs_are_counted_once_for_each_trial_and_in_their_order() -> None:
    counted = ReachedConditions()
    counted.add((Condition.FAILED, Condition.STOPPED, Condition.FAILED))
    counted.add((Condition.FAILED, Condition.STOPPED))
    assert counted.each == {Condition.FAILED: 2, Condition.STOPPED: 2}
    assert counted.pairs[Condition.FAILED, Condition.STOPPED] == 2
    assert counted.pairs[Condition.STOPPED, Condition.FAILED] == 1
    assert Condition.NARROWER in counted.never
    assert f"{Condition.STOPPED}; then {Condition.STOPPED}" in counted.never


@pytest.mark.nightly
def test_chains_reach_most_conditions_within_a_few_trials() -> None:
    counted = run_chains(6)
    assert counted.trials == 6
    assert sum(counted.each[condition] > 0 for condition in Condition) >= 8


@pytest.mark.long
def test_plans_of_the_campaign_of_chains_have_several_links() -> None:
    configuration = msgspec.structs.replace(read_configuration(found_campaign(Path("chains"))), seed=1)
    plans = list(islice(campaign_plans(configuration, open_system("reference-simulated")), 10))
    # Hypothesis begins with the simplest plan.
    assert all(len(plan.faults) + len(plan.savepoints) >= 3 for plan in plans[1:])
