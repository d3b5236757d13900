"""What a kind of operator says of itself: its meaning, what it keeps, its parameters, and how it is drawn.

Each kind is a value ``KIND`` in a file of its own (``kinds/``). Code that must know whether an operator keeps state,
holds records back or ends a loop asks the kind, never for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.records import Bag, Record
from barrier_tck.harness.workloads.replayed import MakesReplayed

WAITING, TIMERS = "window", "~timers"
"""The names of two states of an operator that holds records back: these records, and when the timers of a key are due.
"""

EVENT_TIMERS = "~event-timers"
"""The name of the state with the times, in event time, at which something of a key is due."""

Between = Callable[[int, int], int]
"""Draws an integer between two bounds, both included; smaller numbers should give simpler results."""

Emits = Callable[[OperatorPlan, Record], Sequence[Record]]
"""Maps an operator and one record to what it emits for this record, whatever it keeps; its inputs form a union."""

KeyBefore = Callable[[OperatorPlan, str], str]
"""Maps an operator and the key of a record that it emitted to the key with which the record came."""

Parameters = Callable[[Between], Mapping[str, Any]]
"""Draws the parameters of an operator."""


class Keeps(Enum):
    """Where an operator keeps what it must not forget."""

    NOTHING = auto()
    BY_KEY = auto()
    """In keyed state: its subtasks own key groups, and its input edges are hash edges."""
    IN_LISTS = auto()
    """In lists without keys."""


@dataclass(frozen=True, slots=True)
class BagState:
    """What an operator keeps, and what it has emitted when it keeps this, as functions of bags.

    It does not matter in what order the records came. What is kept adds up: of two bags together it keeps what it keeps
    of each.
    """

    keeps: Callable[[OperatorPlan, Sequence[Bag]], Bag]
    """Turns the bag of each input into the content of the state: pairs of an input's number and a record."""
    emitted: Callable[[OperatorPlan, Bag], Bag]
    """Turns the content of the state into everything that was emitted until then."""
    emits_one_by_one: bool = True
    """Whether what is emitted adds up, too: it does not if records are emitted together, as pairs are."""


@dataclass(frozen=True, slots=True)
class HoldsBack:
    """How an operator holds records back until a timer of their key goes off."""

    parameter: str
    """The parameter that says for how long at most (ms)."""
    longest_ms: int
    """The most that it may say."""


class Place(Enum):
    """Where an operator may stand in a drawn graph."""

    BY_KEY = auto()
    """Behind hash edges, with one input or several, or chained behind another operator of this place."""
    ONE_INPUT = auto()
    """At the head of a vertex with one input, or chained behind any operator."""
    SEVERAL_INPUTS = auto()
    """At the head of a vertex with several inputs."""
    LEADING_BACK = auto()
    """At the head of the vertex through which a loop leads back."""


def no_parameters(_: Between) -> Mapping[str, Any]:
    """Return no parameters, and draw nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Drawn:
    """How an operator is drawn into graphs of lineage records."""

    place: Place
    parameters: Parameters = no_parameters
    chained: Parameters | None = None
    """Its parameters behind another operator; None if they are drawn as at the head of a vertex."""
    multiplies: bool = False
    """Whether it emits more records than reach it; a drawn graph does so in one place at most."""
    rank: int = 1
    """Simpler kinds have lower ranks: they are drawn for lower numbers, to which plans shrink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind:
    """A kind of operator.

    Its meaning is a function of the *bag* of records that reached it on each input, whatever their interleaving:
    ``emits`` or ``state``. Every graph of such operators is judged vertex by vertex (``dataflow_model``). A kind with
    neither depends on the interleaving; its workload needs a ``SequentialSpec``, or a checker of its own.
    """

    name: str
    """The name by which plans name it, and its file."""
    emits: Emits | None = None
    """What it emits for a record, if that does not depend on what it keeps."""
    state: BagState | None = None
    """What it keeps and emits, if its state is a bag of records."""
    keeps: Keeps = Keeps.NOTHING
    ends_loops: bool = False
    """Whether it lets no record go round a loop for ever; every loop must have such an operator."""
    holds_back: HoldsBack | None = None
    """How it holds records back, in states with the names ``WAITING`` and ``TIMERS``; None if it does not.

    It must not stand in a loop, which would end while records wait in it.
    """
    key_before: KeyBefore | None = None
    """The key that a record had, from the key that the operator gave it; None if it leaves keys as they are.

    So the oracle knows where hash edges had to send a record on its way (RSC-1).
    """
    problem: Callable[[OperatorPlan], str | None] = lambda _: None
    """Says what is wrong with an operator's parameters."""
    drawn: Drawn | None = None
    """How it is drawn into graphs; None if it is not, or only in the place of others."""
    replayed: MakesReplayed | None = None
    """Makes a model that replays what came to it, if its meaning depends on event time."""
    side_outputs: tuple[str, ...] = ()
    """The outputs on which it emits beside the main one."""
    joins: bool = False
    """Whether it is replayed with two sides: input 0 is the left one, and input 1 the right one."""
    stands_for: tuple[str, ...] = ()
    """The kinds that emit the same, in whose place it is drawn where a system can run it."""

    @property
    def keeps_by_key(self) -> bool:
        """Whether it keeps keyed state."""
        return self.keeps is Keeps.BY_KEY

    @property
    def keeps_lists(self) -> bool:
        """Whether it keeps lists without keys."""
        return self.keeps is Keeps.IN_LISTS

    @property
    def judged_apart(self) -> bool:
        """Whether what it emits is known, but its state is no bag of records; a checker of its own judges the state."""
        return self.emits is not None and self.keeps is not Keeps.NOTHING

    @property
    def has_meaning(self) -> bool:
        """Whether all that it emits and keeps is a function of bags."""
        return self.state is not None or (self.emits is not None and not self.judged_apart)
