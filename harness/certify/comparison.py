"""Plays steps against a candidate and a model side by side; the first difference is a Violation."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barrier_tck.harness.certify import candidate_wire as wire
from barrier_tck.harness.certify import declared_capabilities as promises
from barrier_tck.harness.certify import distinctions
from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.candidate_calls import CHECKED_STORE, Entries
from barrier_tck.harness.certify.pool import Candidate, CandidateDied, CandidateError, CandidateRaised, Pool

RANGES = ((0, 6), (6, 16))
"""Key groups of the two stores."""
NAMES = ("totals", "a/b c", "größe")
"""Names of states; all are read when a snapshot is compared."""
_WARMING_ROUNDS = 3
_SPARE_STORE = CHECKED_STORE
"""Number of the store into which snapshots are restored to be compared."""
_RESTORED_STORE = _SPARE_STORE + 1
"""Number of one that is restored while that one is open."""


class Violation(AssertionError):
    """The candidate did what it must not; ``fatal``: it lost its process, ``hung``: by a time limit."""

    def __init__(self, message: str, fatal: bool = False, hung: bool = False) -> None:
        """Take the sentence."""
        super().__init__(message)
        self.fatal = fatal
        self.hung = hung


@dataclass(slots=True)
class SnapshotModel:
    """One snapshot of one store."""

    content: Entries
    attempt: int = 0
    """The life of the store in which it was taken."""
    phase: str = "taken"
    """``taken``, ``started``, ``completed``, or ``gone``."""
    done: bool = False
    """Whether nothing was left to the asynchronous part."""
    cancelled: bool = False
    confirmed: bool = False
    handles: tuple[wire.Handle, ...] = ()


@dataclass(slots=True)
class StoreModel:
    """What one store must hold, and its snapshots by checkpoint."""

    entries: Entries = field(default_factory=dict)
    snapshots: dict[int, SnapshotModel] = field(default_factory=dict)

    def completed(self) -> list[int]:
        """Return the checkpoints from which it can be restored, ascending."""
        return sorted(number for number, one in self.snapshots.items() if one.phase == "completed")

    def under_way(self, *phases: str) -> list[int]:
        """Return the checkpoints whose snapshot is in one of these phases, ascending."""
        return sorted(number for number, one in self.snapshots.items() if one.phase in phases)


class Session:
    """One run of steps, in directories of its own. Takes processes from the pool, gives them back."""

    def __init__(self, pool: Pool, candidate: Candidate | None = None) -> None:
        """Open both stores, empty, in the given process or in a new one."""
        self._pool = pool
        self._root = Path(tempfile.mkdtemp(prefix="session-", dir=pool.directory))
        self.candidate = candidate
        self.stores = (StoreModel(), StoreModel())
        self.attempt = 0
        self.next_checkpoint = 1
        self.steps: list[steps.AnyStep] = []
        self.calls = 0
        self.processes = 0
        for name in ("storage", "work"):
            (self._root / name).mkdir()
        self._guarded(self._begin, None)

    def apply(self, step: steps.AnyStep) -> None:
        """Play one step; raises Violation. A step that makes no sense where it stands is left out."""
        self.steps.append(step)
        self._guarded(lambda: getattr(self, f"_{type(step).__struct_config__.tag}")(step), step)

    def close(self) -> None:
        """End both stores in an orderly way, while their directories still exist; raises Violation."""
        self._guarded(self._close_both, None, "closing both stores")

    def end(self) -> Candidate | None:
        """Remove the directories and return a process to go on with."""
        shutil.rmtree(self._root, ignore_errors=True)
        return self.candidate

    def abandon(self) -> None:
        """Remove the directories and the process: it may be in any state."""
        if self.candidate is not None:
            self._pool.give_back(self.candidate)
            self.candidate = None
        shutil.rmtree(self._root, ignore_errors=True)

    def retire(self, violation: Violation) -> Candidate | None:
        """End after a violation; return the process if it can still be used: nothing in it runs or stands."""
        standing = any(model.under_way("started") for model in self.stores)
        if violation.fatal or standing or self.candidate is None:
            self.abandon()
            return None
        try:
            self.candidate.call(wire.ResetRequest(str(self._root), str(self._root)))
        except CandidateError:
            self.abandon()
            return None
        return self.end()

    def call(self, request: wire.AnyRequest) -> Any:
        """Send a request to the process; raises what a candidate's call raises."""
        self.calls += 1
        return self._candidate().call(request)

    def run(self, request: wire.RunRequest | wire.FinishRequest) -> wire.Ran:
        """Do or finish an asynchronous part."""
        self.calls += 1
        return self._candidate().run(request)

    def resources(self) -> wire.Held:
        """Count what the process holds."""
        return self._candidate().resources()

    def verify_all(self, elsewhere: bool = False) -> None:
        """Compare both stores and every completed snapshot with the model."""
        for number, model in enumerate(self.stores):
            for checkpoint in model.completed():
                self.apply(steps.Verify(number, checkpoint, elsewhere))
            for name in NAMES:
                for group in sorted({entry[1] for entry in model.entries} | {RANGES[number][0]}):
                    self.apply(steps.Scan(number, name, group))

    # --- reads and writes -----------------------------------------------------------------------------------

    def _put(self, step: steps.Put) -> None:
        self.call(wire.PutRequest(step.store, step.name, step.group, step.key, step.value))
        self.stores[step.store].entries[step.name, step.group, step.key] = step.value

    def _delete(self, step: steps.Delete) -> None:
        self.call(wire.DeleteRequest(step.store, step.name, step.group, step.key))
        self.stores[step.store].entries.pop((step.name, step.group, step.key), None)

    def _get(self, step: steps.Get) -> None:
        found = self.call(wire.GetRequest(step.store, step.name, step.group, step.key))
        wanted = self.stores[step.store].entries.get((step.name, step.group, step.key))
        if found != wanted:
            raise Violation(f"get() returned {_shown(found)}, expected {_shown(wanted)}")

    def _scan(self, step: steps.Scan) -> None:
        found = self.call(wire.ScanRequest(step.store, step.name, step.group))
        _compare(found, self.stores[step.store].entries, step.name, step.group, "scan()")

    def _put_many(self, step: steps.PutMany) -> None:
        self.call(wire.PutManyRequest(step.store, step.name, step.groups, step.keys, step.values))
        for group, key, value in zip(step.groups, step.keys, step.values, strict=True):
            self.stores[step.store].entries[step.name, group, key] = value

    def _get_many(self, step: steps.GetMany) -> None:
        found = self.call(wire.GetManyRequest(step.store, step.name, step.groups, step.keys))
        entries = self.stores[step.store].entries
        wanted = [
            entries.get((step.name, group, key)) for group, key in zip(step.groups, step.keys, strict=True)
        ]
        if found != wanted:
            raise Violation(f"get_many() returned {found!r}, expected {wanted!r}")

    # --- snapshots ------------------------------------------------------------------------------------------

    def _snapshot(self, step: steps.Snapshot) -> None:
        model = self.stores[step.store]
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 1)
        taken = SnapshotModel(dict(model.entries), self.attempt)
        try:
            taken.done = self.call(wire.SnapshotRequest(step.store, step.checkpoint, step.fault))["done"]
        except CandidateRaised as error:
            # A purely synchronous backend writes here, so a storage that fails may show here.
            if step.fault is None or error.kind != "storage":
                raise
            taken.phase = "gone"
        model.snapshots[step.checkpoint] = taken

    def _run(self, step: steps.Run) -> None:
        if self._in_phase(step, "taken"):
            self._complete(step, wire.RunRequest(step.store, step.checkpoint))

    def _start(self, step: steps.Start) -> None:
        if self._in_phase(step, "taken"):
            self.call(wire.StartRequest(step.store, step.checkpoint, step.stop_at))
            self.stores[step.store].snapshots[step.checkpoint].phase = "started"

    def _finish(self, step: steps.Finish) -> None:
        if self._in_phase(step, "started"):
            self._complete(step, wire.FinishRequest(step.store, step.checkpoint))

    def _complete(
        self, step: steps.Run | steps.Finish, request: wire.RunRequest | wire.FinishRequest
    ) -> None:
        model = self.stores[step.store].snapshots[step.checkpoint]
        try:
            ran = self.run(request)
        except CandidateRaised as error:
            model.phase = "gone"
            expected = (model.cancelled and error.kind == "cancelled") or (
                error.fault_fired and error.kind in ("storage", "cancelled")
            )
            if not expected:
                raise
            if error.fault_fired:
                self._discard(step.store, step.checkpoint)
            return
        if ran.fault_fired:
            model.phase = "gone"
            raise Violation(
                f"snapshot {step.checkpoint} succeeded although one of its writes failed: it would be "
                "acknowledged, and could not be restored"
            )
        if model.cancelled and model.phase == "taken" and not model.done:
            model.phase = "gone"
            raise Violation(
                f"the asynchronous part of snapshot {step.checkpoint} was cancelled before it began, and ran"
            )
        model.handles = ran.handles
        model.phase = "completed"
        if model.cancelled:
            # The cancel came too late; the caller owns the files and deletes them.
            self._discard(step.store, step.checkpoint)

    def _cancel(self, step: steps.Cancel) -> None:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        if model is not None and model.phase != "gone" and model.attempt == self.attempt:
            self.call(wire.NotifyRequest(step.store, step.checkpoint, "cancel"))
            model.cancelled = model.cancelled or model.phase != "completed"

    def _confirm(self, step: steps.Confirm) -> None:
        if self._in_phase(step, "completed"):
            self.call(wire.NotifyRequest(step.store, step.checkpoint, "confirm"))
            self.stores[step.store].snapshots[step.checkpoint].confirmed = True

    def _abort(self, step: steps.AbortSnapshot) -> None:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        if model is None or model.confirmed or model.attempt != self.attempt:
            return
        self.call(wire.NotifyRequest(step.store, step.checkpoint, "abort"))
        if model.phase in ("taken", "started"):
            model.cancelled = True  # its end decides: a cancel can come too late
        elif model.phase == "completed":
            self._discard(step.store, step.checkpoint)

    def _discard(self, store: int, checkpoint: int) -> None:
        self.call(wire.DiscardRequest(store, checkpoint))
        self.stores[store].snapshots[checkpoint].phase = "gone"

    def _promise(self, step: steps.Promise) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 1)
        broken = promises.broken(self, step)
        if broken is not None:
            raise Violation(f"{step.capability} is declared, but {broken}")

    def _distinctions(self, step: steps.Distinctions) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 1)
        broken = distinctions.broken(self, step.checkpoint)
        if broken is not None:
            raise Violation(broken)

    # --- restores -------------------------------------------------------------------------------------------

    def _verify(self, step: steps.Verify) -> None:
        if not self._in_phase(step, "completed"):
            return
        model = self.stores[step.store].snapshots[step.checkpoint]
        start, end = RANGES[step.store]
        what = f"snapshot {step.checkpoint}"
        if not step.elsewhere:
            self._read_back(self._candidate(), step.store, (start, end), model.handles, model.content, what)
            return
        other = self._pool.take()
        self.processes += 1
        try:
            work = Path(tempfile.mkdtemp(dir=self._root))
            other.call(wire.ResetRequest(str(self._root / "storage"), str(work)))
            self._read_back(other, step.store, (start, end), model.handles, model.content, what)
        finally:
            self._pool.give_back(other)

    def _rescale(self, step: steps.Rescale) -> None:
        content: Entries = {}
        handles: list[wire.Handle] = []
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            if number and (number not in model.snapshots or model.snapshots[number].phase != "completed"):
                return
            if number:
                content |= model.snapshots[number].content
                handles += model.snapshots[number].handles
        wanted = {entry: value for entry, value in content.items() if step.start <= entry[1] < step.end}
        what = f"the restore into key groups [{step.start}, {step.end})"
        self._read_back(self._candidate(), 0, (step.start, step.end), tuple(handles), wanted, what)

    def _read_back(
        self,
        candidate: Candidate,
        subtask: int,
        groups: tuple[int, int],
        handles: tuple[wire.Handle, ...],
        wanted: Entries,
        what: str,
    ) -> None:
        """Restore into a store of its own, read everything, close."""
        candidate.call(wire.OpenRequest(_SPARE_STORE, *groups, subtask, self.attempt + 1, handles))
        for name in NAMES:
            for group in range(*groups):
                found = candidate.call(wire.ScanRequest(_SPARE_STORE, name, group))
                _compare(found, wanted, name, group, what)
        candidate.call(wire.CloseRequest(_SPARE_STORE))

    def _restart(self, step: steps.Restart) -> None:
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            if number and (number not in model.snapshots or model.snapshots[number].phase != "completed"):
                return
        if step.how == "close":
            self._close_both()
        else:
            if step.how == "call":
                keys = tuple(b"%d" % number for number in range(200))
                groups = (RANGES[0][0],) * len(keys)
                self._candidate().post(wire.PutManyRequest(0, NAMES[0], groups, keys, keys))
            self._pool.give_back(self._candidate())
            self.candidate = None
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            for other in model.under_way("taken", "started"):
                model.snapshots[other].phase = "gone"
            model.entries = dict(model.snapshots[number].content) if number else {}
        self.attempt += 1
        self._begin(step.checkpoints)

    def _close_both(self) -> None:
        for store in (0, 1):
            for checkpoint in self.stores[store].under_way("started"):
                self.call(wire.NotifyRequest(store, checkpoint, "cancel"))
                self.stores[store].snapshots[checkpoint].cancelled = True
                self._finish(steps.Finish(store, checkpoint))
            self.call(wire.CloseRequest(store, times=2))

    def _begin(self, checkpoints: tuple[int, int] = (0, 0)) -> None:
        if self.candidate is None:
            self.candidate = self._pool.take()
            self.processes += 1
        self.call(wire.ResetRequest(str(self._root / "storage"), str(self._root / "work")))
        for number, model in enumerate(self.stores):
            checkpoint = checkpoints[number]
            handles = model.snapshots[checkpoint].handles if checkpoint else ()
            start, end = RANGES[number]
            self.call(wire.OpenRequest(number, start, end, number, self.attempt + 1, handles))

    # --- what is left behind --------------------------------------------------------------------------------

    def _crowd(self, step: steps.Crowd) -> None:
        """The first rounds are not counted: allocators grow to their working size."""
        group = RANGES[step.store][0]
        keys = tuple(b"crowd-%06d" % number for number in range(step.count))
        before = 0
        for number in range(_WARMING_ROUNDS + step.rounds):
            if number == _WARMING_ROUNDS:
                before = self.resources().memory_bytes
            checkpoint = step.checkpoint + number
            value = checkpoint.to_bytes(4, "big") * (step.size // 4)
            values = tuple(value for _ in keys)
            self._put_many(steps.PutMany(step.store, NAMES[0], (group,) * len(keys), keys, values))
            self._snapshot(steps.Snapshot(step.store, checkpoint, wire.StorageTrouble(2)))
            self._run(steps.Run(step.store, checkpoint))
            self._abort(steps.AbortSnapshot(step.store, checkpoint))
        grown = self.resources().memory_bytes - before
        written = step.rounds * step.count * step.size
        if grown > written // 2:
            raise Violation(
                f"{step.rounds} failed snapshots of {step.count * step.size:,} bytes each made the process grow "
                f"by {grown:,} bytes: what a failed snapshot held is not released"
            )

    def _resources(self, step: steps.Resources) -> None:
        """A first round is not counted: libraries open what they keep for ever, once."""
        candidate = self._candidate()
        for store in (0, 1):
            self.call(wire.CloseRequest(store))
        self._round()
        before = candidate.resources()
        for _ in range(step.rounds):
            self._round()
        after = candidate.resources()
        left = _left_behind(before, after)
        if left:
            raise Violation("after every store was closed, there are left: " + "; ".join(left))
        self._begin((0, 0))
        for model in self.stores:
            model.entries.clear()

    def _round(self) -> None:
        """The life of a store, with a snapshot of each fate; leaves it closed."""
        start, end = RANGES[0]
        base = self.next_checkpoint
        self.next_checkpoint += 4
        call = self.call
        call(wire.OpenRequest(_SPARE_STORE, start, end, 0, self.attempt + 1))
        for number in range(4):
            checkpoint = base + number
            call(wire.PutRequest(_SPARE_STORE, NAMES[0], start, b"k%d" % number, b"v" * 100))
            try:
                fault = wire.StorageTrouble(2) if number == 1 else None
                taken = call(wire.SnapshotRequest(_SPARE_STORE, checkpoint, fault))
                if number == 3 and not taken["done"]:
                    continue  # closed with a snapshot under way
                if number == 2:
                    call(wire.NotifyRequest(_SPARE_STORE, checkpoint, "cancel"))
                ran = self.run(wire.RunRequest(_SPARE_STORE, checkpoint))
                if number == 0:
                    call(wire.OpenRequest(_RESTORED_STORE, start, end, 0, self.attempt + 1, ran.handles))
                    call(wire.ScanRequest(_RESTORED_STORE, NAMES[0], start))
                    call(wire.CloseRequest(_RESTORED_STORE))
            except CandidateRaised as error:
                # A purely synchronous backend writes, and fails, in snapshot().
                if error.kind not in ("storage", "cancelled"):
                    raise
            call(wire.NotifyRequest(_SPARE_STORE, checkpoint, "abort" if number else "confirm"))
            call(wire.DiscardRequest(_SPARE_STORE, checkpoint))
        call(wire.CloseRequest(_SPARE_STORE, times=2))

    # --- the candidate --------------------------------------------------------------------------------------

    def _in_phase(self, step: Any, phase: str) -> bool:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        return model is not None and model.phase == phase

    def _candidate(self) -> Candidate:
        assert self.candidate is not None
        return self.candidate

    def _guarded(self, act: Any, step: steps.AnyStep | None, what: str = "opening two empty stores") -> None:
        """Turn what a candidate must not do at all into a Violation."""
        doing = steps.words(step) if step is not None else what
        try:
            act()
        except CandidateRaised as error:
            raise Violation(f"{doing} raised {error}") from error
        except CandidateDied as error:
            raise Violation(str(error), fatal=True, hung=error.hung) from error


def _shown(value: bytes | None) -> str:
    if value is None or len(value) <= 60:
        return repr(value)
    return f"{value[:16]!r}... ({len(value)} bytes)"


def _compare(found: list[list[bytes]], wanted: Entries, name: str, group: int, what: str) -> None:
    """Compare the entries of one state in one key group; the message names the first difference."""
    expected = {key: value for (n, g, key), value in wanted.items() if (n, g) == (name, group)}
    got = {entry[0]: entry[1] for entry in found}
    where = f"state {name!r}, key group {group}"
    if len(got) != len(found):
        raise Violation(f"{what}: {where} lists a key twice: {sorted(key for key, _ in found)!r}")
    for key in sorted(expected.keys() | got.keys()):
        if expected.get(key) != got.get(key):
            raise Violation(
                f"{what}: {where}, key {_shown(key)} is {_shown(got.get(key))}, expected "
                f"{_shown(expected.get(key))}"
            )


def _left_behind(before: wire.Held, after: wire.Held) -> list[str]:
    left = []
    new = list(after.descriptors)
    for known in before.descriptors:
        if known in new:
            new.remove(known)
    if len(after.descriptors) > len(before.descriptors):
        left.append(f"{len(after.descriptors) - len(before.descriptors)} descriptors, among them {new[:3]}")
    if after.threads > before.threads:
        left.append(f"{after.threads - before.threads} threads")
    if after.children > 0:
        left.append(f"{after.children} child processes")
    if after.work_files:
        left.append(
            f"{len(after.work_files)} files in the working directory, among them {after.work_files[:3]}"
        )
    if after.storage_files:
        left.append(f"{len(after.storage_files)} files in storage, among them {after.storage_files[:3]}")
    return left
