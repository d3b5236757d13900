"""The Hypothesis state machine: it draws steps that make sense, plays them on a session, and remembers failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.candidate_wire import StorageFault
from barrier_tck.harness.certify.comparison import Session
from barrier_tck.harness.certify.pool import Candidate, Pool
from barrier_tck.harness.certify.store_models import NAMES, RANGES, Violation

SHRINK_S_MAX = 2.0
"""For how many seconds, at most, a failing sequence is made smaller."""
HUNG_MAX, FATAL_MAX = 3, 30
"""How often a failure may be repeated to make it smaller, if it costs a time limit, or only the process."""

_KEYS = st.one_of(
    st.sampled_from([b"a", b"b", b"", b"\x00", b"a\x00", b"\xff\xfe", b"k" * 500]), st.binary(max_size=6)
)
_VALUES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"", b"\x00\x00", b"\xff" * 3]),
    st.just(70_000).map(lambda length: b"v" * length),
)
_NAMES = st.sampled_from(NAMES)
_STORES = st.sampled_from([0, 1])
_FAULTS = st.builds(StorageFault, st.integers(1, 6), st.sampled_from(["error", "short", "close"]))


@dataclass(slots=True)
class Hunt:
    """What all examples of one property share: the process that is used again, the counts, the failure."""

    pool: Pool
    candidate: Candidate | None = None
    examples: int = 0
    calls: int = 0
    steps_played: int = 0
    processes: int = 0
    failure: tuple[tuple[steps.AnyStep, ...], Violation] | None = None
    hung: int = 0
    fatal: int = 0
    first_failed_at: float | None = None
    shrink_s: float = SHRINK_S_MAX
    """For how many seconds a failing sequence is made smaller; 0 if it is enough to know that it fails."""
    kinds: dict[str, int] = field(default_factory=dict)
    """How often each kind of step was played."""
    shown: dict[str, int] = field(default_factory=dict)
    """How often each clause was shown."""

    @property
    def give_up(self) -> bool:
        """Whether to stop, because the time for shrinking or the total time is used up."""
        if self.pool.remaining_s < 0 or self.hung >= HUNG_MAX or self.fatal >= FATAL_MAX:
            return True
        return self.first_failed_at is not None and time.monotonic() - self.first_failed_at > self.shrink_s

    @property
    def give_up_shrinking(self) -> bool:
        """Whether a failing sequence is not made smaller any more."""
        return self.pool.remaining_s < 0 or self.hung > 0

    def begin(self) -> Session:
        """Start an example, in the present process if there is one."""
        candidate, self.candidate = self.candidate, None
        return Session(self.pool, candidate)

    def ended(self, session: Session) -> None:
        """Count an example that passed, and keep its process."""
        self._count(session)
        self.candidate = session.end()

    def failed(self, session: Session, violation: Violation) -> None:
        """Remember the smallest failing sequence."""
        self._count(session)
        self.candidate = session.retire(violation)
        self.hung += violation.hung
        self.fatal += violation.fatal
        if self.first_failed_at is None:
            self.first_failed_at = time.monotonic()
        found = tuple(session.steps), violation
        if self.failure is None or _size(found[0]) <= _size(self.failure[0]):
            self.failure = found

    def close(self) -> None:
        """Give the process back."""
        if self.candidate is not None:
            self.pool.give_back(self.candidate)
            self.candidate = None

    def _count(self, session: Session) -> None:
        self.examples += 1
        self.calls += session.calls
        self.steps_played += len(session.steps)
        self.processes += session.processes
        for step in session.steps:
            kind = str(type(step).__struct_config__.tag)
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        for clause, times in session.shown.items():
            self.shown[clause] = self.shown.get(clause, 0) + times


def _size(sequence: tuple[steps.AnyStep, ...]) -> tuple[int, int]:
    return len(sequence), len(msgspec.json.encode(sequence))


def may(move: str) -> Callable[[CertifyMachine], bool]:
    """Return the precondition of a move: its property has it, and the hunt goes on."""
    return lambda machine: move in machine.moves and not machine.over


def _may_take(move: str) -> Callable[[CertifyMachine], bool]:
    """A backend that does not declare concurrent snapshots has one unfinished snapshot at a time in each store."""
    return lambda machine: may(move)(machine) and (machine.concurrent or not machine.unfinished())


class CertifyMachine(RuleBasedStateMachine):
    """All moves; a property's own subclass says which of them are allowed, and holds the hunt."""

    hunt: Hunt
    moves: frozenset[str]
    restarts_max = 2
    concurrent = True
    """Whether several snapshots of a store may be unfinished at once."""
    capability = ""
    """The capability that the move ``promise`` checks."""
    incremental = False
    """Whether stores are asked for increments (SNP-5)."""
    finale: str = "here"
    """Where every completed snapshot is compared at the end: ``here``, or ``elsewhere`` (also in a new process)."""

    def __init__(self) -> None:
        """Open two empty stores, unless the hunt is over."""
        super().__init__()
        self.over = self.hunt.give_up
        self.restarts = 0
        self.session: Session | None = None
        self._failed = False
        if not self.over:
            try:
                self.session = self.hunt.begin()
            except Violation as violation:
                self._remember_unopened(violation)
                raise
            if self.incremental:
                self.play(steps.Layout(RANGES, incremental=True))

    def play(self, *sequence: steps.AnyStep) -> None:
        """Play steps; the first violation ends the example."""
        session = self.open_session
        try:
            for step in sequence:
                session.apply(step)
        except Violation as violation:
            self._failed = True
            self.hunt.failed(session, violation)
            raise
        except BaseException:
            # After Ctrl-C between a request and its reply, the next reply on the link would answer the old request.
            self._give_up(session)
            raise

    def _give_up(self, session: Session) -> None:
        self._failed = True
        session.abandon()

    def unfinished(self) -> bool:
        """Return whether a snapshot is under way in either store."""
        return any(model.under_way("taken", "started") for model in self.open_session.stores)

    def snapshot(self, store: int, checkpoint: int, fault: StorageFault | None = None) -> steps.Snapshot:
        """Return the step that begins a snapshot: an increment in most cases, if there are any."""
        if not self.incremental or checkpoint % 5 == 0:
            return steps.Snapshot(store, checkpoint, fault)
        session = self.open_session
        usable = session.stores[store].reusable(session.attempt) or [1]
        # What is older than the newest one may be deleted meanwhile.
        return steps.Snapshot(store, checkpoint, fault, usable[-1 if checkpoint % 3 == 0 else 0])

    @property
    def open_session(self) -> Session:
        assert self.session is not None
        return self.session

    def teardown(self) -> None:
        """Compare everything that is left to compare, if the example did not fail."""
        if self.session is None or self._failed:
            return
        try:
            self._play_finale(self.session)
            self.session.close()
        except Violation as violation:
            self._failed = True
            self.hunt.failed(self.session, violation)
            raise
        except BaseException:
            self._give_up(self.session)
            raise
        self.hunt.ended(self.session)

    def _play_finale(self, session: Session) -> None:
        for store in (0, 1):
            for checkpoint in session.stores[store].under_way("started"):
                session.apply(steps.Finish(store, checkpoint))
        session.verify_all()
        if self.finale == "elsewhere":
            newest = [model.completed()[-1] if model.completed() else 0 for model in session.stores]
            for store in (0, 1):
                if newest[store]:
                    session.apply(steps.Verify(store, newest[store], elsewhere=True))
                    break

    def _remember_unopened(self, violation: Violation) -> None:
        self._failed = True
        self.hunt.failure = self.hunt.failure or ((), violation)
        self.hunt.fatal += FATAL_MAX

    def _drawn(self, data: st.DataObject, numbers: list[int]) -> int | None:
        return data.draw(st.sampled_from(numbers)) if numbers else None

    def _group(self, data: st.DataObject, store: int) -> int:
        start, end = RANGES[store]
        return data.draw(st.sampled_from([start, start + 1, end - 1]))

    # --- reads and writes -----------------------------------------------------------------------------------

    @precondition(may("write"))
    @rule(data=st.data(), store=_STORES, name=_NAMES, key=_KEYS, value=_VALUES)
    def put(self, data: st.DataObject, store: int, name: str, key: bytes, value: bytes) -> None:
        """Write."""
        self.play(steps.Put(store, name, self._group(data, store), key, value))

    @precondition(may("write"))
    @rule(data=st.data(), store=_STORES, name=_NAMES, key=_KEYS)
    def delete(self, data: st.DataObject, store: int, name: str, key: bytes) -> None:
        """Delete a key, in most cases one that exists."""
        present = sorted(self.open_session.stores[store].entries)
        existing: int = data.draw(st.integers(0, 3))
        if present and existing:
            name, group, key = data.draw(st.sampled_from(present))
        else:
            group = self._group(data, store)
        self.play(steps.Delete(store, name, group, key))

    @precondition(may("write"))
    @rule(data=st.data(), store=_STORES, name=_NAMES, entries=st.lists(st.tuples(_KEYS, _VALUES), max_size=4))
    def put_many(
        self, data: st.DataObject, store: int, name: str, entries: list[tuple[bytes, bytes]]
    ) -> None:
        """Write several."""
        groups = tuple(self._group(data, store) for _ in entries)
        keys, values = tuple(key for key, _ in entries), tuple(value for _, value in entries)
        self.play(steps.PutMany(store, name, groups, keys, values))

    @precondition(may("read"))
    @rule(data=st.data(), store=_STORES, name=_NAMES, keys=st.lists(_KEYS, min_size=1, max_size=3))
    def read(self, data: st.DataObject, store: int, name: str, keys: list[bytes]) -> None:
        """Read one key, several, or all; more often than not a key that exists."""
        group = self._group(data, store)
        present = sorted(self.open_session.stores[store].entries)
        existing: int = data.draw(st.integers(0, 3))
        if present and existing:
            name, group, key = data.draw(st.sampled_from(present))
            keys = [key, *keys]
        self.play(
            steps.Get(store, name, group, keys[0]),
            steps.GetMany(store, name, (group,) * len(keys), tuple(keys)),
            steps.Scan(store, name, group),
        )

    # --- snapshots ------------------------------------------------------------------------------------------

    @precondition(_may_take("snapshot"))
    @rule(store=_STORES)
    def take_snapshot(self, store: int) -> None:
        """Run the synchronous part."""
        self.play(self.snapshot(store, self.open_session.next_checkpoint))

    @precondition(may("snapshot"))
    @rule(data=st.data(), store=_STORES)
    def run_snapshot(self, data: st.DataObject, store: int) -> None:
        """Run an asynchronous part, not always that of the oldest snapshot."""
        checkpoint = self._drawn(data, self.open_session.stores[store].under_way("taken"))
        if checkpoint is not None:
            self.play(steps.Run(store, checkpoint))

    @precondition(_may_take("checkpoint"))
    @rule(store=_STORES)
    def checkpoint(self, store: int) -> None:
        """Take a whole snapshot and confirm it."""
        self.checkpoint_of(store)

    def checkpoint_of(self, store: int) -> None:
        """Take a whole snapshot of a store and confirm it."""
        number = self.open_session.next_checkpoint
        self.play(self.snapshot(store, number), steps.Run(store, number), steps.Confirm(store, number))

    @precondition(may("background"))
    @rule(data=st.data(), store=_STORES, stop_at=st.integers(1, 4))
    def start_snapshot(self, data: st.DataObject, store: int, stop_at: int) -> None:
        """Start an asynchronous part that stops in the middle; one at a time, as in the runtime."""
        model = self.open_session.stores[store]
        checkpoint = self._drawn(data, model.under_way("taken"))
        if checkpoint is not None and not model.under_way("started"):
            self.play(steps.Start(store, checkpoint, stop_at))

    @precondition(may("background"))
    @rule(data=st.data(), store=_STORES)
    def finish_snapshot(self, data: st.DataObject, store: int) -> None:
        """Let a stopped asynchronous part continue."""
        checkpoint = self._drawn(data, self.open_session.stores[store].under_way("started"))
        if checkpoint is not None:
            self.play(steps.Finish(store, checkpoint))

    @precondition(may("notify"))
    @rule(data=st.data(), store=_STORES, twice=st.booleans())
    def cancel(self, data: st.DataObject, store: int, twice: bool) -> None:
        """Cancel at any time, perhaps too late, perhaps twice."""
        model = self.open_session.stores[store]
        checkpoint = self._drawn(data, model.under_way("taken", "started", "completed"))
        if checkpoint is not None:
            self.play(*[steps.Cancel(store, checkpoint)] * (1 + twice))

    @precondition(_may_take("notify"))
    @rule(store=_STORES, twice=st.booleans(), stop_at=st.integers(0, 4))
    def cancel_and_end(self, store: int, twice: bool, stop_at: int) -> None:
        """Cancel before the asynchronous part begins (0) or in its middle; then let it come to its end."""
        number = self.open_session.next_checkpoint
        cancel = [steps.Cancel(store, number)] * (1 + twice)
        self.play(self.snapshot(store, number))
        if stop_at and not self.open_session.stores[store].under_way("started"):
            self.play(steps.Start(store, number, stop_at), *cancel, steps.Finish(store, number))
        else:
            self.play(*cancel, steps.Run(store, number))

    @precondition(may("notify"))
    @rule(data=st.data(), store=_STORES, twice=st.booleans())
    def abort(self, data: st.DataObject, store: int, twice: bool) -> None:
        """Abort, perhaps twice."""
        model = self.open_session.stores[store]
        unconfirmed = [number for number, one in sorted(model.snapshots.items()) if not one.confirmed]
        checkpoint = self._drawn(data, unconfirmed)
        if checkpoint is not None:
            self.play(*[steps.AbortSnapshot(store, checkpoint)] * (1 + twice))

    @precondition(may("notify"))
    @rule(data=st.data(), store=_STORES, twice=st.booleans())
    def confirm(self, data: st.DataObject, store: int, twice: bool) -> None:
        """Confirm in any order, perhaps twice."""
        session = self.open_session
        model = session.stores[store]
        here = [n for n in model.completed() if model.snapshots[n].attempt == session.attempt]
        checkpoint = self._drawn(data, here)
        if checkpoint is not None:
            self.play(*[steps.Confirm(store, checkpoint)] * (1 + twice))

    @precondition(_may_take("fail"))
    @rule(data=st.data(), store=_STORES, fault=_FAULTS)
    def fail_snapshot(self, data: st.DataObject, store: int, fault: StorageFault) -> None:
        """Make storage fail during a whole snapshot; sometimes write before the runtime learns of the failure."""
        number = self.open_session.next_checkpoint
        self.play(self.snapshot(store, number, fault))
        if data.draw(st.booleans()):
            self.play(steps.Put(store, NAMES[0], RANGES[store][0], b"a", data.draw(st.binary(max_size=3))))
        self.play(steps.Run(store, number))
        if data.draw(st.booleans()):
            self.play(steps.Cancel(store, number))
        self.play(steps.AbortSnapshot(store, number))

    @precondition(may("promise"))
    @rule(keys=st.lists(_KEYS, min_size=1, max_size=6, unique=True))
    def promise(self, keys: list[bytes]) -> None:
        """Check that the backend keeps what it declares."""
        self.play(steps.Promise(self.capability, tuple(keys), self.open_session.next_checkpoint))

    # --- restores -------------------------------------------------------------------------------------------

    @precondition(may("verify"))
    @rule(data=st.data(), store=_STORES)
    def verify(self, data: st.DataObject, store: int) -> None:
        """Restore a snapshot twice, while the live store is open."""
        checkpoint = self._drawn(data, self.open_session.stores[store].completed())
        if checkpoint is not None:
            self.play(*[steps.Verify(store, checkpoint)] * 2)

    @precondition(may("rescale"))
    @rule(data=st.data(), bounds=st.tuples(st.integers(0, 16), st.integers(0, 16)))
    def rescale(self, data: st.DataObject, bounds: tuple[int, int]) -> None:
        """Restore snapshots of one store or of both into another range of key groups."""
        chosen = tuple(
            data.draw(st.sampled_from([0, *model.completed()[-2:]])) for model in self.open_session.stores
        )
        if any(chosen):
            self.play(steps.Rescale((chosen[0], chosen[1]), min(bounds), max(bounds)))

    @precondition(may("close"))
    @rule(data=st.data())
    def close_and_restore(self, data: st.DataObject) -> None:
        """Close both stores in good order; continue from their snapshots."""
        self._restart(data, "close")

    @precondition(may("kill"))
    @rule(data=st.data(), how=st.sampled_from(["kill", "call"]))
    def kill_and_restore(self, data: st.DataObject, how: str) -> None:
        """Kill the process; continue from the snapshots in a new one."""
        if self.restarts < self.restarts_max:
            self._restart(data, how)
            self.restarts += 1

    def _restart(self, data: st.DataObject, how: str) -> None:
        """Restart from the newest completed snapshots, sometimes from an earlier one."""
        back = data.draw(st.sampled_from([0, 0, 0, 1]))
        chosen = []
        for model in self.open_session.stores:
            completed = model.completed()
            chosen.append(completed[max(0, len(completed) - 1 - back)] if completed else 0)
        self.play(steps.Restart((chosen[0], chosen[1]), how))
