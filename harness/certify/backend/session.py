"""Plays steps on a candidate and on a model, side by side; the first difference is a Violation."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.certify.backend import (
    capabilities,
    clauses,
    leftovers,
    promises,
    reached,
    steps,
    wire,
)
from barrier_tck.harness.certify.backend.calls import CHECKED_STORE, Entries
from barrier_tck.harness.certify.backend.free_writes import entry_key, free_write
from barrier_tck.harness.certify.backend.live_stores import LiveStores
from barrier_tck.harness.certify.backend.model import NAMES, PLAIN, SnapshotModel, StoreModel, WrongRead
from barrier_tck.harness.certify.backend.pool import CandidateRaised
from barrier_tck.harness.certify.backend.readings import Difference, first_difference
from barrier_tck.harness.certify.backend.restored_files import (
    changed_files,
    copied,
    file_states,
    key_groups_wrong,
)
from barrier_tck.harness.certify.engine.violation import Violation

_NEWEST = b"newest"
"""The key that each round of a series writes."""
_COMPARED_APART = 50
"""Each snapshot of a series that is so far from the one before is compared."""
_SPARE_STORE = CHECKED_STORE
"""Number of the store into which snapshots are restored to be compared."""
_CANCELS_APART, _CANCELS_WITHIN = 7, 23
"""The number of writes before a race is cancelled grows by the first from snapshot to snapshot, below the second."""
_RACES_PER_ROUND_MAX = 3
"""How often a round of a race is run at most, if the two threads never meet."""


class Session(LiveStores):
    """One run of steps in its own directories. It takes processes from the pool and gives them back."""

    def apply(self, step: steps.AnyStep) -> None:
        """Play one step; raises Violation. A step that makes no sense at this moment is skipped."""
        self.played.append(step)
        self._guarded(lambda: getattr(self, f"_{type(step).__struct_config__.tag}")(step), step)

    def close(self) -> None:
        """Close both stores in good order, while their directories still exist; raises Violation."""
        self._guarded(self._close_both, None, "closing both stores")

    # --- snapshots ------------------------------------------------------------------------------------------

    def _snapshot(self, step: steps.Snapshot) -> None:
        model = self.stores[step.store]
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 1)
        taken = SnapshotModel(
            *(dict(model.entries), self.attempt),
            reuse_from=step.reuse_from,
            compression=self._compression,
            writes_before=len(model.writes),
            after_disturbance=model.disturbances > 0,
        )
        # Increments have no second copy in another format.
        second = "" if step.reuse_from else self._second
        request = wire.SnapshotRequest(step.store, step.checkpoint, step.fault, step.reuse_from, second)
        try:
            answer = self.call(request)
            taken.done, taken.operations = answer["done"], answer["operations"]
        except CandidateRaised as error:
            # A purely synchronous backend writes here, so a failure of storage may show here.
            if step.fault is None or error.kind != "storage":
                raise
            taken.phase = "gone"
            model.disturb()
            model.note_end(step.checkpoint, reached.FAILED)
            self.show(clauses.WHOLE)
        else:
            self._note_unfinished(step.store, taken)
        model.snapshots[step.checkpoint] = taken

    def _note_unfinished(self, store: int, taken: SnapshotModel) -> None:
        """Note with how many others a new snapshot is unfinished, and whether some of its elders have ended."""
        model = self.stores[store]
        elders = [model.snapshots[number] for number in model.under_way("taken", "started")]
        beside = [one for one in elders if not one.cancelled]
        if any(one.met for one in beside):
            taken.met[reached.TAKEN_AMID] = None
        if model.late_word:
            taken.met[reached.LATE_WORD] = None
        if taken.reuse_from > max(model.reusable(self.attempt), default=taken.reuse_from):
            taken.met[reached.BASE_GONE] = None
        for one in (*beside, taken):
            one.unfinished_max = max(one.unfinished_max, len(beside) + 1)

    def _run(self, step: steps.Run) -> None:
        if self._in_phase(step, "taken"):
            model = self.stores[step.store]
            model.note_differences(model.snapshots[step.checkpoint], under_way=False)
            self._complete(step, wire.RunRequest(step.store, step.checkpoint, step.here))

    def _start(self, step: steps.Start) -> None:
        if self._in_phase(step, "taken"):
            model = self.stores[step.store]
            model.note_differences(model.snapshots[step.checkpoint], under_way=False)
            self.call(wire.StartRequest(step.store, step.checkpoint, step.stop_at))
            self.stores[step.store].snapshots[step.checkpoint].phase = "started"

    def _finish(self, step: steps.Finish) -> None:
        if self._in_phase(step, "started"):
            model = self.stores[step.store]
            model.note_differences(model.snapshots[step.checkpoint], under_way=True)
            self._complete(step, wire.FinishRequest(step.store, step.checkpoint))

    def _complete(self, step: steps.Run | steps.Finish, request: wire.EndingRequest) -> None:
        store = self.stores[step.store]
        model = store.snapshots[step.checkpoint]
        try:
            ran = self.run(request)
        except CandidateRaised as error:
            model.phase = "gone"
            cancelled = model.cancelled and error.kind == "cancelled"
            if not cancelled and not (error.fault_fired and error.kind in ("storage", "cancelled")):
                clause = clauses.CANCELLED if model.cancelled else clauses.WHOLE
                raise Violation(self._short(f"{step.description()} raised {error}"), clause) from error
            self.show(clauses.CANCELLED if cancelled else clauses.WHOLE)
            store.disturb()
            if not cancelled:
                self.reached[reached.STORED_LATER] += 1
                store.note_end(step.checkpoint, reached.FAILED)
            if error.fault_fired:
                self._discard(step.store, step.checkpoint)
            return
        if ran.operations > model.operations:
            self.reached[reached.STORED_LATER] += 1
        if ran.fault_fired:
            model.phase = "gone"
            raise Violation(
                f"snapshot {step.checkpoint} succeeded although one of its writes failed: it would be "
                "acknowledged, and could not be restored",
                clauses.WHOLE,
            )
        if model.cancelled and model.phase == "taken" and not model.done:
            model.phase = "gone"
            raise Violation(
                f"the asynchronous part of snapshot {step.checkpoint} was cancelled before it began, but ran",
                clauses.CANCELLED,
            )
        if model.cancelled and model.done:
            self.show(
                clauses.CANCELLED
            )  # nothing was left to stop: the only way for a purely synchronous backend
        model.second = ran.second
        self._completed(step.store, step.checkpoint, ran.handles)

    def _completed(self, store: int, checkpoint: int, handles: tuple[wire.Handle, ...]) -> None:
        model = self.stores[store].snapshots[checkpoint]
        model.handles = handles
        model.phase = "completed"
        model.writes_until_end = len(self.stores[store].writes)
        self.stores[store].note_end(checkpoint, reached.ENDED)
        wrong = key_groups_wrong(handles, self._ranges[store], model.content)
        if wrong is not None:
            raise Violation(f"snapshot {checkpoint}: {wrong}", clauses.RESTORED)
        self._require_reusable(store, checkpoint)
        if model.cancelled:
            # The cancel came too late, so the caller owns the files and deletes them.
            self._discard(store, checkpoint)

    def _require_reusable(self, store: int, checkpoint: int) -> None:
        """Demand that a snapshot names own files, and those of confirmed or restored snapshots that are kept for it."""
        model = self.stores[store]
        taken = model.snapshots[checkpoint]
        usable = [number for number in model.reusable(taken.attempt) if 0 < taken.reuse_from <= number]
        theirs = {handle.path for number in usable for handle in model.snapshots[number].handles}
        if any(f"/chk-{checkpoint}/" not in handle.path for handle in taken.handles):
            taken.met[reached.INCREMENT] = None
        for handle in taken.handles:
            if f"/chk-{checkpoint}/" not in handle.path and handle.path not in theirs:
                refers = f"snapshot {checkpoint} refers to {handle.path}"
                message = f"{refers}; of earlier ones it may use {usable or 'none'}"
                raise Violation(message, clauses.DECLARED if taken.reuse_from else clauses.RESTORED)

    def _race(self, step: steps.Race) -> None:
        """Run a round again if the two threads did not meet: on a busy machine one may end before the other begins."""
        if not self._owns(step.store, *step.groups):
            return
        met, checkpoint = 0, step.checkpoint
        while met < step.rounds and checkpoint < step.checkpoint + _RACES_PER_ROUND_MAX * step.rounds:
            met += self._raced(step, checkpoint)
            checkpoint += 1

    def _raced(self, step: steps.Race, checkpoint: int) -> bool:
        """Take one snapshot while the store is written; restore it and compare. Tell whether both were at work at once.

        A snapshot that is done after its synchronous part has no other thread to meet.
        """
        self._snapshot(steps.Snapshot(step.store, checkpoint))
        model = self.stores[step.store]
        snapshot = model.snapshots[checkpoint]
        cancel_after = _CANCELS_APART * checkpoint % _CANCELS_WITHIN if step.cancelled else -1
        request = wire.RaceRequest(step.store, checkpoint, step.name, step.groups, cancel_after)
        try:
            found = self.call(request)
        except CandidateRaised as error:
            snapshot.phase = "gone"
            third = ", and a third one cancelled it" if step.cancelled else ""
            message = (
                f"while one thread stored snapshot {checkpoint} and another thread wrote{third}, it raised"
            )
            clause = clauses.CANCELLED if step.cancelled else clauses.ISOLATED
            raise Violation(self._short(f"{message} {error}"), clause) from error
        raced = msgspec.convert(found, wire.Raced)
        for number in range(raced.writes):
            call, groups, keys = free_write(number, step.groups, checkpoint)
            for group, key in zip(groups, keys, strict=True):
                model.write((step.name, group, key), None if call == "delete" else b"%08d" % number)
        if step.cancelled:
            model.disturb()
        if raced.cancelled:
            snapshot.phase = "gone"
            self.show(clauses.CANCELLED)
            self._discard(step.store, checkpoint)
            self._read_all(steps.ReadAll(step.store))
            return True
        if raced.meanwhile or snapshot.done:
            # Otherwise it ended before the first write, so this shows nothing about concurrent writers.
            model.note_differences(snapshot, under_way=True)
        self._completed(step.store, checkpoint, raced.handles)
        try:
            self._compare_raced(step, checkpoint)
        except WrongRead as error:
            wrote = self._who_wrote(step, checkpoint, raced.writes, error)
            raise WrongRead(f"{error}; {wrote}", error.clause, error.place) from error
        self._discard(step.store, checkpoint)
        return bool(raced.meanwhile) or snapshot.done

    def _who_wrote(self, step: steps.Race, checkpoint: int, writes: int, error: WrongRead) -> str:
        """Say which of the writes during the asynchronous part were made at a place that was read wrong."""
        if error.place is None:
            return "the place of the wrong value is not known"
        mattered = []
        for number in range(writes):
            call, groups, keys = free_write(number, step.groups, checkpoint)
            if (step.name, *error.place[1:]) == error.place and error.place[1:] in zip(
                groups, keys, strict=True
            ):
                mattered.append(f"number {number + 1} ({call})")
        if not mattered:
            return f"none of the {writes} writes meanwhile was made there"
        more = f" and {len(mattered) - 4} more" if len(mattered) > 4 else ""
        return f"of the {writes} writes meanwhile, these were made there: {', '.join(mattered[:4])}{more}"

    def _compare_raced(self, step: steps.Race, checkpoint: int) -> None:
        self._verify(steps.Verify(step.store, checkpoint))
        self._read_all(steps.ReadAll(step.store))

    def _cancel(self, step: steps.Cancel) -> None:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        if model is not None and model.phase != "gone" and model.attempt == self.attempt:
            self.call(wire.NotifyRequest(step.store, step.checkpoint, "cancel", step.elsewhere))
            self._note_cancel(step.store, step.checkpoint)

    def _note_cancel(self, store: int, checkpoint: int) -> None:
        model = self.stores[store]
        snapshot = model.snapshots[checkpoint]
        model.disturb()
        if snapshot.phase in ("taken", "started"):
            if not snapshot.cancelled:
                model.note_end(checkpoint, reached.CANCELLED)
            snapshot.cancelled = True  # its end decides, because a cancel can come too late

    def _confirm(self, step: steps.Confirm) -> None:
        if self._in_phase(step, "completed"):
            self.call(wire.NotifyRequest(step.store, step.checkpoint, "confirm"))
            store = self.stores[step.store]
            store.late_word = store.late_word or any(
                one.confirmed and one.attempt == self.attempt and number > step.checkpoint
                for number, one in store.snapshots.items()
            )
            store.snapshots[step.checkpoint].confirmed = True
            store.disturb()

    def _abort(self, step: steps.AbortSnapshot) -> None:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        if model is None or model.confirmed or model.attempt != self.attempt:
            return
        self.call(wire.NotifyRequest(step.store, step.checkpoint, "abort"))
        self._note_cancel(step.store, step.checkpoint)
        if model.phase == "completed":
            self._discard(step.store, step.checkpoint)

    def _unseen(self, step: steps.Unseen) -> None:
        self.call(wire.NotifyRequest(step.store, step.checkpoint, step.what))
        self.stores[step.store].disturb()

    def _discard(self, store: int, checkpoint: int) -> None:
        self.call(wire.DiscardRequest(store, checkpoint))
        self.stores[store].snapshots[checkpoint].phase = "gone"

    def _series(self, step: steps.Series) -> None:
        if not self._owns(step.store, step.group):
            return
        place = (step.store, step.name, step.group, _NEWEST)
        for taken in range(step.rounds):
            number = step.checkpoint + taken
            self._put(steps.Put(*place, b"before %020d" % number))
            self._snapshot(steps.Snapshot(step.store, number))
            self._put(steps.Put(*place, b"after_ %020d" % number))
            self._run(steps.Run(step.store, number))
            self._confirm(steps.Confirm(step.store, number))
            if taken % _COMPARED_APART == 0 or taken >= step.rounds - 2:
                self._verify(steps.Verify(step.store, number))

    def _failures(self, step: steps.Failures) -> None:
        if not self._owns(step.store, *step.groups):
            return
        for taken in range(step.rounds):
            number = step.checkpoint + taken
            changed, deleted = taken % step.count, step.count - 1 - taken % step.count
            for entry, act in ((changed, self._put_changed), (deleted, self._delete_again)):
                act(step, step.groups[entry % len(step.groups)], entry_key(entry, step.key_bytes))
            self._snapshot(steps.Snapshot(step.store, number, reuse_from=step.reuse_from))
            # Most fail before they have written anything. Of the others every second one is never heard of again.
            if number % 8:
                self._cancel(steps.Cancel(step.store, number))
            self._run(steps.Run(step.store, number))
            if number % 16:
                self._abort(steps.AbortSnapshot(step.store, number))

    def _chain(self, step: steps.Chain) -> None:
        if not self._owns(step.store, *step.groups):
            return
        at, changed = (step.store, step.name), b"changed"
        for number in range(step.checkpoint, step.checkpoint + step.rounds):
            entry = self._place_of(step, step.count - number)
            self._put(steps.Put(*at, *entry, b"%s in %d" % (changed, number)))
            self._delete(steps.Delete(*at, *self._place_of(step, 2 * number)))
            if number % 3 == 0:
                self._put(steps.Put(*at, *self._place_of(step, 2 * number - 4), b"again in %d" % number))
            self._delete(steps.Delete(*at, step.groups[0], b"of %d" % (number - 1)))
            self._put(steps.Put(*at, step.groups[0], b"of %d" % number, b""))
            self._snapshot(steps.Snapshot(step.store, number, reuse_from=max(1, number - 1)))
            self._run(steps.Run(step.store, number))
            self._verify(steps.Verify(step.store, number))
            self._confirm(steps.Confirm(step.store, number))

    @staticmethod
    def _place_of(step: steps.Chain, number: int) -> tuple[int, bytes]:
        """Return key group and key of one of the entries that `Fill` wrote."""
        number %= step.count
        return step.groups[number % len(step.groups)], entry_key(number, step.key_bytes)

    def _put_changed(self, step: steps.Failures, group: int, key: bytes) -> None:
        self._put(steps.Put(step.store, step.name, group, key, b"changed"))

    def _delete_again(self, step: steps.Failures, group: int, key: bytes) -> None:
        self._delete(steps.Delete(step.store, step.name, group, key))

    def _promise(self, step: steps.CheckCapability) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 1)
        broken = capabilities.broken(self, step)
        if broken is not None:
            raise Violation(f"{step.capability} is declared, but {broken}", clauses.DECLARED)
        self.show(clauses.DECLARED)

    # --- restores -------------------------------------------------------------------------------------------

    def _verify(self, step: steps.Verify) -> None:
        if not self._in_phase(step, "completed"):
            return
        model = self.stores[step.store].snapshots[step.checkpoint]
        what, groups = f"snapshot {step.checkpoint}", self._ranges[step.store]
        hints: dict[str, Any] = {"compression": step.compression or self._compression}
        hints["read_only"] = step.read_only
        if step.second:
            if model.second:
                what = f"the second copy of {what}"
                place = (step.store, groups, (step.checkpoint,), what)
                self._read_back(self.call, *place, second=True, **hints)
                self.reached[reached.SECOND_COPY] += bool(model.content)
            return
        if not step.elsewhere:
            self._read_back(self.call, step.store, groups, (step.checkpoint,), what, **hints)
            return
        with self.in_another_process() as other:
            storage = copied(model.handles, self._storage, self._made("storage"))
            what += " in a process that finds nothing but its files"
            self._read_back(other.call, step.store, groups, (step.checkpoint,), what, storage, **hints)

    def _rescale(self, step: steps.Rescale) -> None:
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            if number and (number not in model.snapshots or model.snapshots[number].phase != "completed"):
                return
        what = f"the restore into key groups [{step.start}, {step.end})"
        self._read_back(self.call, None, (step.start, step.end), step.checkpoints, what)

    def _read_back(
        self,
        call: Callable[[wire.AnyRequest], Any],
        store: int | None,
        groups: tuple[int, int],
        checkpoints: tuple[int, ...],
        what: str,
        storage: str = "",
        second: bool = False,
        **hints: Any,
    ) -> None:
        """Restore into a separate store, read everything, and close it. ``store`` None: both stores' snapshots.

        ``second``: from the second copies of their files. ``hints`` are those of its scope. Nothing of that may change
        a file in the storage.
        """
        models = self.stores if store is None else (self.stores[store],)
        sources = [
            (model, model.snapshots[number])
            for model, number in zip(models, checkpoints, strict=True)
            if number
        ]
        content = {place: value for _, one in sources for place, value in one.content.items()}
        wanted = {place: value for place, value in content.items() if groups[0] <= place[1] < groups[1]}
        if second:
            storage = str(wire.second_storage(Path(self._storage)))
        handles = tuple(handle for _, one in sources for handle in (one.second if second else one.handles))
        hints = {"compression": self._compression} | hints
        stored = Path(storage or self._storage)
        before = file_states(stored)
        place = (_SPARE_STORE, *groups, store or 0, self.attempt + 1, handles)
        request = wire.OpenRequest(*place, storage=storage, own_threads=self._own_threads)
        call(msgspec.structs.replace(request, **hints))
        found = first_difference(
            *(call, _SPARE_STORE, groups, wanted, NAMES),
            scan_first=sum(checkpoints) % 2 == 0,
            gone=[place for model in models for place in model.written if place not in content],
        )
        if found is not None:
            raise WrongRead(found.sentence(what), self._clause_of(found, sources), found.place)
        call(wire.CloseRequest(_SPARE_STORE))
        changed = changed_files(before, file_states(stored))
        if changed:
            raise Violation(f"{what} changed files in the storage: {changed}", clauses.RESTORED)
        self._shown_by(wanted, [one for _, one in sources], groups)
        if wanted:
            self._note_hints([one for _, one in sources], hints)

    def _note_hints(self, sources: list[SnapshotModel], hints: dict[str, Any]) -> None:
        """Count with which hints a snapshot was taken and restored."""
        taken = {one.compression for one in sources}
        noted = {
            reached.COMPRESSED: taken != {PLAIN},
            reached.COMPRESSED_OTHERWISE: taken != {hints["compression"]},
            reached.READ_ONLY: bool(hints.get("read_only")),
        }
        self.reached.update(situation for situation, met in noted.items() if met)

    def _shown_by(self, wanted: Entries, sources: list[SnapshotModel], groups: tuple[int, int]) -> None:
        """Count what a comparison has shown that could have failed. An empty store shows nothing."""
        if wanted:
            self.show(clauses.READS)
            self.show(clauses.RESTORED)
            if any(one.after_disturbance for one in sources):
                self.show(clauses.WHOLE)
        if any(groups[0] <= place[1] < groups[1] for one in sources for place in one.later):
            self.show(clauses.ISOLATED)
        for one in sources:
            if not one.compared and one.later:
                one.compared = True
                self.reached.update(list(one.met))
                self.reached.update(
                    reached.at_once(count) for count in reached.COUNTS if one.unfinished_max >= count
                )

    def _clause_of(self, found: Difference, sources: list[tuple[StoreModel, SnapshotModel]]) -> str:
        """Return the clause that is broken: a wrong read, a later write in an older snapshot, or an inexact restore."""
        if found.right_by or found.twice:
            return clauses.READS
        later = any(model.written_later(one, found.place, found.found) for model, one in sources)
        return clauses.ISOLATED if later else clauses.RESTORED

    def _damaged(self, step: steps.Damaged) -> None:
        """The restore must be refused, or give what was written, because a restore may not need every file."""
        if not self._in_phase(step, "completed"):
            return
        other = steps.Verify(1 - step.store, step.beside)
        if step.beside and not self._in_phase(other, "completed"):
            return
        model = self.stores[step.store].snapshots[step.checkpoint]
        if not -len(model.handles) <= step.file < len(model.handles):
            return
        number, groups = step.file % len(model.handles), self._ranges[step.store]
        beside = self.stores[other.store].snapshots[step.beside] if step.beside else SnapshotModel({})
        if step.beside:
            groups = self._ranges[0][0], self._ranges[1][1]
        storage = copied((*model.handles, *beside.handles), self._storage, self._made("storage"))
        packed = self.call(wire.DamageRequest(model.handles[number], step.damage, storage))
        handles = list(model.handles)
        handles[number] = msgspec.convert(packed, wire.Handle)
        what = f"a restore from {Path(handles[number].path).name}, which {wire.DAMAGED_HOW[step.damage]},"
        # Those of store 0 come first, as if the runtime restored both.
        restored = (*handles, *beside.handles) if step.store == 0 else (*beside.handles, *handles)
        request = wire.OpenRequest(
            *(_SPARE_STORE, *groups, step.store, self.attempt + 1, restored), storage=storage
        )
        self._restore_damaged(request, handles[number], model.content | beside.content, what)

    def _cut_off(self, step: steps.CutOff) -> None:
        """Restore as from a damaged file, cut off more and more."""
        if not self._in_phase(step, "completed"):
            return
        snapshot = self.stores[step.store].snapshots[step.checkpoint]
        if snapshot.attempt != self.attempt or not -len(snapshot.handles) <= step.file < len(
            snapshot.handles
        ):
            return
        number, groups = step.file % len(snapshot.handles), self._ranges[step.store]
        storage, whole = (
            copied(snapshot.handles, self._storage, self._made("storage")),
            snapshot.handles[number],
        )
        lengths = self.call(wire.LengthsRequest(step.store, step.checkpoint, whole, step.at_most))
        for length in lengths:
            cut = msgspec.convert(self.call(wire.CutRequest(whole, length, storage)), wire.Handle)
            handles = tuple(cut if handle is whole else handle for handle in snapshot.handles)
            what = f"a restore from {Path(whole.path).name}, of which only {length} of {whole.size} bytes are left,"
            request = wire.OpenRequest(
                *(_SPARE_STORE, *groups, step.store, self.attempt + 1, handles), storage=storage
            )
            self._restore_damaged(request, cut, snapshot.content, what)

    def _restore_damaged(
        self, request: wire.OpenRequest, damaged: wire.Handle, wanted: Entries, what: str
    ) -> None:
        """Demand that a restore is refused by a message that names the damaged file, or gives all that is wanted."""
        groups = request.start, request.end
        try:
            self.call(request)
            found = first_difference(self.call, _SPARE_STORE, groups, wanted, NAMES, scan_first=True)
            self.call(wire.CloseRequest(_SPARE_STORE))
        except CandidateRaised as error:
            if error.kind not in ("corrupt", "storage"):
                message = f"{what} raised {error} instead of CorruptStateError"
                raise Violation(self._short(message), clauses.REFUSED) from error
            if error.kind == "corrupt" and not promises.names_the_file(str(error), damaged):
                message = f"{what} is refused by a message that does not name the file: {error}"
                raise Violation(self._short(message), clauses.REFUSED) from error
            self.show(clauses.REFUSED)
            return
        if found is not None:
            message = f"{what} was not refused with CorruptStateError: {found.sentence('the store')}"
            raise Violation(message, clauses.REFUSED)

    def _refusals(self, step: steps.Refusals) -> None:
        if not self._in_phase(step, "completed"):
            return
        snapshot, groups = self.stores[step.store].snapshots[step.checkpoint], self._ranges[step.store]
        requests = []
        for handle, how in itertools.product(snapshot.handles, ("fits", "does not fit", "gone")):
            storage = copied(snapshot.handles, self._storage, self._made("storage"))
            damaged = handle
            if how == "gone":
                Path(storage, wire.CHECKPOINTS, handle.path).unlink()
            else:
                packed = self.call(wire.DamageRequest(handle, "half", storage))
                # If the handle fits what is left of the file, not the reader but the backend must refuse it.
                damaged = msgspec.convert(packed, wire.Handle) if how == "fits" else handle
            handles = tuple(damaged if one is handle else one for one in snapshot.handles)
            place = (_SPARE_STORE, *groups, step.store, self.attempt + 1, handles)
            requests.append(wire.OpenRequest(*place, storage=storage))
        if promises.after_refused_opens(self, step.rounds, requests):
            self.show(clauses.KEPT)

    def _closed(self, step: steps.Closed) -> None:
        promises.after_close(self, step)
        self.show(clauses.READS)
        self.show(clauses.CANCELLED)

    def _closed_amid(self, step: steps.ClosedAmid) -> None:
        if promises.closed_amid(self, step):
            self.show(clauses.CANCELLED)

    def _side_by_side(self, step: steps.SideBySide) -> None:
        promises.side_by_side(self, step)
        self.show(clauses.READS)
        self.show(clauses.RESTORED)

    def _repeated(self, step: steps.Repeated) -> None:
        promises.without_own_threads(self, step)
        self.show(clauses.DECLARED)

    def _many_sources(self, step: steps.ManySources) -> None:
        promises.many_sources(self, step)
        self.show(clauses.RESTORED)

    def _restart(self, step: steps.Restart) -> None:
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            if number and (number not in model.snapshots or model.snapshots[number].phase != "completed"):
                return
        if step.how == "close":
            self._close_both()
        else:
            self._kill(step)
        self._compression = step.compression or self._compression
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            ways_back = model.ways_back(number, self.attempt) if number else {}
            for other in model.under_way("taken", "started"):
                model.snapshots[other].phase = "gone"
            model.start_with(model.snapshots[number].content if number else {}, number)
            model.came_from = ways_back
            for one in model.snapshots.values():
                one.writes_before = one.writes_until_end = 0
        self.attempt += 1
        self._begin(step.checkpoints)

    def _kill(self, step: steps.Restart) -> None:
        if step.how == "call":
            keys = tuple(b"%d" % number for number in range(200))
            groups = (self._ranges[0][0],) * len(keys)
            self._candidate().post(wire.PutManyRequest(0, NAMES[0], groups, keys, keys))
        outside = self.resources(settle=False).outside_files if step.how == "bare" else ()
        self._pool.give_back(self._candidate())
        self.candidate = None
        if step.how == "bare":
            self._keep_only(step.checkpoints)
            if outside:
                more = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
                raise Violation(
                    f"the process wrote files outside the working directory: {outside[0]}{more}; everything that a "
                    "restore needs must be in the files that the handles name",
                    clauses.RESTORED,
                )

    def _keep_only(self, checkpoints: tuple[int, int]) -> None:
        """Keep the files of these snapshots, and nothing else of the life that ended."""
        before, kept = (self._storage, self._work), self._made("storage")
        for model, chosen in zip(self.stores, checkpoints, strict=True):
            for number, one in model.snapshots.items():
                if number == chosen:
                    copied(one.handles, self._storage, kept)
                else:
                    one.phase = "gone"
        self._storage, self._work = kept, self._made("work")
        for directory in before:
            shutil.rmtree(directory)

    def _layout(self, step: steps.Layout) -> None:
        self._close_both()
        self._ranges, self._files_wanted, self._incremental = step.ranges, step.files_wanted, step.incremental
        self._compression, self._own_threads = step.compression, step.own_threads
        self._second = step.second
        self._forget_snapshots()
        for model in self.stores:
            model.start_with({})
        self.attempt += 1
        self._begin((0, 0))

    def _redistribute(self, step: steps.Redistribute) -> None:
        for model, number in zip(self.stores, step.checkpoints, strict=True):
            if number and (number not in model.snapshots or model.snapshots[number].phase != "completed"):
                return
        sources = [
            model.snapshots[number]
            for model, number in zip(self.stores, step.checkpoints, strict=True)
            if number
        ]
        content = {place: value for one in sources for place, value in one.content.items()}
        self._close_both()
        self._ranges = step.ranges
        self._forget_snapshots()
        for model, (start, end) in zip(self.stores, step.ranges, strict=True):
            model.start_with({place: value for place, value in content.items() if start <= place[1] < end})
        self.attempt += 1
        self._begin(parts=tuple(handle for one in sources for handle in one.handles))

    def _forget_snapshots(self) -> None:
        for model in self.stores:
            for one in model.snapshots.values():
                one.phase = "gone"

    def _close_both(self) -> None:
        for store in (0, 1):
            for checkpoint in self.stores[store].under_way("started"):
                self.call(wire.NotifyRequest(store, checkpoint, "cancel"))
                self.stores[store].snapshots[checkpoint].cancelled = True
                self._finish(steps.Finish(store, checkpoint))
            self.call(wire.CloseRequest(store, times=2))

    # --- what is left behind --------------------------------------------------------------------------------

    def _crowd(self, step: steps.Crowd) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + step.rounds + 10)
        leftovers.after_failed_snapshots(self, step)
        self.show(clauses.KEPT)

    def _steady(self, step: steps.Steady) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + step.rounds + 10)
        leftovers.after_snapshots(self, step)
        self.show(clauses.KEPT)

    def _dropped(self, step: steps.Dropped) -> None:
        self.next_checkpoint = max(self.next_checkpoint, step.checkpoint + 10 * step.rounds + 100)
        leftovers.after_dropped_snapshots(self, step)
        self.show(clauses.KEPT)

    def _resources(self, step: steps.Resources) -> None:
        for store in (0, 1):
            self.call(wire.CloseRequest(store))
        self.next_checkpoint = leftovers.after_close(self, step.rounds, self._ranges[0], self.next_checkpoint)
        self.show(clauses.CANCELLED)
        self.show(clauses.KEPT)
        self._begin((0, 0))
        for model in self.stores:
            model.start_with({})
