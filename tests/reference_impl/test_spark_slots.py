"""Assigning subtasks to slots: a pure function, tested as a table and by property."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, LocalCopy, SubtaskSnapshot
from barrier_tck.reference_impl.protocol.slots import Slot, assign, homes_of
from barrier_tck.reference_impl.runtime_errors import JobUsageError

WORKERS = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def slots_on(*hosts: str) -> list[Slot]:
    return [Slot(host, f"executor-{host}", number) for number, host in enumerate(hosts)]


def subtasks_of(vertex: str, width: int) -> list[SubtaskId]:
    return [SubtaskId(vertex, index) for index in range(width)]


_slots = st.lists(st.sampled_from(WORKERS), min_size=1, max_size=12).map(lambda hosts: slots_on(*hosts))


def test_subtasks_of_a_vertex_go_to_different_hosts() -> None:
    slots = slots_on(*WORKERS, *WORKERS)
    chosen = assign(slots, [*subtasks_of("source", 3), *subtasks_of("totals", 3)])
    for vertex in ("source", "totals"):
        assert {slot.host for subtask, slot in chosen.items() if subtask.vertex == vertex} == set(WORKERS)


def test_the_host_with_more_free_slots_is_preferred() -> None:
    chosen = assign(slots_on("a", "b", "b"), subtasks_of("sink", 1))
    assert chosen[SubtaskId("sink", 0)].host == "b"


@given(_slots, st.data())
def test_every_subtask_gets_a_slot_of_its_own(slots: list[Slot], data: st.DataObject) -> None:
    subtasks = subtasks_of("totals", data.draw(st.integers(0, len(slots))))
    chosen = assign(slots, subtasks)
    assert list(chosen) == subtasks
    assert len({slot.number for slot in chosen.values()}) == len(subtasks)
    assert all(slot in slots for slot in chosen.values())


@given(_slots)
def test_no_host_takes_more_of_a_vertex_than_it_must(slots: list[Slot]) -> None:
    width = min(len(slots), 4)
    placed = Counter(slot.host for slot in assign(slots, subtasks_of("totals", width)).values())
    free = Counter(slot.host for slot in slots)
    # A host has more than another one only if the other one has no slot left.
    assert all(placed[low] + 1 >= placed[high] or placed[low] == free[low] for low in free for high in free)


@given(_slots, st.randoms(use_true_random=False))
def test_the_order_in_which_slots_registered_does_not_matter(slots: list[Slot], order: random.Random) -> None:
    subtasks = subtasks_of("totals", len(slots))
    shuffled = list(slots)
    order.shuffle(shuffled)
    assert assign(shuffled, subtasks) == assign(slots, subtasks)


def test_too_few_slots_are_refused_with_both_numbers() -> None:
    with pytest.raises(JobUsageError, match="3 subtasks need as many slots, and there are 2"):
        assign(slots_on("a", "b"), subtasks_of("totals", 3))


def test_a_slot_listed_twice_is_refused() -> None:
    with pytest.raises(JobUsageError, match="slot 0 is listed twice"):
        assign([Slot("a", "1", 0), Slot("b", "2", 0)], subtasks_of("totals", 1))


# --- homes (LOC-9) ------------------------------------------------------------------------------------------

HOME = CompletedCheckpoint(
    CheckpointId(4),
    AttemptNumber(2),
    0,
    1,
    tuple(SubtaskSnapshot(subtask, AttemptNumber(2), ()) for subtask in subtasks_of("totals", 3)),
)


def copy_of(index: int, checkpoint: int = 4, attempt: int = 2) -> LocalCopy:
    return LocalCopy(SubtaskId("totals", index), CheckpointId(checkpoint), AttemptNumber(attempt))


def test_a_subtask_goes_back_to_the_host_that_holds_its_copy() -> None:
    totals = subtasks_of("totals", 3)
    homes = homes_of(HOME, {"a": [copy_of(2)], "b": [copy_of(0)], "c": [copy_of(1)]})
    chosen = assign(slots_on("a", "b", "c", "a"), totals, homes)
    assert [chosen[subtask].host for subtask in totals] == ["b", "c", "a"]


def test_a_subtask_that_lost_its_slot_takes_a_free_one_and_evicts_nobody() -> None:
    totals = subtasks_of("totals", 3)
    homes = {totals[0]: ("gone",), totals[1]: ("a",), totals[2]: ("b",)}
    chosen = assign(slots_on("a", "b", "c"), totals, homes)
    assert [chosen[subtask].host for subtask in totals] == ["c", "a", "b"]


def test_a_copy_of_another_checkpoint_or_attempt_is_no_home() -> None:
    assert homes_of(HOME, {"a": [copy_of(0, checkpoint=3)], "b": [copy_of(1, attempt=1)]}) == {}
    assert homes_of(None, {"a": [copy_of(0)]}) == {}


def test_a_subtask_with_two_homes_makes_room_for_one_that_has_only_one() -> None:
    first, second, _ = subtasks_of("totals", 3)
    chosen = assign(slots_on("a", "b"), [first, second], {first: ("a", "b"), second: ("a",)})
    assert (chosen[first].host, chosen[second].host) == ("b", "a")


@given(st.data(), _slots)
def test_as_many_as_possible_return_and_every_subtask_has_its_own_slot(
    data: st.DataObject, slots: list[Slot]
) -> None:
    subtasks = subtasks_of("totals", data.draw(st.integers(1, len(slots))))
    homes = {subtask: (data.draw(st.sampled_from((*WORKERS, "gone"))),) for subtask in subtasks}
    chosen = assign(slots, subtasks, homes)
    assert len({slot.number for slot in chosen.values()}) == len(subtasks)
    capacity = Counter(slot.host for slot in slots)
    wanted = Counter(home for (home,) in homes.values())
    returned = sum(chosen[subtask].host in homes[subtask] for subtask in subtasks)
    assert returned == sum(min(count, capacity[host]) for host, count in wanted.items())
