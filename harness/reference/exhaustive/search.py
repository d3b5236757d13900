"""Searches all interleavings that differ of a model, with states recognised by their digests.

A *model* is a world that stands before a choice: it lists the steps that are possible, takes one, and can be copied.
Each step is an actor's. An actor takes it from a *queue*: an input channel, a mailbox, a timer, what it may do of
its own accord. Steps of different actors are independent, unless one puts something into a queue of the other.

Theory of operation (Flanagan and Godefroid, 2005, with the states of Yang and others, 2008). In each state one actor
is chosen, and all steps that it can take there are searched. If later something arrives for that actor whose cause
does not lie behind the step that it took, the two might have come the other way round: then, in the state before
that step, the actor is searched, too, with which the cause begins. What happens behind a state that was met before is
not searched again. For each state is remembered what arrived for which actor in the steps behind it, and from what in
the state that came (``Arrival``), so that the same comparison can be made with the steps that led there now.

A state says what can follow and not all that happened. Who judges what happened hears of each other way that leads to
a state that is known (``Watcher``).

The state graph has no cycles: no step is undone. One is an error (``Cyclic``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

EVERYBODY = "*"
"""The actor of a step that depends on all steps before it, and on which all later ones depend."""


class Step(NamedTuple):
    """A step that is possible now."""

    actor: str
    queue: str
    """Where the actor takes it from; two steps of an actor from one queue come in the queue's order."""

    def __str__(self) -> str:
        return self.queue


class Model(Protocol):
    """What is searched; it changes as steps are taken."""

    def steps(self) -> Sequence[Step]:
        """Return the steps that are possible now, in an order that depends on the state only; none at an end."""

    def own_accord(self, step: Step) -> bool:
        """Return whether a step is spontaneous, such as a crash: no actor is chosen because of it."""

    def waiting(self) -> dict[str, list[Step]]:
        """Return queue -> the steps that take what waits in it, in their order; empty queues may be left out."""

    def take(self, step: Step) -> None:
        """Take one of the steps."""

    def copy(self) -> bytes:
        """Return a copy of the state."""

    def restore(self, copied: bytes) -> None:
        """Go back to a state."""

    def digest(self) -> Hashable:
        """Return the same for two states if and only if all that can follow them is the same."""


class Watcher:
    """What a search reports to. States are named by their digests; this one looks at nothing."""

    def stepped(self, before: Hashable, after: Hashable) -> None:
        """A step led from a state of the path to another one; the model stands there."""

    def met_again(self, state: Hashable) -> bool:
        """The last step led to a state that is known, by another way; return whether to stop.

        The model stands there, and may be moved.
        """
        return False

    def ended(self) -> bool:
        """A distinct state in which no step is possible was reached, the last one of the path; return whether to stop.

        The model stands there, and may be changed.
        """
        return False


class Cyclic(Exception):
    """A state was reached again from itself."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which steps are left out because others stand for them. Both off: every path is walked."""

    order: bool = True
    """Of steps that are independent, one order is searched."""
    states: bool = True
    """What follows a state is searched once."""


BOTH = Reduction()


@dataclass
class Progress:
    """How far a search has come."""

    states: int = 0
    """Distinct states, the first one included."""
    steps: int = 0
    """Steps taken, apart from those that were taken again to come back to a state."""
    ends: int = 0
    """Distinct states in which no step is possible, except spontaneous ones (``own_accord``)."""
    depth: int = 0
    """Steps of the longest path."""
    complete: bool = False
    """Whether all of it was searched."""
    seconds: float = 0.0


class _Arrival(NamedTuple):
    """Something that came for an actor behind a state, before the actor took another step."""

    step: Step
    """The step that takes it."""
    needs: frozenset[tuple[str, int]]
    """(actor, -1) or (queue, place): what in the state it depends on."""
    first: str
    """The actor of the step with which its cause begins."""


@dataclass(slots=True)
class _Frame:
    """A state on the path."""

    digest: Hashable
    steps: Sequence[Step]
    waiting: dict[str, int]
    """Queue -> how much waits in it."""
    todo: list[Step]
    actors: dict[str, None]
    """The actors whose steps are searched here."""
    everything: int
    """All that the last step of everybody stands for, as a set of places on the path."""
    acts: dict[str, tuple[tuple[Step, int], ...]]
    """Actor -> its steps since then, each with all that happened before it."""
    sent: dict[str, tuple[int, ...]]
    """Queue -> for each thing that waits in it, what happened before it was put there."""
    done: list[Step] = field(default_factory=list)
    copied: bytes | None = None
    taken: Step | None = None
    """The step that is being searched."""
    new: dict[str, int] = field(default_factory=dict)
    """Queue -> how much the step that is being searched put there."""
    arrivals: dict[_Arrival, None] = field(default_factory=dict)


_Causes = tuple[int, dict[str, tuple[tuple[Step, int], ...]], dict[str, tuple[int, ...]]]


