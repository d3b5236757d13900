"""A model of one subtask in event time: it takes what the subtask took, and says what must come of it.

It is written from what watermarks and windows promise (EVT-1, EVT-2, EVT-5), and shares no code with a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from barrier_tck.harness.oracle.evidence.key_groups import group_of_text, owner_of_group
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, VertexPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.replayed import Emitted, KeyState, ReadsClock, ReplayedOperator

BEGINNING, END = -(1 << 62), (1 << 62) - 1
"""The watermark before the first one, and behind the last record (ms)."""


@dataclass(slots=True)
class InputTime:
    """How far event time has come on an input channel, or in a split."""

    at: int = BEGINNING
    idle: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """The key groups that a former subtask owned, and how far event time had come for them."""

    owners: tuple[tuple[int, int], ...]
    """Index and parallelism of the subtask that owned them, in each job on the way."""
    at: int


@dataclass(frozen=True, slots=True)
class WatermarkDue:
    """A watermark that must be sent on every output channel."""

    at: int
    idle: bool


Due = Emitted | WatermarkDue
"""What must be sent: a row on an output, or a watermark."""


@dataclass(slots=True)
class Valve:
    """The smallest watermark of the inputs that are active."""

    inputs: dict[str, InputTime]
    at: int = BEGINNING
    idle: bool = False

    def copy(self) -> Valve:
        """Return another valve that stands where this one does."""
        inputs = {name: InputTime(one.at, one.idle, one.ended) for name, one in self.inputs.items()}
        return Valve(inputs, self.at, self.idle)

    def look(self) -> bool:
        """Combine the inputs anew; return whether anything has changed."""
        before = self.at, self.idle
        still_open = [one for one in self.inputs.values() if not one.ended]
        active = [one.at for one in still_open if not one.idle]
        self.idle = bool(still_open) and not active
        if not still_open:
            self.at = END
        else:
            self.at = max(self.at, min(active) if active else max(one.at for one in still_open))
        return before != (self.at, self.idle)


@dataclass(slots=True)
class SavedSubtask:
    """What a model held when its subtask stood at a checkpoint."""

    kept: bytes
    """Per operator, what it keeps by key."""
    valve: Valve
    floors: tuple[Floor, ...]
    offsets: dict[str, int]
    inherited: dict[tuple[str, ...], tuple[Floor, Valve]]
    finished: bool = False
    """Whether the subtask had finished before."""
    repeats: bool = False
    """Whether it had yet to repeat its watermark."""


@dataclass
class ReplayedSubtask:
    """The model of one subtask of one attempt."""

    vertex: VertexPlan
    groups: int
    """Number of key groups."""
    valve: Valve
    floors: list[Floor] = field(default_factory=list)
    kept: list[dict[str, KeyState]] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    """Of a source: split -> the number of the record that it reads next."""
    inherited: dict[tuple[str, ...], tuple[Floor, Valve]] = field(default_factory=dict)
    """Former receivers, one after the other -> the key groups that went this way, and the valve of the first one."""
    repeats: bool = False
    """Whether it sends its watermark once more, since its receivers are others than before."""
    operators: list[ReplayedOperator] = field(init=False)
    _raised: Floor | None = None
    _raised_for: int = 0
    """For so many operators, the first ones, event time has come to ``_raised`` within a step."""
    _at: list[int] = field(init=False)
    """How far event time has come for each operator, within a step."""

    def __post_init__(self) -> None:
        plans = [one for one in self.vertex.operators if one.kind not in (SOURCE, SINK)]
        self.operators = [_made(kind_named(one.kind).replayed)(one) for one in plans]
        self.names = [one.name for one in plans]
        self.kept = self.kept or [{} for _ in plans]
        self._at = [self.valve.at for _ in plans]

    # --- steps ----------------------------------------------------------------------------------------------

    def take(self, number: int, rows: Iterable[Row]) -> list[Due]:
        """Take a batch of an input of the vertex."""
        due: list[Due] = []
        touched = self._through(0, [(number, row) for row in rows], due)
        self._fire_due(touched, due)
        return due

    def take_watermark(self, name: str, at: int, idle: bool) -> list[Due]:
        """Take a watermark of an input channel."""
        one = self.valve.inputs[name]
        one.at, one.idle = max(one.at, at), idle
        return self._advanced() if self.valve.look() or self.repeats else []

    def take_inherited(self, receivers: tuple[str, ...], name: str, at: int, idle: bool) -> list[Due]:
        """Take a watermark that was on its way to a former receiver, on a channel with a name."""
        if receivers not in self.inherited:
            return []
        floor, valve = self.inherited[receivers]
        one = valve.inputs.get(name)
        if one is None:
            return []
        one.at, one.idle = max(one.at, at), idle
        if not valve.look() or valve.at <= self.valve.at:
            return []
        due: list[Due] = []
        self._raised = Floor(floor.owners, valve.at)
        for place in range(len(self.operators)):
            self._raised_for = place + 1
            self._fired(place, list(self.kept[place]), due)
        self.floors.append(self._raised)
        self._raised_for = 0
        return due

    def end_input(self, name: str) -> list[Due]:
        """Take that no record follows on an input channel; the end of all of them is ``end``."""
        self.valve.inputs[name].ended = True
        return self._advanced() if self.valve.look() and self.valve.at != END else []

    def end(self) -> list[Due]:
        """Take that the whole input has ended."""
        due: list[Due] = []
        self._advance_operators(END, due)
        for one in self.valve.inputs.values():
            one.ended = True
        self.valve.look()
        return due

    def read(
        self,
        split: str,
        rows: Sequence[Row],
        bound: int,
        still_open: Sequence[str],
        idle: Sequence[str],
    ) -> list[Due]:
        """Read a batch of a split, or nothing; ``idle`` are the splits that count as idle behind it."""
        due: list[Due] = []
        if rows:
            self.offsets[split] = self.offsets.get(split, 0) + len(rows)
            one = self.valve.inputs[split]
            returned = one.idle
            one.idle = False
            if (returned and self.valve.look()) or self.repeats:
                due += self._advanced()
            due += self.take(0, rows)
            one.at = max(one.at, max(row["ts"] for row in rows) - bound - 1)
        for name, entry in self.valve.inputs.items():
            if still_open and self.valve.at != END:
                # Behind a restore, a reader learns that a split has ended when it looks at it.
                entry.ended = name not in still_open
            entry.idle = name in idle
        if self.valve.look() or self.repeats:
            due += self._advanced()
        return due

    # --- the clock ------------------------------------------------------------------------------------------

    def clock_shows(self, at_ms: int) -> None:
        """Take what time it is in the next step."""
        for model in self.operators:
            if isinstance(model, ReadsClock):
                model.now_ms = at_ms

    def stand(self, clocks: Mapping[str, int]) -> None:
        """Take that a snapshot is made, by the clock that each operator saw; what is over by then is not in it."""
        for name, model, keys in zip(self.names, self.operators, self.kept, strict=True):
            if isinstance(model, ReadsClock):
                model.now_ms = clocks.get(name, model.now_ms)
                for kept in keys.values():
                    model.remove_what_is_over(kept)

    # --- state ----------------------------------------------------------------------------------------------

    def saved(self) -> SavedSubtask:
        """Return what it holds now."""
        kept = msgspec.msgpack.encode(self.kept)
        inherited = {path: (floor, valve.copy()) for path, (floor, valve) in self.inherited.items()}
        return SavedSubtask(
            kept, self.valve.copy(), tuple(self.floors), dict(self.offsets), inherited, repeats=self.repeats
        )

    def entries(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return (operator, state) -> key -> what a snapshot must show."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for name, model, keys in zip(self.names, self.operators, self.kept, strict=True):
            for key, kept in keys.items():
                for state, content in model.entries(kept).items():
                    found.setdefault((name, state), {})[key] = content
        return found

    @property
    def open_keys(self) -> list[str]:
        """Return which operators and keys still hold something that must go with the input, as no clock ends it."""
        clocked = [
            name
            for name, model in zip(self.names, self.operators, strict=True)
            if isinstance(model, ReadsClock)
        ]
        return [
            f"{name} for {key}"
            for (name, _), keys in self.entries().items()
            if name not in clocked
            for key in keys
        ]

    # --- inside ---------------------------------------------------------------------------------------------

    def _watermark_of(self, key: str, place: int) -> int:
        seen = (
            [*self.floors, self._raised]
            if self._raised is not None and place < self._raised_for
            else self.floors
        )
        group = group_of_text(key, self.groups) if seen else 0
        floors = [
            one.at
            for one in seen
            if all(owner_of_group(group, width, self.groups) == index for index, width in one.owners)
        ]
        return max([self._at[place], *floors])

    def _through(self, start: int, rows: list[tuple[int, Row]], due: list[Due]) -> list[list[str]]:
        """Pass rows through the operators from a place on; return the keys that each operator has taken."""
        touched: list[list[str]] = [[] for _ in self.operators]
        for place in range(start, len(self.operators)):
            model, keys = self.operators[place], self.kept[place]
            following: list[tuple[int, Row]] = []
            for number, row in rows:
                key = row["key"]
                touched[place].append(key)
                watermark = self._watermark_of(key, place)
                for output, emitted in model.take(keys.setdefault(key, {}), number, row, watermark):
                    if output:
                        due.append((output, emitted))
                    else:
                        following.append((0, emitted))
            rows = following
        due.extend(("", row) for _, row in rows)
        return touched

    def _fire_due(self, touched: Sequence[Iterable[str]], due: list[Due]) -> None:
        waiting = [list(dict.fromkeys(keys)) for keys in touched]
        for place in range(len(self.operators)):
            for later, keys in enumerate(self._fired(place, waiting[place], due)):
                waiting[later] = list(dict.fromkeys([*waiting[later], *keys]))

    def _fired(self, place: int, keys: Iterable[str], due: list[Due]) -> list[list[str]]:
        model, kept = self.operators[place], self.kept[place]
        rows: list[tuple[int, Row]] = []
        for key in keys:
            if key in kept:
                for output, row in model.due(kept[key], key, self._watermark_of(key, place)):
                    if output:
                        due.append((output, row))
                    else:
                        rows.append((0, row))
        return self._through(place + 1, rows, due) if rows else []

    def _advance_operators(self, at: int, due: list[Due]) -> None:
        for place in range(len(self.operators)):
            self._at[place] = max(self._at[place], at)
            self._fired(place, list(self.kept[place]), due)

    def _advanced(self) -> list[Due]:
        due: list[Due] = []
        self._advance_operators(self.valve.at, due)
        due.append(WatermarkDue(self.valve.at, self.valve.idle))
        self.repeats = False
        return due


def _made(make: Callable[..., ReplayedOperator] | None) -> Callable[..., ReplayedOperator]:
    assert make is not None, "the workload takes only operators that can be replayed"
    return make


def as_it_was(vertex: VertexPlan, groups: int, saved: SavedSubtask) -> ReplayedSubtask:
    """Return a model that goes on where one stood."""
    return ReplayedSubtask(
        vertex,
        groups,
        saved.valve.copy(),
        list(saved.floors),
        kept_in(saved),
        dict(saved.offsets),
        {path: (floor, valve.copy()) for path, (floor, valve) in saved.inherited.items()},
        repeats=saved.repeats,
    )


def kept_in(saved: SavedSubtask) -> list[dict[str, KeyState]]:
    """Return a copy of what a saved model kept, per operator and key."""
    kept: list[dict[str, KeyState]] = msgspec.msgpack.decode(saved.kept, strict=False)
    return kept


def merged_kept(
    saved: Iterable[SavedSubtask], operators: int, owns: Callable[[str], bool]
) -> list[dict[str, KeyState]]:
    """Return what a subtask takes over of former ones: that of its own keys."""
    found: list[dict[str, KeyState]] = [{} for _ in range(operators)]
    for one in saved:
        for place, keys in enumerate(kept_in(one)):
            found[place].update({key: held for key, held in keys.items() if owns(key)})
    return found


def by_edge(valves: Iterable[Valve]) -> Mapping[str, InputTime]:
    """Return ``vertex#edge`` -> where channels of an edge begin if their senders are others than before."""
    edges: dict[str, list[InputTime]] = {}
    for valve in valves:
        for name, one in valve.inputs.items():
            edges.setdefault(edge_of_input(name), []).append(one)
    return {edge: _together(states) for edge, states in edges.items()}


def _together(states: Sequence[InputTime]) -> InputTime:
    still_open = [one for one in states if not one.ended]
    active = [one.at for one in still_open if not one.idle]
    reached = min(active or [one.at for one in still_open or states])
    return InputTime(reached, bool(still_open) and not active, not still_open)


def edge_of_input(channel: str) -> str:
    """Return the edge of a channel ``sender->receiver#edge``, as ``vertex#edge`` of its sender."""
    ends, _, edge = channel.rpartition("#")
    sender = ends.partition("->")[0]
    return f"{sender.rpartition('[')[0]}#{edge}"


def each_row(due: Iterable[Due]) -> Iterator[Emitted]:
    """Yield what must be sent but watermarks."""
    for one in due:
        if not isinstance(one, WatermarkDue):
            yield one
