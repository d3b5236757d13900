"""What reached each place, read checkpoint by checkpoint: only what is new is read."""

from __future__ import annotations

from typing import Any

from barrier_tck.harness.oracle.evidence.arrivals import Arrivals, CameRecords, Growth
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.record.history import InFlight, SnapshotView, StateView
from barrier_tck.harness.workloads.lineage import source

JOB = JobPlan(
    vertices=(source("read"), VertexPlan("last", "keep", 1), VertexPlan("out", SINK, 1)),
    edges=(EdgePlan("read", "last", Spread.HASH, ("key",)), EdgePlan("last", "out", Spread.FORWARD)),
)


class Once(list[Any]):
    """An item of a list that may be read once."""

    def __iter__(self) -> Any:
        assert not self.was_read, f"{list.__repr__(self)} is read again"
        self.was_read = True
        return super().__iter__()

    was_read = False


def item(identifier: int) -> Once:
    return Once([0, identifier, "read[0]"])


def view(number: int, items: list[Any], *in_flight: int, written: int = 0) -> SnapshotView:
    rows = tuple({"id": one, "path": "", "key": "k"} for one in in_flight)
    output = tuple({"id": one, "path": "last[0]", "key": "k"} for one in range(written))
    return SnapshotView(
        number,
        1,
        {},
        state=(StateView("last", "last[0]", "seen", {'["k"]': items}),),
        in_flight=(InFlight("read[0]", "last[0]", 0, rows),) if rows else (),
        reached_sinks=output,
        reached_by=("out[0]",) * written,
    )


def came(arrivals: Arrivals, shown: SnapshotView) -> dict[tuple[str, ...], CameRecords]:
    return {each.place: each for each, _ in arrivals.in_checkpoint(None, shown)}


KEPT, WRITTEN = ("last[0]", "last", "seen", '["k"]'), ("out[0]", "written")


def test_of_a_list_that_has_grown_only_the_end_is_read_and_is_new() -> None:
    arrivals, growth = Arrivals(JOB), Growth()
    first = [item(1), item(2)]
    before = came(arrivals, view(1, first))[KEPT]
    assert (growth.known(before), [each[1] for each in before.taken_from(0)]) == (0, [1, 2])
    now = came(arrivals, view(2, [*first, item(3)]))[KEPT]
    known = growth.known(now)
    assert (known, [each[1] for each in now.taken_from(known)]) == (2, [3])
    assert len(before.taken_from(0)) == 2, "what the first checkpoint held is as it was"


def test_of_a_list_that_is_another_one_nothing_is_known() -> None:
    arrivals, growth = Arrivals(JOB), Growth()
    growth.known(came(arrivals, view(1, [item(1), item(2)]))[KEPT])
    for items in ([item(1)], [item(4)]):
        now = came(arrivals, view(2, items))[KEPT]
        assert growth.known(now) == 0
        assert len(now.taken_from(0)) == len(items)


def test_a_checkpoint_is_read_once_for_all_who_ask() -> None:
    arrivals, shown = Arrivals(JOB), view(1, [item(1)])
    assert came(arrivals, shown) == came(arrivals, shown)
    assert [growth.known(came(arrivals, shown)[KEPT]) for growth in (Growth(), Growth())] == [0, 0]


def test_what_is_in_flight_comes_next_and_is_never_known() -> None:
    arrivals, growth = Arrivals(JOB), Growth()
    growth.known(came(arrivals, view(1, [item(1)], 2))[KEPT])
    now = came(arrivals, view(2, [item(1), item(2)], 3))[KEPT]
    assert [each[1] for each in now.coming] == [3]
    assert [each[1] for each in now.taken_from(0)] == [1, 2]


def test_what_sinks_wrote_grows_too() -> None:
    arrivals, growth = Arrivals(JOB), Growth()
    growth.known(came(arrivals, view(1, [], written=2))[WRITTEN])
    now = came(arrivals, view(2, [], written=5))[WRITTEN]
    assert (growth.known(now), now.number) == (2, 5)
