"""The models of joins, rankings and deduplication against the runtime's operators: what they emit and hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.reference.operator_kind import Site
from barrier_tck.harness.reference.operators import reference_kinds
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.workloads.event_time import EventTime
from barrier_tck.harness.workloads.event_time_parameters import DRIFT, GROUP, IDLE_AFTER
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.joined_records import FORMS, windows_at
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.replayed import KeyState
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.functions import Row
from tests.reference_impl.event_time_runs import Run, Step, steps_with
from tests.reference_impl.opened_operators import GROUPS, PLANES

JOINS = ("event_interval_join", "event_window_join")

forms = st.fixed_dictionaries({}, optional={"form": st.sampled_from(sorted(FORMS))})
windows = st.fixed_dictionaries(
    {"size_ms": st.integers(1, 15)},
    optional={"slide_ms": st.integers(1, 15), "offset_ms": st.integers(0, 9)},
)
rankings = st.fixed_dictionaries(
    {
        "n": st.integers(1, 3),
        "by": st.lists(
            st.sampled_from(["ts", "id", "mark", "n", "-ts", "-id", "-mark", "-n"]),
            min_size=1,
            max_size=2,
            unique_by=lambda column: column.lstrip("-"),
        ),
    }
)


def intervals(lower_ms: int, length_ms: int) -> dict[str, int]:
    return {"lower_ms": lower_ms, "upper_ms": lower_ms + length_ms}


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


parameters = {
    "event_interval_join": st.builds(
        both, st.builds(intervals, st.integers(-12, 8), st.integers(0, 12)), forms
    ),
    "event_window_join": st.builds(both, windows, forms),
    "event_deduplicate": st.fixed_dictionaries({"horizon_ms": st.integers(0, 12)}),
    "event_top_n": st.builds(both, rankings, windows | st.fixed_dictionaries({"gap_ms": st.integers(1, 12)})),
}


def record(key: str, ts: int, identifier: int, mark: int, n: int) -> Row:
    return {"k": key, "key": key, "ts": ts, "id": identifier, "mark": mark, "n": n, "how": ""}


def rows(inputs: int) -> st.SearchStrategy[Step]:
    """Return records, some of which are equal in all but their id, or in that, too."""
    records = st.builds(
        record,
        st.sampled_from(["x", "y"]),
        st.integers(-12, 40),
        st.integers(0, 300),
        st.integers(0, 2),
        st.integers(1, 2),
    )
    return st.tuples(st.just("row"), st.integers(0, inputs - 1), records)


def job_with(operator: OperatorPlan, inputs: int) -> JobPlan:
    sources = [VertexPlan(f"s{number}", "source", 1, {"bound_ms": 1}) for number in range(inputs)]
    return JobPlan(
        vertices=(
            *sources,
            VertexPlan(operator.name, operator.kind, 1, operator.parameters),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            *(
                EdgePlan(source.name, operator.name, Spread.HASH, ("key",), number)
                for number, source in enumerate(sources)
            ),
            EdgePlan(operator.name, "out", Spread.FORWARD),
        ),
    )


class Compared:
    """A model beside the operator of the runtime."""

    def __init__(self, operator: OperatorPlan, plane: DataPlane) -> None:
        inputs = 2 if operator.kind in JOINS else 1
        job = job_with(operator, inputs)
        assert EventTime().problem_of(job) is None
        self.kind = reference_kinds()[operator.kind]
        site = Site(job, DeploymentPlan(), operator, (("key",),) * inputs, EventTime())
        self.run = Run(self.kind.make(site), plane, tuple(one.name for one in self.kind.states[:-1]))
        made = kind_named(operator.kind).replayed
        assert made is not None
        self.model = made(operator)
        self.kept: dict[str, KeyState] = {}

    def do(self, step: Step) -> None:
        late = len(self.run.late)
        emitted: list[tuple[str, Row]] = []
        if step[0] == "row":
            _, number, row = step
            watermark = self.run.watermark(row["key"])
            emitted += self.model.take(self.kept.setdefault(row["key"], {}), number, row, watermark)
        if step == ("end",):
            self.run.end()
        else:
            self.run.do(step)
        for key, kept in self.kept.items():
            emitted += self.model.due(kept, key, self.run.watermark(key))
        for key in self.kept:
            # Of one key, even the order in which they are emitted is the same.
            assert of_key(self.run.newest, key) == of_key([row for output, row in emitted if not output], key)
        assert self.run.late[late:] == [row for output, row in emitted if output]
        self.compare_states()

    def compare_states(self) -> None:
        store = self.run.operator._opened()[1]
        for state in self.kind.states:
            shown = {
                decode_key(key)[0]: state.read(data)
                for group in range(GROUPS)
                for key, data in store.scan(state.name, group)
            }
            entries = {key: self.model.entries(kept) for key, kept in self.kept.items()}
            wanted = {key: as_shown(one[state.name]) for key, one in entries.items() if state.name in one}
            assert shown == wanted


def as_shown(held: Any) -> Any:
    """Return the content of a state as a snapshot shows it: a map as a list of pairs."""
    return [[number, one] for number, one in sorted(held.items())] if isinstance(held, dict) else held


def of_key(emitted: Sequence[Row], key: str) -> list[Row]:
    return [
        {name: value for name, value in row.items() if name != "k"} for row in emitted if row["key"] == key
    ]


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
@pytest.mark.parametrize("kind", sorted(parameters))
@given(data=st.data())
def test_a_model_emits_and_holds_what_the_runtime_does(
    kind: str, plane: DataPlane, data: st.DataObject
) -> None:
    operator = OperatorPlan("op", kind, data.draw(parameters[kind]))
    compared = Compared(operator, plane)
    for step in data.draw(steps_with(rows(2 if kind in JOINS else 1))):
        compared.do(step)
    compared.do(("end",))
    assert not any(compared.model.entries(kept) for kept in compared.kept.values())


def test_windows_are_those_in_which_a_time_lies() -> None:
    assert windows_at(7, 10, 5) == [(0, 10), (5, 15)]
    assert windows_at(-1, 10, 10) == [(-10, 0)]
    assert windows_at(7, 10, 5, 3) == [(-2, 8), (3, 13)]
    assert windows_at(8, 3, 5) == [] and windows_at(7, 3, 5) == [(5, 8)]


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("kind", JOINS)
def test_what_an_outer_join_emits_alone_depends_on_its_form(kind: str, form: str) -> None:
    wanted = {"lower_ms": 0, "upper_ms": 5} if kind == "event_interval_join" else {"size_ms": 10}
    compared = Compared(OperatorPlan("op", kind, {**wanted, "form": form}), PLANES[0])
    for number, row in ((0, record("x", 1, 5, 7, 1)), (1, record("y", 2, 6, 8, 2))):
        compared.do(("row", number, row))
    compared.do(("watermark", 40))
    alone = {"left": {("x", 5, 1)}, "right": {("y", 6, 2)}, "full": {("x", 5, 1), ("y", 6, 2)}}
    assert {(row["key"], row["id"], row["n"]) for row in compared.run.newest} == alone.get(form, set())


@pytest.mark.parametrize(
    ("kind", "wanted", "says"),
    [
        ("event_interval_join", {"lower_ms": 5, "upper_ms": 1}, "nothing would match"),
        ("event_interval_join", {"lower_ms": 0}, "upper_ms"),
        ("event_interval_join", {"lower_ms": 0, "upper_ms": 1, "form": "outer"}, "inner, left, right, full"),
        ("event_window_join", {"gap_ms": 5}, "no parameter 'gap_ms'"),
        ("event_window_join", {"slide_ms": 5}, "needs size_ms"),
        ("event_deduplicate", {"horizon_ms": -1}, "horizon_ms"),
        ("event_top_n", {"n": 0, "by": ["id"], "size_ms": 5}, "needs n"),
        ("event_top_n", {"n": 1, "by": ["key"], "size_ms": 5}, "a list of columns"),
        ("event_top_n", {"n": 1, "by": ["id", "-id"], "size_ms": 5}, "at most once"),
        ("event_top_n", {"n": 1, "by": ["id"], "size_ms": 5, "gap_ms": 5}, "or gap_ms"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(kind: str, wanted: dict[str, Any], says: str) -> None:
    problem = EventTime().problem_of(job_with(OperatorPlan("op", kind, wanted), 2 if kind in JOINS else 1))
    assert problem is not None and says in problem


def test_a_join_has_two_inputs_and_all_others_have_one() -> None:
    join = OperatorPlan("op", "event_window_join", {"size_ms": 5})
    assert "needs two inputs" in str(EventTime().problem_of(job_with(join, 1)))
    distinct = OperatorPlan("op", "event_deduplicate", {"horizon_ms": 5})
    assert "takes one input" in str(EventTime().problem_of(job_with(distinct, 2)))


def test_drawn_jobs_have_all_kinds_and_are_accepted() -> None:
    system = ReferenceSimulated()
    plans = draw_plans(3, 400, profile_named("event-time"), Constraints(system.job, system.capabilities))
    kinds = {one.kind for plan in plans for vertex in plan.job.vertices for one in vertex.operators}
    assert set(parameters) <= kinds
    assert {EventTime().problem_of(plan.job) for plan in plans} == {None}


def test_drawn_sources_are_aligned_in_a_share_of_jobs_with_slow_idle_and_short_ones_among_them() -> None:
    system = ReferenceSimulated()
    plans = draw_plans(3, 400, profile_named("event-time"), Constraints(system.job, system.capabilities))
    drawn = [plan for plan in plans if plan.job.shape == GENERATED]
    aligned = [[one for one in plan.job.sources if DRIFT in one.parameters] for plan in drawn]
    share = sum(map(bool, aligned)) / len(drawn)
    assert 1 / 6 < share < 1 / 2
    assert any(len({one.parameters.get(GROUP, 0) for one in sources}) == 2 for sources in aligned)
    assert any(0 < len(sources) < len(plan.job.sources) for sources, plan in zip(aligned, drawn, strict=True))
    assert any(IDLE_AFTER in one.parameters for sources in aligned for one in sources)
    lengths = [
        [
            len(split.rows)
            for split in EventTime().splits(plan)
            if split.vertex in [one.name for one in sources]
        ]
        for sources, plan in zip(aligned, drawn, strict=True)
        if sources
    ]
    assert any(max(of_job) > 2 * min(of_job) for of_job in lengths if of_job), "some end early"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"drift_ms": 5}, {}, "needs drift_ms and report_ms, or neither"),
        ({"report_ms": 5}, {}, "needs drift_ms and report_ms, or neither"),
        ({"drift_ms": 5, "report_ms": 0}, {}, "a whole number from 1"),
        (
            {"drift_ms": 5, "report_ms": 1},
            {"drift_ms": 6, "report_ms": 1},
            "of the other sources of its group",
        ),
        ({"drift_ms": 5, "report_ms": 1}, {"drift_ms": 6, "report_ms": 1, "group": 1}, None),
        ({"drift_ms": 5, "report_ms": 1}, {}, None),
    ],
)
def test_aligned_sources_of_a_group_have_one_bound(
    first: dict[str, int], second: dict[str, int], says: str | None
) -> None:
    sources = [
        VertexPlan(name, SOURCE, 1, {"bound_ms": 0, **own}) for name, own in (("a", first), ("b", second))
    ]
    edges = tuple(EdgePlan(one.name, "out", Spread.REBALANCE) for one in sources)
    job = JobPlan(GENERATED, vertices=(*sources, VertexPlan("out", SINK, 1)), edges=edges)
    problem = EventTime().problem_of(job)
    assert problem is None if says is None else says in str(problem)
