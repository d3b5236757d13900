"""Whether aligned sources kept their bound, link by link, and what is said where one did not (EVT-6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.evidence.aligned_sources import (
    AlignedSource,
    announcement_problem,
    groups_of,
    held_for_nothing,
    learned_problem,
)
from barrier_tck.harness.oracle.evidence.replayed_subtask import (
    BEGINNING,
    END,
    InputTime,
    ReplayedSubtask,
    Valve,
)
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.record.elements import Polled, ToldTime
from barrier_tck.harness.record.operations import SourcesAligned

PARAMETERS = {"bound_ms": 0, "drift_ms": 100, "report_ms": 5}
READ = VertexPlan("read", SOURCE, 2, PARAMETERS)
DRIFT = 100


def source(index: int = 0, **times: InputTime) -> AlignedSource:
    """Return a subtask with splits of ten records, of which none is read, at these times."""
    model = ReplayedSubtask(READ, 8, Valve(dict(times)), offsets=dict.fromkeys(times, 0))
    return AlignedSource(f"read[{index}]", model, False, dict.fromkeys(times, 10))


def looked(split: str = "", *held: str) -> Polled:
    row = {"key": "k", "ts": 1}
    return Polled(split, 0, (row,) if split else (), ("s", "t"), held=held)


def test_a_report_is_the_smallest_watermark_of_the_active_splits() -> None:
    one = source(s=InputTime(5), t=InputTime(3, idle=True))
    assert one.report_problem(ToldTime(5)) is None
    assert one.report_problem(ToldTime(3)) == "read[0] reported the watermark 3, and stood at the watermark 5"
    assert str(one.report_problem(ToldTime(5, idle=True))).startswith("read[0] reported that it is idle")
    one.model.valve.inputs["s"].idle = True
    assert one.report_problem(ToldTime(99, idle=True)) is None
    assert one.reports == [ToldTime(5), ToldTime(3), ToldTime(5, idle=True), ToldTime(99, idle=True)]


def test_an_end_is_reported_once_all_is_read() -> None:
    one = source(s=InputTime(5))
    assert one.report_problem(ToldTime(5, ended=True)) == "read[0] reported its end, and s has more"
    one.model.offsets["s"] = 10
    assert one.report_problem(ToldTime(5, ended=True)) is None
    one.model.valve.at = END
    assert one.report_problem(ToldTime(5)) == "read[0] reported the watermark 5, and stood at its end"
    assert source().report_problem(ToldTime(BEGINNING, ended=True)) is None, "it has no split"


def test_that_a_split_had_ended_is_learned_anew_behind_a_restore() -> None:
    one = source(s=InputTime(5, ended=True), t=InputTime(7))
    assert one.report_problem(ToldTime(5)) is None
    assert one.held_problem(looked("t")) is None
    assert one.report_problem(ToldTime(5)) == "read[0] reported the watermark 5, and stood at the watermark 7"


def test_no_split_is_read_beyond_what_was_learned_last() -> None:
    one = source(s=InputTime(), t=InputTime(50))
    assert one.ahead_problem(looked("s")) is None, "it has no watermark yet"
    assert one.ahead_problem(looked("t")) == "read[0] read t@0 at the watermark 50, and none yet was allowed"
    one.learn(50)
    assert one.ahead_problem(looked("t")) is None
    one.learn(49)
    assert one.ahead_problem(looked("t")) == "read[0] read t@0 at the watermark 50, and 49 was allowed"
    assert one.ahead_problem(looked()) is None


def test_no_split_is_passed_over_that_may_be_read() -> None:
    one = source(s=InputTime(), t=InputTime(50))
    one.learn(49)
    assert one.held_problem(looked("s", "t")) is None
    assert one.held_problem(looked("", "s", "t")) == (
        f"read[0] passed over s at the watermark {BEGINNING}, and 49 was allowed"
    )


def announced(
    largest: int, *, idle: tuple[str, ...] = (), ended: tuple[str, ...] = (), **at: int
) -> SourcesAligned:
    active = {f"read[{name[1:]}]": value for name, value in at.items()}
    return SourcesAligned(1, "group 0", largest, active, idle, ended)


def members_with(*reports: list[ToldTime]) -> dict[str, AlignedSource]:
    found = {}
    for index, own in enumerate(reports):
        found[f"read[{index}]"] = one = source(index)
        one.reports += own
    return found


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (announced(105, r0=5, r1=9), None),
        (announced(109, idle=("read[0]",), r1=9), None),
        (announced(END, idle=("read[0]",), ended=("read[1]",)), None),
        (announced(109, r0=5, r1=9), "must be allowed 105 (the slowest: read[0]; idle: none; ended: none)"),
        (announced(105, idle=("read[0]",), r1=9), "must be allowed 109"),
        (announced(109, r1=9), "without a report of each of read[0], read[1]"),
        (announced(107, r0=7, r1=9), "by a report of read[0] that it had not made then"),
    ],
)
def test_an_announcement_follows_from_one_report_of_each(said: SourcesAligned, problem: str | None) -> None:
    known = members_with([ToldTime(5), ToldTime(5, idle=True)], [ToldTime(9), ToldTime(9, ended=True)])
    found = announcement_problem(said, [READ], {}, known)
    assert found is None if problem is None else problem in str(found)


def test_no_announcement_follows_from_older_reports_than_the_one_before() -> None:
    known, places = members_with([ToldTime(5), ToldTime(6)], [ToldTime(9)]), dict[str, int]()
    assert announcement_problem(announced(106, r0=6, r1=9), [READ], places, known) is None
    assert "had not made then" in str(announcement_problem(announced(105, r0=5, r1=9), [READ], places, known))


def test_what_is_learned_was_announced_in_this_order() -> None:
    one = source()
    for largest in (105, 105, 130):
        one.learn(largest)
    assert learned_problem(one, [105, 120, 130]) is None
    assert str(learned_problem(one, [130, 105])).startswith(
        "read[0] learned, as number 2, that 130 is allowed"
    )


def standing(index: int, at: int, **how: Any) -> AlignedSource:
    """Return a subtask whose only split stands at a time, and that has said so for a long time."""
    one = source(index, s=InputTime(at, **how))
    one.reports += [ToldTime(at, **how)] * 20
    return one


def test_a_split_that_is_held_for_ever_is_named_if_nobody_is_behind() -> None:
    ahead = standing(0, 150)
    ahead.held = ("s",)
    assert list(held_for_nothing([ahead, standing(1, 10)], DRIFT)) == [], "one is behind"
    for behind in (standing(1, 10, idle=True), standing(1, 60)):
        (sentence,) = held_for_nothing([ahead, behind], DRIFT)
        assert sentence.startswith(
            "read[0] does not read s at the watermark 150, and nobody is further behind"
        )
    moving = standing(1, 60)
    moving.reports[-1] = ToldTime(61)
    assert list(held_for_nothing([ahead, moving], DRIFT)) == [], "what it said last may be under way"


def test_groups_are_told_apart() -> None:
    other = msgspec.structs.replace(READ, name="other", parameters={**PARAMETERS, "group": 1})
    alone = msgspec.structs.replace(READ, name="alone", parameters={"bound_ms": 0})
    sources = READ, other, alone
    edges = tuple(EdgePlan(one.name, "out", Spread.REBALANCE) for one in sources)
    job = JobPlan("generated", vertices=(*sources, VertexPlan("out", SINK, 1)), edges=edges)
    assert groups_of(job) == {0: [READ], 1: [other]}
