"""Digests of object graphs: equal however the objects came about, and different where something could differ later."""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.reference.exhaustive.state_digest import StateDigester


class Told(msgspec.Struct, frozen=True):
    text: str
    numbers: tuple[float, ...] = ()


class Note(msgspec.Struct):
    told: Told
    by: list[str]


@dataclass
class Process:
    name: str
    mail: deque[Told] = field(default_factory=deque)
    other: Process | None = None
    seen: set[str] = field(default_factory=set)

    def take(self, told: Told) -> None:
        self.mail.append(told)


class Story:
    """What a rule leaves out."""

    def __init__(self, text: str) -> None:
        self.text = text


def counter(first: int) -> Callable[[], int]:
    number = first

    def count() -> int:
        nonlocal number
        number += 1
        return number

    return count


def digest(part: Any) -> bytes:
    def rule_of(kind: type) -> Callable[[Any], Any] | None:
        return (lambda _: None) if kind is Story else None

    return StateDigester(rule_of, lambda _: False).digest(part)


def a_state(text: str = "text") -> Any:
    first, second = Process("ab"), Process("c")
    first.other, second.other = second, first
    told = Told(text, (1.0, 0.0))
    first.take(told)
    second.seen |= {"x", "y", "zz"}
    calls = [first.take, partial(second.take, told), counter(3), second.mail.append]
    return {"first": first, "calls": calls, "note": Note(told, ["ab"]), "story": Story("it was so")}


def copied(part: Any) -> Any:
    return pickle.loads(pickle.dumps(part))


def test_equal_graphs_have_equal_digests_whichever_objects_they_share() -> None:
    assert digest(a_state()) == digest(a_state())
    name = "name"
    assert digest([name, name]) == digest([name, copied(name)])
    told = Told("t", (0.0,))
    assert digest((told, told)) == digest((told, copied(told)))
    assert digest({"one": 1, "two": [Note(told, [])]}) == digest(copied({"one": 1, "two": [Note(told, [])]}))


def test_two_holders_of_one_list_are_not_two_of_equal_lists() -> None:
    one: list[int] = []
    assert digest([one, one]) != digest([[], []])
    first, second = Process("a"), Process("a")
    assert digest([first, first]) != digest([first, second])


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["first"].mail.append(Told("")),
        lambda state: state["first"].other.seen.add("w"),
        lambda state: setattr(state["first"].other, "name", "d"),
        lambda state: setattr(state["first"].other, "other", None),
        lambda state: state["note"].by.append("c"),
        lambda state: setattr(state["note"], "told", Told("text", (1.0, -0.0))),
        lambda state: state["calls"][2](),
        lambda state: state["calls"].__setitem__(0, state["first"].other.take),
        lambda state: state["calls"].__setitem__(1, partial(state["first"].take, Told("text", (1.0, 0.0)))),
        lambda state: state["calls"].__setitem__(3, state["first"].other.mail.popleft),
        lambda state: state.update(more=None),
        lambda state: state.update(note=1),
    ],
)
def test_whatever_can_make_a_difference_is_in_the_digest(change: Callable[[Any], object]) -> None:
    changed = a_state()
    change(changed)
    assert digest(changed) != digest(a_state())


def test_texts_that_look_alike_one_after_the_other_are_told_apart() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    between = "\x00s1\x00"
    assert digest([f"a{between}b", "c"]) != digest(["a", f"b{between}c"])
    assert digest([1]) != digest(["1"]) != digest([b"1"])
    assert digest([True]) != digest([1])
    assert digest([[1], 2]) != digest([[1, 2]])
    assert digest({"a": None}) != digest({"a": "None"})


def test_neither_the_order_of_a_set_nor_what_a_rule_leaves_out_makes_a_difference() -> None:
    there, back = set(map(str, range(40))), set(map(str, reversed(range(40))))
    assert digest(there) == digest(back) != digest(there - {"7"})
    assert digest(frozenset(there)) == digest(frozenset(back))
    other = a_state()
    other["story"].text = "it was otherwise"
    assert digest(other) == digest(a_state())


def test_what_was_digested_is_not_kept() -> None:
    digester = StateDigester(lambda kind: None, lambda _: False)
    process = Process("a")
    digester.digest([process, process.take])
    gone = weakref.ref(process)
    del process
    assert gone() is None
