"""The Hypothesis state machine: it draws steps that make sense at their moment, and plays them on a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.capabilities import CONCURRENT, INCREMENTAL
from barrier_tck.harness.certify.backend.model import COMPRESSED, COMPRESSIONS, NAMES, PLAIN, RANGES
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.stage import BackendProperty, BackendStage
from barrier_tck.harness.certify.backend.wire import StorageFault
from barrier_tck.harness.certify.engine.drawing import StepMachine, run_machine
from barrier_tck.harness.certify.engine.hunt import Hunt
from barrier_tck.harness.certify.engine.stage import Session as EngineSession

_KEYS = st.one_of(
    st.sampled_from([b"a", b"b", b"", b"\x00", b"a\x00", b"\xff\xfe", b"k" * 500]), st.binary(max_size=6)
)
_VALUES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"", b"\x00\x00", b"\xff" * 3]),
    st.just(70_000).map(lambda length: b"v" * length),
)
_FILLER = 60
"""Additional entries of a store whose snapshots are increments."""
_NAMES = st.sampled_from(NAMES)
_STORES = st.sampled_from([0, 1])
_HINTS = ((PLAIN, True), (COMPRESSED, True), (PLAIN, False), (COMPRESSED, False))
"""The compression that the stores of an example are asked for, and whether they may have threads of their own."""
_BACK = (0, 0, 0, 1, 2, 5)
"""How many completed snapshots are newer than the one from which stores go on."""
_FAULTS = st.builds(StorageFault, st.integers(1, 6), st.sampled_from(["error", "short", "close"]))


def may(move: str) -> Callable[[BackendMachine], bool]:
    """Return the precondition of a move: its property has it, and the hunt goes on."""
    return lambda machine: move in machine.moves and not machine.over


def _may_take(move: str) -> Callable[[BackendMachine], bool]:
    """A backend that does not declare concurrent snapshots has one unfinished snapshot at a time in each store."""
    return lambda machine: may(move)(machine) and (machine.concurrent or not machine.unfinished())


class BackendMachine(StepMachine):
    """All moves; a property's own subclass says which of them are allowed, and holds the hunt."""

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
        self.restarts = 0
        if self.session is None or "promise" in self.moves:
            return
        compression, own_threads = _HINTS[(self.hunt.examples + self.hunt.idle) % len(_HINTS)]
        layout = steps.Layout(
            RANGES, incremental=self.incremental, compression=compression, own_threads=own_threads
        )
        if layout != steps.Layout(RANGES):
            self.play(layout)
        if self.incremental:
            for store in (0, 1):
                # Of a small state, an increment is no smaller than a full snapshot, and a backend may write that.
                group = RANGES[store][0]
                keys = tuple(b"filler %02d" % number for number in range(_FILLER))
                self.play(steps.PutMany(store, NAMES[0], (group,) * _FILLER, keys, keys))

    def unfinished(self) -> bool:
        """Return whether a snapshot is under way in either store."""
        return any(model.under_way("taken", "started") for model in self.open_session.stores)

    def write_first(self, store: int) -> None:
        """Write into a store into which nothing was ever written, in most cases: a snapshot of nothing shows little.

        Many examples are drawn without any write, and each restore of theirs would take as long as others do.
        """
        session = self.open_session
        if "write" in self.moves and not session.stores[store].written and session.next_checkpoint % 4:
            self.play(steps.Put(store, NAMES[0], session.ranges[store][0], b"first", b"written"))

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
        assert isinstance(self.session, Session)
        return self.session

    def finish(self, session: EngineSession[Any]) -> None:
        """Run asynchronous parts to their end; then compare both stores and every completed snapshot."""
        stores = self.open_session.stores
        for number, model in enumerate(stores):
            for checkpoint in model.under_way("started"):
                session.apply(steps.Finish(number, checkpoint))
            for checkpoint in model.under_way("taken"):
                session.apply(steps.Run(number, checkpoint))
        if self.incremental:
            for number in (0, 1):
                self._delete_between_two(session, number)
        for number, model in enumerate(stores):
            for checkpoint in model.completed():
                session.apply(self.verification(number, checkpoint))
            session.apply(steps.ReadAll(number))
        if self.finale == "elsewhere":
            newest = [
                (number, model.completed()[-1]) for number, model in enumerate(stores) if model.completed()
            ]
            for number, checkpoint in newest[:1]:
                session.apply(steps.Verify(number, checkpoint, elsewhere=True))

    def verification(self, store: int, checkpoint: int) -> steps.Verify:
        """Return the step that restores a snapshot, with any hints; the same ones for the same checkpoint."""
        compression = ("", *COMPRESSIONS)[checkpoint % 3]
        return steps.Verify(store, checkpoint, compression=compression, read_only=checkpoint % 4 == 0)

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
        self.write_first(store)
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

    def _delete_between_two(self, session: EngineSession[Any], store: int) -> None:
        """Confirm a snapshot, delete an entry of it, and take the increment that has to leave it out."""
        model = self.open_session.stores[store]
        for deletes in (False, True):
            present = sorted(model.entries)
            if deletes and present:
                session.apply(steps.Delete(store, *present[0]))
            number = self.open_session.next_checkpoint
            usable = model.reusable(self.open_session.attempt) or [1]
            session.apply(steps.Snapshot(store, number, None, usable[-1]))
            session.apply(steps.Run(store, number))
            session.apply(steps.Confirm(store, number))

    def checkpoint_of(self, store: int) -> None:
        """Take a whole snapshot of a store and confirm it."""
        self.write_first(store)
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
            self.play(*[steps.Cancel(store, checkpoint, elsewhere=checkpoint % 2 == 1)] * (1 + twice))

    @precondition(_may_take("notify"))
    @rule(store=_STORES, twice=st.booleans(), stop_at=st.integers(0, 4))
    def cancel_and_end(self, store: int, twice: bool, stop_at: int) -> None:
        """Cancel before the asynchronous part begins (0) or in its middle; then let it come to its end."""
        self.write_first(store)
        number = self.open_session.next_checkpoint
        cancel = [steps.Cancel(store, number, elsewhere=number % 2 == 1)] * (1 + twice)
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
        self.write_first(store)
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
        self.play(steps.CheckCapability(self.capability, tuple(keys), self.open_session.next_checkpoint))

    # --- restores -------------------------------------------------------------------------------------------

    @precondition(may("verify"))
    @rule(data=st.data(), store=_STORES, compression=st.sampled_from(COMPRESSIONS), read_only=st.booleans())
    def verify(self, data: st.DataObject, store: int, compression: str, read_only: bool) -> None:
        """Restore a snapshot twice, while the live store is open, the second time with other hints."""
        checkpoint = self._drawn(data, self.open_session.stores[store].completed())
        if checkpoint is not None:
            with_hints = steps.Verify(store, checkpoint, compression=compression, read_only=read_only)
            self.play(steps.Verify(store, checkpoint), with_hints)

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
        """Restart from the newest completed snapshots, sometimes from earlier ones; read both stores at once."""
        back, compression = data.draw(st.sampled_from(_BACK)), data.draw(st.sampled_from(("", *COMPRESSIONS)))
        chosen = []
        for model in self.open_session.stores:
            completed = model.completed()
            chosen.append(completed[max(0, len(completed) - 1 - back)] if completed else 0)
        self.play(steps.Restart((chosen[0], chosen[1]), how, compression))
        self.read_both()

    def read_both(self) -> None:
        """Read both stores as a whole: what a restore brought must be seen before the next write hides it."""
        self.play(steps.ReadAll(0), steps.ReadAll(1))


