"""Two live stores in a candidate's process, read and written beside a model; a difference is a Violation."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barrier_tck.harness.certify.backend import clauses, steps, wire
from barrier_tck.harness.certify.backend.calls import CandidateCalls, Place
from barrier_tck.harness.certify.backend.free_writes import entry_key, entry_value
from barrier_tck.harness.certify.backend.model import NAMES, PLAIN, RANGES, StoreModel, WrongRead
from barrier_tck.harness.certify.backend.pool import (
    Candidate,
    CandidateDied,
    CandidateError,
    CandidateRaised,
    Pool,
)
from barrier_tck.harness.certify.backend.readings import Difference, first_difference
from barrier_tck.harness.certify.engine.violation import Violation

_CALL_BYTES = 1 << 20
_CALL_ENTRIES = 5_000
"""The largest number of entries in one ``put_many``."""

_SCANS_BESIDE = 4
"""How many scans of other states and key groups are read beside one that is disturbed."""
_KEYS_OF_A_CALL = 40
"""A call with so many keys takes as much again as one with a single key."""
_EFFORT_OF_COUNTING, _EFFORT_OF_A_PROCESS = 50, 1_000
_EFFORTS: dict[type[wire.Request], int] = {
    wire.OpenRequest: 10,
    wire.CloseRequest: 5,
    wire.RaceRequest: 150,
    wire.ResourcesRequest: _EFFORT_OF_COUNTING,
}
"""What takes more than reading or writing one value, and about how many times as much."""


class LiveStores:
    """Two stores in one process, each with its model; plays the steps that read and write them."""

    def __init__(self, pool: Pool) -> None:
        """Open both stores, empty, in the process that was kept or in a new one."""
        self._pool = pool
        self._root = Path(tempfile.mkdtemp(prefix="session-", dir=pool.directory))
        self.candidate = pool.take_idle()
        self.stores = (StoreModel(), StoreModel())
        self.attempt = 0
        self.next_checkpoint = 1
        self.played: list[steps.AnyStep] = []
        self.calls = 0
        self.effort = 0
        self.shown: Counter[str] = Counter()
        """How often each clause was shown: a comparison that could have failed, and did not."""
        self.reached: Counter[str] = Counter()
        """How often something was compared in each situation."""
        self._ranges: tuple[tuple[int, int], tuple[int, int]] = RANGES
        self._files_wanted = 1
        self._incremental = False
        self._compression = PLAIN
        self._own_threads = True
        self._second = ""
        self._storage = self._made("storage")
        self._work = self._made("work")
        self._guarded(self._begin, None)

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the key groups of both stores."""
        return self._ranges

    @property
    def storage(self) -> Path:
        """Return the storage directory."""
        return self._storage

    def end(self, violation: Violation | None = None) -> None:
        """Remove the directories, and keep the process for the next session if nothing in it is under way."""
        under_way = any(model.under_way("started") for model in self.stores)
        if self.candidate is None or (violation is not None and (violation.fatal or under_way)):
            self.abandon()
            return
        if violation is not None:
            try:
                self.candidate.call(wire.ResetRequest(str(self._root), str(self._root)))
            except CandidateError:
                self.abandon()
                return
        self._pool.keep(self.candidate)
        self.candidate = None
        shutil.rmtree(self._root, ignore_errors=True)

    def abandon(self) -> None:
        """Remove the directories and the process, which may be in any state."""
        if self.candidate is not None:
            self._pool.give_back(self.candidate)
            self.candidate = None
        shutil.rmtree(self._root, ignore_errors=True)

    def call(self, request: wire.AnyRequest) -> Any:
        """Send a request to the process; raises what a candidate's call raises."""
        self.calls += 1
        self.effort += _EFFORTS.get(type(request), 1) + len(getattr(request, "keys", ())) // _KEYS_OF_A_CALL
        return self._candidate().call(request)

    def run(self, request: wire.EndingRequest) -> wire.Ran:
        self.calls += 1
        self.effort += 1
        return self._candidate().run(request)

    def resources(self, settle: bool = True) -> wire.Held:
        self.effort += _EFFORT_OF_COUNTING
        return self._candidate().resources(settle)

    @contextlib.contextmanager
    def in_another_process(self) -> Iterator[CandidateCalls]:
        other = self._pool.take()
        self.effort += _EFFORT_OF_A_PROCESS
        try:
            other.call(wire.ResetRequest(str(self._made("storage")), str(self._made("work"))))
            yield _OtherProcess(other, self.attempt)
        finally:
            self._pool.give_back(other)

    def show(self, clause: str) -> None:
        """Count that a clause was shown."""
        self.shown[clause] += 1

    def _begin(
        self, checkpoints: tuple[int, int] = (0, 0), parts: tuple[wire.Handle, ...] | None = None
    ) -> None:
        """Open both stores from their own snapshots, or each from all the files of both."""
        if self.candidate is None:
            self.candidate = self._pool.take()
            self.effort += _EFFORT_OF_A_PROCESS
        self.call(wire.ResetRequest(str(self._storage), str(self._work)))
        for number, model in enumerate(self.stores):
            checkpoint = checkpoints[number]
            handles = model.snapshots[checkpoint].handles if checkpoint else ()
            self.call(
                wire.OpenRequest(
                    *(number, *self._ranges[number], number, self.attempt + 1),
                    handles if parts is None else parts,
                    self._files_wanted,
                    self._incremental,
                    restored=model.restored,
                    compression=self._compression,
                    own_threads=self._own_threads,
                )
            )

    # --- reads and writes -----------------------------------------------------------------------------------

    def _put(self, step: steps.Put) -> None:
        if self._owns(step.store, step.group):
            self.call(wire.PutRequest(step.store, step.name, step.group, step.key, step.value))
            self.stores[step.store].write((step.name, step.group, step.key), step.value)

    def _delete(self, step: steps.Delete) -> None:
        if self._owns(step.store, step.group):
            self.call(wire.DeleteRequest(step.store, step.name, step.group, step.key))
            self.stores[step.store].write((step.name, step.group, step.key), None)

    def _get(self, step: steps.Get) -> None:
        if not self._owns(step.store, step.group):
            return
        place = (step.name, step.group, step.key)
        found = self.call(wire.GetRequest(step.store, *place))
        self._require_read(step.store, place, "get", found)

    def _scan(self, step: steps.Scan) -> None:
        if self._owns(step.store, step.group):
            found = self.call(wire.ScanRequest(step.store, step.name, step.group))
            self._require_scan(step.store, step.name, step.group, found)

    def _put_many(self, step: steps.PutMany) -> None:
        if self._owns(step.store, *step.groups):
            self.call(wire.PutManyRequest(step.store, step.name, step.groups, step.keys, step.values))
            for group, key, value in zip(step.groups, step.keys, step.values, strict=True):
                self.stores[step.store].write((step.name, group, key), value)

    def _get_many(self, step: steps.GetMany) -> None:
        if not self._owns(step.store, *step.groups):
            return
        found = self.call(wire.GetManyRequest(step.store, step.name, step.groups, step.keys))
        if len(found) != len(step.keys):
            raise Violation(f"get_many() gave {len(found)} values for {len(step.keys)} keys", clauses.READS)
        for group, key, value in zip(step.groups, step.keys, found, strict=True):
            self._require_read(step.store, (step.name, group, key), "get_many", value)

    def _require_scan(self, store: int, name: str, group: int, found: list[list[bytes]]) -> None:
        """Compare the entries of one state in one key group."""
        entries = self.stores[store].entries
        wanted = {key: value for (n, g, key), value in entries.items() if (n, g) == (name, group)}
        got = {entry[0]: entry[1] for entry in found}
        if len(got) != len(found):
            raise Violation(f"scan() of state {name!r}, key group {group}, lists a key twice", clauses.READS)
        for key in sorted(wanted.keys() | got.keys()):
            self._require_read(store, (name, group, key), "scan", got.get(key))

    def _require_read(self, store: int, place: Place, form: str, found: bytes | None) -> None:
        """Compare one value. An absent value that was never written shows nothing."""
        model = self.stores[store]
        wanted = model.entries.get(place)
        if found != wanted:
            sentence = Difference(place, form, found, wanted).sentence("the store")
            raise WrongRead(sentence, clauses.READS, place)
        if place in model.written:
            self.show(clauses.READS)

    def _fill(self, step: steps.Fill) -> None:
        """Write in parts, each limited in bytes and in entries."""
        if not self._owns(step.store, *step.groups):
            return
        in_a_call = max(1, min(_CALL_ENTRIES, _CALL_BYTES // (step.key_bytes + step.value_bytes + 1)))
        for start in range(0, step.count, in_a_call):
            numbers = range(start, min(step.count, start + in_a_call))
            part = steps.PutMany(
                *(step.store, step.name),
                groups=tuple(step.groups[number % len(step.groups)] for number in numbers),
                keys=tuple(entry_key(number, step.key_bytes) for number in numbers),
                values=tuple(entry_value(number, step.value_bytes, step.salt) for number in numbers),
            )
            self._put_many(part)

    def _many_states(self, step: steps.ManyStates) -> None:
        start, end = self._ranges[step.store]
        for number in range(step.count):
            name = f"state {number}"
            self._put(steps.Put(step.store, name, start + number % (end - start), b"k", name.encode()))

    def _delete_many(self, step: steps.DeleteMany) -> None:
        if not self._owns(step.store, *step.groups):
            return
        numbers = range(step.first, step.end, step.apart)
        for start in range(0, len(numbers), _CALL_ENTRIES):
            part = numbers[start : start + _CALL_ENTRIES]
            groups = tuple(step.groups[number % len(step.groups)] for number in part)
            keys = tuple(entry_key(number, step.key_bytes) for number in part)
            self.call(wire.DeleteManyRequest(step.store, step.name, groups, keys))
            for group, key in zip(groups, keys, strict=True):
                self.stores[step.store].write((step.name, group, key), None)

    def _read_all(self, step: steps.ReadAll) -> None:
        model, groups = self.stores[step.store], self._ranges[step.store]
        names = tuple(dict.fromkeys((*NAMES, *(name for name, _, _ in model.written))))
        gone = [place for place in model.written if place not in model.entries]
        found = first_difference(self.call, step.store, groups, model.entries, names, False, gone)
        # What is wrong before the first write of a life came with the restore.
        as_restored = not model.writes
        if found is not None:
            by_the_restore = as_restored and not found.right_by and not found.twice
            clause = clauses.RESTORED if by_the_restore else clauses.READS
            raise WrongRead(found.sentence("the store"), clause, found.place)
        if not model.written:
            return
        self.show(clauses.READS)
        if as_restored:
            self.show(clauses.RESTORED)
            self.reached.update(list(model.came_from))
            model.came_from.clear()
        if model.disturbed:
            model.disturbed = False
            self.show(clauses.WHOLE)

    def _disturbed_scan(self, step: steps.DisturbedScan) -> None:
        if not self._owns(step.store, step.group):
            return
        beside = self._beside(step)
        request = wire.DisturbedScanRequest(
            *(step.store, step.name, step.group),
            added=step.added,
            changed=step.changed,
            deleted=step.deleted,
            beside=beside,
        )
        *begun, last = self.call(request)
        own = (step.name, step.group)
        for place, found in zip((own, own, own, *beside), begun, strict=True):
            self._require_disturbed(step, place, found)
        for key, value in (
            (step.added, wire.ADDED),
            (step.changed, wire.CHANGED),
            (step.deleted, None),
        ):
            self.stores[step.store].write((step.name, step.group, key), value)
        self._require_disturbed(step, own, last)

    def _beside(self, step: steps.DisturbedScan) -> tuple[tuple[str, int], ...]:
        """Return some other states and key groups of a store that hold anything, those first that share its name or its
        group.
        """
        held = sorted({place[:2] for place in self.stores[step.store].entries} - {(step.name, step.group)})
        alike = sorted(held, key=lambda place: (place[0] != step.name) + (place[1] != step.group))
        return tuple(alike[:_SCANS_BESIDE])

    def _require_disturbed(self, step: steps.DisturbedScan, place: tuple[str, int], found: Any) -> None:
        try:
            self._require_scan(step.store, *place, found)
        except Violation as violation:
            message = "a scan that was read while other calls wrote or scanned does not give the content at its start"
            where = violation.place if isinstance(violation, WrongRead) else None
            raise WrongRead(f"{message}: {violation}", clauses.READS, where) from violation

    def _foreign(self, step: steps.Foreign) -> None:
        own, foreign = self._ranges[step.store][0], self._ranges[step.store][1]
        at = (step.store, "totals")
        calls: dict[str, wire.AnyRequest] = {
            "get": wire.GetRequest(*at, foreign, b"k"),
            "put": wire.PutRequest(*at, foreign, b"k", b"v"),
            "delete": wire.DeleteRequest(*at, foreign, b"k"),
            "scan": wire.ScanRequest(*at, foreign),
            "get_many": wire.GetManyRequest(*at, (own, foreign), (b"k", b"k")),
            "put_many": wire.PutManyRequest(*at, (foreign,), (b"k",), (b"v",)),
        }
        what = f"{step.call}() of a key group that is not the store's"
        try:
            self.call(calls[step.call])
        except CandidateRaised as error:
            if error.kind != "usage":
                raise Violation(f"{what} raised {error} instead of JobUsageError", clauses.READS) from error
            self.show(clauses.READS)
        else:
            raise Violation(f"{what} was not refused with JobUsageError", clauses.READS)

    # --- the candidate --------------------------------------------------------------------------------------

    def _in_phase(self, step: Any, phase: str) -> bool:
        model = self.stores[step.store].snapshots.get(step.checkpoint)
        return model is not None and model.phase == phase

    def _owns(self, store: int, *groups: int) -> bool:
        start, end = self._ranges[store]
        return all(start <= group < end for group in groups)

    def _made(self, kind: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self._root))

    def _candidate(self) -> Candidate:
        assert self.candidate is not None
        return self.candidate

    def _guarded(
        self, act: Callable[[], None], step: steps.AnyStep | None, what: str = "opening two empty stores"
    ) -> None:
        """Turn everything that a candidate must never do into a Violation."""
        clause = step.clause if step is not None else clauses.RESTORED
        try:
            act()
        except CandidateRaised as error:
            doing = step.description() if step is not None else what
            raise Violation(self._short(f"{doing} raised {error}"), clause) from error
        except CandidateDied as error:
            message = self._short(str(error))
            raise Violation(
                message, clause, fatal=True, hung=error.hung, from_outside=error.from_outside
            ) from error

    def _short(self, text: str) -> str:
        """Leave the session's own directory out of paths."""
        return text.replace(f"{self._root}/", "")


class _OtherProcess:
    """Calls to a process beside the session's own."""

    def __init__(self, candidate: Candidate, attempt: int) -> None:
        self._candidate = candidate
        self.attempt = attempt

    def call(self, request: wire.AnyRequest) -> Any:
        return self._candidate.call(request)

    def run(self, request: wire.EndingRequest) -> wire.Ran:
        return self._candidate.run(request)

    def resources(self, settle: bool = True) -> wire.Held:
        return self._candidate.resources(settle)

    def in_another_process(self) -> contextlib.AbstractContextManager[CandidateCalls]:
        raise AssertionError("one other process is enough")