class Search:
    """One search of one model."""

    def __init__(
        self,
        model: Model,
        reduction: Reduction = BOTH,
        watcher: Watcher | None = None,
        seconds: float | None = None,
        shown: Callable[[Progress], None] = lambda progress: None,
        copy_every: int = 4,
    ) -> None:
        """Search from the model's present state; give up after so many ``seconds`` of processor time."""
        self._model = model
        self._reduction = reduction
        self._watcher = Watcher() if watcher is None else watcher
        self._seconds = seconds
        self._shown = shown
        self._copy_every = copy_every
        self._known: dict[Hashable, tuple[_Arrival, ...] | None] = {}
        self._next: dict[Hashable, tuple[Step, Hashable]] = {}
        """State -> the first step that was taken there, and where it led."""
        self._path: list[_Frame] = []
        self.progress = Progress()

    def run(self) -> Progress:
        """Search until all is searched, time is over, or the watcher says to stop."""
        progress, started = self.progress, time.process_time()
        first = self._digest()
        self._known[first] = None
        self._push(first)
        while self._path:
            frame = self._path[-1]
            progress.seconds = time.process_time() - started
            if self._seconds is not None and progress.seconds > self._seconds:
                return progress
            if not frame.todo:
                self._pop()
                continue
            step = frame.todo.pop(0)
            if not self._enter(step):
                return progress
            if progress.steps % 500 == 0:
                self._shown(progress)
        progress.complete = True
        return progress

    @property
    def path(self) -> tuple[Step, ...]:
        """Return the steps that lead to the present state."""
        return tuple(frame.taken for frame in self._path if frame.taken is not None)

    @property
    def state(self) -> Hashable:
        """Return the digest of the last state of the path."""
        return self._path[-1].digest

    def way_from(self, state: Hashable) -> Iterator[tuple[Step, Hashable]]:
        """Yield the steps that lead from a state that is known to an end, each with the state behind it."""
        while (found := self._next.get(state)) is not None:
            yield found
            state = found[1]

    def _digest(self) -> Hashable:
        return self._model.digest() if self._reduction.states else object()

    # --- the path -------------------------------------------------------------------------------------------

    def _push(self, digest: Hashable) -> None:
        model, place = self._model, len(self._path)
        steps = model.steps()
        causes: _Causes = (0, {}, {})
        if self._path:
            causes = self._causes()
        waiting = {queue: len(each) for queue, each in model.waiting().items()}
        frame = _Frame(digest, steps, waiting, [], {}, *causes)
        self._path.append(frame)
        self.progress.states += 1
        self.progress.depth = max(self.progress.depth, place)
        self._at = place
        if self._reduction.order:
            chosen = self._chosen(steps)
            if chosen != EVERYBODY:
                self._add(frame, chosen)
        if not frame.actors:
            self._add_all(frame)
        if place % self._copy_every == 0 and frame.todo:
            frame.copied = model.copy()

    def _chosen(self, steps: Sequence[Step]) -> str:
        """Return the actor with the fewest steps to search; of several, the first one."""
        actors = dict.fromkeys(step.actor for step in steps if not self._model.own_accord(step))
        return min(actors, key=lambda actor: len(self._together(steps, actor)), default=EVERYBODY)

    def _add(self, frame: _Frame, actor: str) -> None:
        """Search an actor in a state."""
        if actor not in frame.actors:
            frame.actors[actor] = None
            frame.todo += self._together(frame.steps, actor)

    def _together(self, steps: Sequence[Step], actor: str) -> list[Step]:
        """Return all steps of an actor: their order always makes a difference."""
        return [step for step in steps if step.actor == actor]

    def _add_all(self, frame: _Frame) -> None:
        """Search all steps in a state."""
        frame.actors.update((step.actor, None) for step in frame.steps)
        frame.todo += [step for step in frame.steps if step not in frame.todo and step not in frame.done]

    def _enter(self, step: Step) -> bool:
        """Take a step from the last state of the path; return False if the search is to stop."""
        self._come_back()
        frame, model = self._path[-1], self._model
        frame.taken = step
        frame.done.append(step)
        model.take(step)
        self.progress.steps += 1
        self._at += 1
        after = model.waiting()
        left = dict(frame.waiting)
        left[step.queue] = left.get(step.queue, 0) - 1
        frame.new = {
            queue: len(each) - max(0, left.get(queue, 0))
            for queue, each in after.items()
            if len(each) > max(0, left.get(queue, 0))
        }
        self._compare_new(after)
        digest = self._digest()
        self._watcher.stepped(frame.digest, digest)
        self._next.setdefault(frame.digest, (step, digest))
        if digest in self._known:
            known = self._known[digest]
            if known is None:
                raise Cyclic(f"a state is reached again from itself, by {step}")
            self._compare_known(known)
            self._propagate(known)
            return not self._watcher.met_again(digest)
        self._known[digest] = None
        self._push(digest)
        if all(model.own_accord(step) for step in self._path[-1].steps):
            self.progress.ends += 1
            self._at = -1
            return not self._watcher.ended()
        return True

    def _come_back(self) -> None:
        """Bring the model to the last state of the path."""
        last = len(self._path) - 1
        if self._at == last:
            return
        start = next(place for place in range(last, -1, -1) if self._path[place].copied is not None)
        copied = self._path[start].copied
        assert copied is not None
        self._model.restore(copied)
        for frame in self._path[start:last]:
            assert frame.taken is not None
            self._model.take(frame.taken)
        self._at = last

    def _pop(self) -> None:
        frame = self._path.pop()
        self._at = -1
        arrivals = tuple(frame.arrivals)
        if self._reduction.states:
            self._known[frame.digest] = arrivals
        if self._path:
            self._propagate(arrivals)

    # --- what happened before what --------------------------------------------------------------------------

    def _past(self, frame: _Frame, step: Step) -> int:
        """Return all that happens before a step in a state of the path."""
        if step.actor == EVERYBODY:
            return (1 << len(self._path)) - 1
        past = frame.everything
        waiting = frame.sent.get(step.queue, ())
        if waiting:
            past |= waiting[0]
        for _, before in frame.acts.get(step.actor, ()):
            past |= before
        return past

    def _causes(self) -> _Causes:
        """Return for the state behind the last step of the path what happened before each part of it."""
        frame = self._path[-1]
        step = frame.taken
        assert step is not None
        acts, sent, everything = dict(frame.acts), dict(frame.sent), frame.everything
        past = self._past(frame, step) | (1 << (len(self._path) - 1))
        if step.actor == EVERYBODY:
            everything, acts = past, {}
            sent = {queue: (everything,) * len(each) for queue, each in sent.items()}
        else:
            acts[step.actor] = (*acts.get(step.actor, ()), (step, past))
            if sent.get(step.queue):
                sent[step.queue] = sent[step.queue][1:]
        for queue, count in frame.new.items():
            sent[queue] = sent.get(queue, ()) + (past,) * count
        return everything, acts, sent

    def _compare_new(self, after: dict[str, list[Step]]) -> None:
        """Compare what the last step put into empty queues of other actors with what these did before."""
        if not self._reduction.order:
            return
        frame = self._path[-1]
        step = frame.taken
        assert step is not None
        if step.actor == EVERYBODY:
            return
        past: int | None = None
        for queue, count in frame.new.items():
            taking = after[queue]
            if len(taking) > count or taking[0].actor == step.actor:
                continue
            if past is None:
                past = self._past(frame, step) | (1 << (len(self._path) - 1))
            self._compare(taking[0], past, step.actor)
            needs = {(step.actor, -1)}
            if frame.waiting.get(step.queue):
                needs.add((step.queue, 0))
            frame.arrivals[_Arrival(taking[0], frozenset(needs), step.actor)] = None

    def _compare(self, taking: Step, past: int, first: str) -> None:
        """Search the other order, too, if something came that could have been taken before the actor's last step."""
        for place in range(len(self._path) - 1, -1, -1):
            frame = self._path[place]
            taken = frame.taken
            assert taken is not None
            if taken.actor == EVERYBODY:
                return
            if taken.actor != taking.actor:
                continue
            if past >> place & 1 or taken.queue == taking.queue:
                return
            cause = next(
                (
                    later.taken.actor
                    for position, later in enumerate(self._path[place + 1 :], start=place + 1)
                    if past >> position & 1 and later.taken is not None
                ),
                first,
            )
            if any(step.actor == cause for step in frame.steps):
                self._add(frame, cause)
            else:
                self._add_all(frame)
            return

    def _compare_known(self, arrivals: Sequence[_Arrival]) -> None:
        """Compare what is known to come behind the state that was just met again with the steps that led there."""
        if not self._reduction.order or not arrivals:
            return
        everything, acts, sent = self._causes()
        for arrival in arrivals:
            past = everything
            for what, place in arrival.needs:
                if place < 0:
                    for _, before in acts.get(what, ()):
                        past |= before
                else:
                    waiting = sent.get(what, ())
                    past |= waiting[place] if place < len(waiting) else 0
            self._compare(arrival.step, past, arrival.first)

    def _propagate(self, arrivals: Sequence[_Arrival]) -> None:
        """Tell the last state of the path what comes behind the step that was searched from it."""
        if not self._reduction.order:
            return
        frame = self._path[-1]
        step = frame.taken
        assert step is not None
        if step.actor == EVERYBODY:
            return
        had = frame.waiting
        consumed = had.get(step.queue, 0) > 0
        for arrival in arrivals:
            if arrival.step.actor == step.actor:
                continue
            needs: set[tuple[str, int]] = set()
            caused = False
            for what, place in arrival.needs:
                if place < 0:
                    caused |= what == step.actor
                    if what != step.actor:
                        needs.add((what, place))
                    continue
                then = place + 1 if consumed and what == step.queue else place
                if then >= had.get(what, 0):
                    caused = True
                else:
                    needs.add((what, then))
            if caused:
                needs.add((step.actor, -1))
                if consumed:
                    needs.add((step.queue, 0))
            first = step.actor if caused else arrival.first
            frame.arrivals[_Arrival(arrival.step, frozenset(needs), first)] = None