class RedistributingMachine(BackendMachine):
    """Also lets stores go on with other key groups.

    It is apart, because rules that a property does not have thin out the examples that are drawn for it.
    """

    def _group(self, data: st.DataObject, store: int) -> int:
        start, end = self.open_session.ranges[store]
        return data.draw(st.sampled_from(sorted({start, (start + end) // 2, end - 1})))

    @precondition(may("redistribute"))
    @rule(data=st.data(), middle=st.integers(1, 15), again=st.booleans())
    def redistribute(self, data: st.DataObject, middle: int, again: bool) -> None:
        """Close both stores and go on with other key groups, from new snapshots or from earlier ones.

        ``again``: soon both are joined. What one of them has deleted meanwhile must not come back from the other.
        """
        self._checkpoint_both()
        back, chosen = data.draw(st.sampled_from(_BACK)), []
        for model in self.open_session.stores:
            completed = model.completed()
            chosen.append(completed[max(0, len(completed) - 1 - back)] if completed else 0)
        self.play(steps.Redistribute((chosen[0], chosen[1]), ((0, middle), (middle, 16))))
        self.read_both()
        if not again:
            return
        for store in (0, 1):
            present = sorted(self.open_session.stores[store].entries)
            for name, group, key in present[data.draw(st.integers(0, 1)) :: 2]:
                self.play(steps.Delete(store, name, group, key))
        self._checkpoint_both()
        newest = [(model.completed() or [0])[-1] for model in self.open_session.stores]
        self.play(steps.Rescale((newest[0], newest[1]), 0, 16))

    def _checkpoint_both(self) -> None:
        if self.concurrent or not self.unfinished():
            for store in (0, 1):
                self.checkpoint_of(store)


@dataclass(frozen=True, slots=True)
class Moves:
    """Draws the steps of a property from some of the moves."""

    moves: str
    """Their names."""
    steps_max: int = 25
    restarts_max: int = 0
    finale: str = "here"

    def run(self, one: BackendProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
        assert isinstance(hunt.stage, BackendStage)
        moves = frozenset(self.moves.split())
        members = {
            "hunt": hunt,
            "moves": moves,
            "restarts_max": self.restarts_max,
            "finale": self.finale,
            "capability": one.capability,
            "concurrent": CONCURRENT in hunt.stage.declared,
            "incremental": one.capability == INCREMENTAL and "promise" not in moves,
        }
        base = RedistributingMachine if "redistribute" in moves else BackendMachine
        run_machine(type("Certify", (base,), members), seed, examples, self.steps_max)
