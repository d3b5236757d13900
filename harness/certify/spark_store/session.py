"""Plays steps on executors and on the model, and compares what both give."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.spark_store import clauses, steps
from barrier_tck.harness.certify.spark_store.comparisons import Comparisons
from barrier_tck.harness.certify.spark_store.executor import StoreExecutor
from barrier_tck.harness.certify.spark_store.java_process import Died, Raised
from barrier_tck.harness.certify.spark_store.layouts import (
    DEFAULT,
    MANY,
    PREFIXED,
    RANGED,
    Family,
    Key,
    StoreLayout,
)
from barrier_tck.harness.certify.spark_store.model import OpenBatch, VersionedStore, Write
from barrier_tck.harness.certify.spark_store.processes import StoreProcesses
from barrier_tck.harness.certify.spark_store.session_settings import (
    FORMAT_VERSION,
    RETAINED,
    SETTINGS,
    started_again,
)
from barrier_tck.harness.certify.spark_store.storage_files import damaged, storage_files
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites

_LAST_WRITES: tuple[Write, ...] = tuple(("put", DEFAULT, (number, "last"), "x") for number in range(4))
"""What a batch writes last before it is killed in its commit."""
_Writing = steps.PutRow | steps.MergeRow | steps.RemoveRow | steps.RemoveSome | steps.DropFamily


@dataclass(slots=True)
class _Open:
    """An executor, and the batch that it has open."""

    executor: StoreExecutor
    batch: OpenBatch | None = None


@dataclass(slots=True)
class StoreSession:
    """One example: a checkpoint directory, up to two executors at a time, and the model.

    ``apply`` and ``close`` raise Violation as soon as something differs from the model.
    """

    processes: StoreProcesses
    layout: StoreLayout
    checkpoints: Path
    disturbed: bool = False
    """Whether steps disturb writes."""
    played: list[steps.AnyStep] = field(default_factory=list)
    shown: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """Clause -> how many comparisons showed it."""
    calls: int = 0
    model: VersionedStore = field(init=False)
    _compare: Comparisons = field(init=False)
    _open: dict[int, _Open] = field(default_factory=dict)
    _settings: dict[str, str] = field(default_factory=dict)
    """Of the query, as it was started last."""
    _committed_again: bool = False
    """Whether a version has commits with several ids."""
    _maintained: bool = False
    """Whether maintenance changed a file in storage."""
    _killed: bool = False
    _writes: DisturbedWrites | None = None
    """What disturbs writes to the checkpoint directory."""
    _took_s: dict[str, float] = field(default_factory=lambda: {"commit": 0.05, "maintenance": 0.05})
    """How long the last commit and the last maintenance took; kills are aimed with it, on slow machines too."""

    def __post_init__(self) -> None:
        self.model = VersionedStore(tuple(family.name for family in self.layout.families), RETAINED)
        self._compare = Comparisons(self.layout, self.model, self.shown)
        if self.disturbed:
            self._writes = self.processes.disturbed_writes(self.checkpoints)

    @property
    def effort(self) -> int:
        return self.calls

    def apply(self, step: steps.AnyStep) -> None:
        """Play one step."""
        self.played.append(step)
        with self._violations():
            self._play(step)

    def close(self) -> None:
        """Compare every retained version on a fresh executor, and unload all providers."""
        with self._violations():
            for version in self.model.retained_versions():
                self._compare_version(steps.FRESH, version)
            for number in sorted(self._open):
                self._unload(number)

    def end(self, violation: Violation | None = None) -> None:
        """Unload what can be unloaded, after a violation; if that was fatal, the next session gets another JVM."""
        if violation is not None and violation.fatal:
            self.abandon()
            return
        for number in sorted(self._open):
            with contextlib.suppress(Raised, Died):  # the violation is known already
                self._unload(number)
        self._open.clear()

    def abandon(self) -> None:
        """End the JVM, whatever state it is in."""
        self.processes.replace()

    @contextlib.contextmanager
    def _violations(self) -> Iterator[None]:
        """Turn an error, where none may be raised, into a Violation."""
        try:
            yield
        except Raised as error:
            raise Violation(f"raised: {error}", self._suspect()) from error
        except Died as error:
            raise Violation(
                str(error), self._suspect(), fatal=True, hung=error.hung, from_outside=error.from_outside
            ) from error

    def _suspect(self) -> str:
        """Return the clause that counts as broken if a version is wrong: that about the faults that struck before."""
        if self._killed:
            return clauses.KILLS
        if self._writes is not None and self._writes.struck():
            return clauses.WRITES
        if self._committed_again:
            return clauses.IDS
        return clauses.MAINTENANCE if self._maintained else clauses.VERSIONS

    def _play(self, step: steps.AnyStep) -> None:
        self.calls += 1
        match step:
            case steps.StartQuery(settings=settings):
                self._start_query(dict(settings))
            case steps.OpenVersion(executor=number, back=back):
                self._begin(number, max(0, self.model.newest - back))
            case (
                steps.PutRow()
                | steps.MergeRow()
                | steps.RemoveRow()
                | steps.RemoveSome()
                | steps.DropFamily()
            ):
                self._write(step)
            case steps.ReadRow(executor=number, family=family, key=key):
                self._read(number, self._family(family), key)
            case steps.ScanFamily():
                self._scan(step)
            case steps.FillRows(executor=number, family=family, count=count, value=value):
                for place in range(count):
                    self._write(steps.PutRow(number, family, (place, "m"), value))
            case steps.EvictRows(executor=number, family=family, every=every):
                self._evict(number, self._family(family), every)
            case steps.CommitBatch(executor=number):
                self._commit(number)
            case steps.CommitLate(executor=number):
                self._commit_late(number)
            case steps.AbortBatch(executor=number):
                self._abort(number)
            case steps.RerunBatch(executor=number):
                self._rerun(number)
            case steps.MaintainStore(executor=number):
                self._maintain(number)
            case steps.WriteOnAndOn(executor=number, rounds=rounds):
                self._write_on_and_on(number, rounds)
            case steps.ReloadProvider(executor=number):
                self._unload(number)
            case steps.CompareVersion(executor=number, back=back):
                self._compare_version(number, max(0, self.model.newest - back))
            case steps.KillJvm() | steps.DamageFile() | steps.FailWrites():
                self._strike(step)

    # --- stores ---------------------------------------------------------------------------------------------

    def _start_query(self, settings: dict[str, str]) -> None:
        """Start the query with other settings; those that it keeps for its whole life are given before it commits."""
        for number in sorted(self._open):
            self._unload(number)
        if settings.get(FORMAT_VERSION) == "2" and not self.processes.has_commit_ids:
            del settings[FORMAT_VERSION]
        self._settings = started_again(self._settings, settings) if self.model.newest else settings

    def _executor(self, number: int) -> _Open:
        if number not in self._open:
            storage = {} if self._writes is None else self._writes.settings()
            self._open[number] = _Open(
                self.processes.executor(self.layout, self.checkpoints, SETTINGS | self._settings, storage)
            )
        return self._open[number]

    def _begin(self, number: int, version: int) -> OpenBatch | None:
        """Open a version. One that is no longer retained may be refused; then there is no batch."""
        self._abort(number)
        one = self._executor(number)
        batch = self.model.begin(version)
        try:
            one.executor.begin(version, not batch.read_only, self.model.commit_id(version))
        except Raised:
            if self.model.is_retained(version):
                raise
            return None
        one.batch = batch
        return batch

    def _to_write(self, number: int) -> tuple[StoreExecutor, OpenBatch]:
        """Return the open store of an executor; the newest version is opened if there is none that can be written."""
        one = self._executor(number)
        if one.batch is None or one.batch.read_only:
            self._begin(number, self.model.newest)
        assert one.batch is not None
        return one.executor, one.batch

    def _to_read(self, number: int) -> tuple[StoreExecutor, OpenBatch]:
        one = self._executor(number)
        return (one.executor, one.batch) if one.batch is not None else self._to_write(number)

    def _unload(self, number: int) -> None:
        self._abort(number)
        if number in self._open:
            self._open.pop(number).executor.close()

    def _family(self, number: int) -> Family:
        return self.layout.families[number % len(self.layout.families)]

    # --- writes ---------------------------------------------------------------------------------------------

    def _write(
        self, step: steps.PutRow | steps.MergeRow | steps.RemoveRow | steps.RemoveSome | steps.DropFamily
    ) -> None:
        executor, batch = self._to_write(step.executor)
        family = self._family(step.family)
        if isinstance(step, steps.MergeRow):
            family = next((one for one in self.layout.families if one.kind == MANY), family)
        if family.name in batch.dropped():
            return
        match step:
            case steps.MergeRow(key=key, value=value) if family.kind == MANY:
                write: Write = ("merge", family.name, key, value)
            case steps.PutRow(key=key, value=value) | steps.MergeRow(key=key, value=value):
                write = ("put", family.name, key, value)
            case steps.RemoveRow(key=key):
                write = ("remove", family.name, key, "")
            case steps.RemoveSome(number=number):
                there = sorted(batch.content[family.name])
                if not there:
                    return
                write = ("remove", family.name, there[number % len(there)], "")
            case _:
                if family is self.layout.families[0]:
                    return
                write = ("drop", family.name, (0, ""), "")
        self._make(executor, write)
        batch.write(*write)

    def _make(self, executor: StoreExecutor, write: Write) -> None:
        what, name, key, value = write
        family = next(one for one in self.layout.families if one.name == name)
        if what == "put":
            executor.put(family, key, value)
        elif what == "merge":
            executor.merge(family, key, value)
        elif what == "remove":
            executor.remove(family, key)
        else:
            executor.drop(family)

    # --- commits --------------------------------------------------------------------------------------------

    def _commit(self, number: int) -> None:
        executor, batch = self._to_write(number)
        if batch.base != self.model.newest:
            self._abort(number)
            return
        self._open[number].batch = None
        with self._timed("commit"):
            version = executor.commit()
        self._committed(version, batch.base + 1)
        self.model.commit(batch, executor.commit_id)

    def _commit_late(self, number: int) -> None:
        """Commit a version that another executor has committed, if that does not take its place."""
        one = self._open.get(number)
        batch = one.batch if one is not None else None
        if one is None or batch is None or batch.read_only or not one.executor.has_commit_ids:
            self._abort(number)
            return
        if batch.base != self.model.newest - 1:
            self._abort(number)
            return
        one.batch = None
        self._committed(one.executor.commit(), batch.base + 1)
        self._committed_again = True

    @contextlib.contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._took_s[call] = time.monotonic() - began

    def _committed(self, version: int, expected: int) -> None:
        if version != expected:
            raise Violation(f"commit() on version {expected - 1} gave version {version}", clauses.VERSIONS)
        self.shown[clauses.VERSIONS] += 1

    def _abort(self, number: int) -> None:
        one = self._open.get(number)
        if one is None or one.batch is None:
            return
        batch, one.batch = one.batch, None
        self.model.give_up(batch)
        one.executor.abort()

    def _rerun(self, number: int) -> None:
        newest = self.model.newest
        if newest:
            self.model.commit_again(self._run_again(number, newest, self.model.writes(newest)))
            self._committed_again = self._committed_again or self.model.commit_id(newest) is not None

    def _run_again(self, number: int, version: int, writes: list[Write]) -> str | None:
        """Commit a version with these writes, on top of the version before; return the id of the commit."""
        self._abort(number)
        executor = self._executor(number).executor
        executor.begin(version - 1, commit_id=self.model.commit_id(version - 1))
        for write in writes:
            self._make(executor, write)
        self._committed(executor.commit(), version)
        return executor.commit_id

    def _maintain(self, number: int) -> None:
        executor = self._executor(number).executor
        before = storage_files(self.checkpoints)
        with self._timed("maintenance"):
            executor.maintain()
        self._maintained = self._maintained or storage_files(self.checkpoints) != before

    def _write_on_and_on(self, number: int, rounds: int) -> None:
        """Write the same key in many batches, with maintenance after each, and count the files in storage.

        Each batch is aborted once before: what was uploaded for it must go, too.
        """
        files = []
        for place in range(rounds):
            self._write(steps.PutRow(number, 0, (0, "a"), "never"))
            self._abort(number)
            self._write(steps.PutRow(number, 0, (0, "a"), "xyz"[place % 3]))
            self._commit(number)
            self._maintain(number)
            files.append(len(storage_files(self.checkpoints)))
        self._compare.storage(files, rounds)

    # --- reads ----------------------------------------------------------------------------------------------

    def _read(self, number: int, family: Family, key: Key) -> None:
        executor, batch = self._to_read(number)
        if family.name not in batch.dropped():
            self._compare.key(executor, family, key, batch.content, clauses.READS)

    def _scan(self, step: steps.ScanFamily) -> None:
        executor, batch = self._to_read(step.executor)
        family = self._family(step.family)
        if family.name in batch.dropped() or family.kind == MANY:
            return
        self._compare.family(executor, family, batch.content, clauses.READS)
        entries = batch.content[family.name]
        if family.kind == PREFIXED:
            for first in sorted({step.first, *(key[0] for key in entries)}):
                found = executor.scan(family, first)
                wanted = {key: values for key, values in entries.items() if key[0] == first}
                self._compare.pairs(
                    f"a scan of {family.name} by {first}", family, found, wanted, clauses.SCANS
                )
        elif family.kind == RANGED:
            start, end = sorted((step.first, step.last))
            # Of two keys with the same number, the one with the empty text comes first.
            found = executor.range(family, (start, ""), (end, ""))
            wanted = {key: values for key, values in entries.items() if start <= key[0] < end}
            what = f"a scan of {family.name} from {start} to {end}"
            self._compare.pairs(what, family, found, wanted, clauses.SCANS)
            self._compare.order(what, found)

    def _evict(self, number: int, family: Family, every: int) -> None:
        """Remove rows while an iterator stands at them: all others must still come, and each once."""
        executor, batch = self._to_write(number)
        if family.name in batch.dropped() or family.kind == MANY:
            return
        wanted = dict(batch.content[family.name])
        found = executor.evict(family, every)
        what = f"an iterator of {family.name}, of whose rows one in {every} is removed as it comes,"
        self._compare.pairs(what, family, found, wanted, clauses.READS)
        for key, _ in found[every - 1 :: every]:
            batch.write("remove", family.name, key)

    def _compare_version(self, number: int, version: int) -> bool:
        """Compare everything in a version; return False if it was refused, as one that is not retained may be."""
        if self._begin(number, version) is None:
            return False
        one = self._open[number]
        clause = self._suspect()
        try:
            self._compare.content(one.executor, self.model.content(version), clause)
        except Violation as violation:
            where = "a fresh executor" if number == steps.FRESH else f"executor {number}"
            raise Violation(f"version {version} on {where}: {violation}", violation.clause) from violation
        self.shown[clauses.VERSIONS] += clause != clauses.VERSIONS
        self.shown[clauses.ABORTS] += bool(self.model.given_up)
        self._abort(number)
        if number == steps.FRESH:
            self._unload(number)
        return True

    # --- faults ---------------------------------------------------------------------------------------------

    def _strike(self, step: steps.KillJvm | steps.DamageFile | steps.FailWrites) -> None:
        match step:
            case steps.KillJvm():
                self._kill(step)
            case steps.DamageFile():
                self._damage(step)
            case _:
                self._fail_writes(step)

    def _kill(self, step: steps.KillJvm) -> None:
        doubtful = self._about_to_commit(step.executor) if step.moment == "commit" else None
        if step.moment == "now":
            self.processes.kill()
        else:
            executor = self._executor(step.executor).executor
            kill = (
                self.processes.kill_at_file(self.checkpoints, step.files)
                if step.files
                else self.processes.kill_after(self._took_s[step.moment] * step.permille / 1000)
            )
            try:
                if doubtful is None:
                    executor.maintain()
                else:
                    self._committed(executor.commit(), doubtful.base + 1)
                    self.model.commit(doubtful, executor.commit_id)
                    doubtful = None
            except Died as error:
                if error.hung or error.from_outside:
                    raise
            finally:
                kill.join()
                self.processes.kill()
        for one in self._open.values():
            if one.batch is not None:
                self.model.give_up(one.batch)
        self._open.clear()
        self._killed = True
        self._after_fault(step.executor, doubtful, clauses.KILLS)

    def _about_to_commit(self, number: int) -> OpenBatch:
        """Write a last few rows on top of the newest version, and return the batch, which the model no longer has."""
        executor, batch = self._to_write(number)
        if batch.base != self.model.newest:
            self._abort(number)
            executor, batch = self._to_write(number)
        for write in _LAST_WRITES:
            # With nothing written, half a version would be as good as a whole one.
            self._make(executor, write)
            batch.write(*write)
        self._open[number].batch = None
        return batch

    def _fail_writes(self, step: steps.FailWrites) -> None:
        """Commit or maintain while files cannot be written. It may fail, if any was hit; nothing is harmed by it."""
        assert self._writes is not None
        self._abort(step.executor)
        executor = self._executor(step.executor).executor
        doubtful = self.model.begin(self.model.newest) if step.moment == "commit" else None
        before = len(self._writes.struck())
        self._writes.disturb_next(step.fault, step.times)
        try:
            if doubtful is None:
                executor.maintain()
            else:
                for write in _LAST_WRITES:
                    doubtful.write(*write)
                # A store may open its file with the batch or with the first write.
                self.model.commit(
                    doubtful, self._run_again(step.executor, doubtful.base + 1, doubtful.writes)
                )
                doubtful = None
        except Raised:
            if len(self._writes.struck()) == before:
                raise  # it failed by itself
            if doubtful is not None:
                with contextlib.suppress(Raised):  # its files cannot be written either
                    executor.abort()
        finally:
            self._writes.stop()
        self._after_fault(step.executor, doubtful, clauses.WRITES)
        self.shown[clauses.WRITES] += len(self._writes.struck()) > before

    def _after_fault(self, number: int, doubtful: OpenBatch | None, clause: str) -> None:
        """Compare what is retained, and what was being committed if it is there; then run that batch again."""
        for version in self.model.retained_versions():
            self._compare_version(steps.FRESH, version)
            # What went wrong there may have left something behind; after a kill nothing is there.
            if number in self._open:
                self._compare_version(number, version)
        if doubtful is None:
            return
        version = doubtful.base + 1
        executor = self._executor(steps.FRESH).executor
        if not executor.has_commit_ids:  # nobody knows the id of a commit that did not return
            with contextlib.suppress(Raised):  # the version is absent
                executor.begin(version, to_write=False)
                self._compare_doubtful(executor, doubtful, clause)
        self._unload(steps.FRESH)
        self.model.commit(doubtful, self._run_again(number, version, doubtful.writes))
        self._compare_version(steps.FRESH, version)

    def _compare_doubtful(self, executor: StoreExecutor, doubtful: OpenBatch, clause: str) -> None:
        try:
            self._compare.content(executor, doubtful.content, clause)
        except Violation as violation:
            message = f"version {doubtful.base + 1}, whose commit did not return: {violation}"
            raise Violation(message, clause) from violation
        finally:
            executor.abort()

    def _damage(self, step: steps.DamageFile) -> None:
        for number in sorted(self._open):
            self._abort(number)
        files = storage_files(self.checkpoints)
        if not files:
            return
        chosen = sorted(files)[step.file % len(files)]
        with damaged(self.checkpoints / chosen, step.how, step.permille):
            for version in self.model.retained_versions():
                self._load_damaged(chosen, step.how, version)
        for version in self.model.retained_versions():
            self._compare_version(steps.FRESH, version)

    def _load_damaged(self, file: str, how: str, version: int) -> None:
        """A version is refused, when it is opened or read, or it is right."""
        try:
            self._begin(steps.FRESH, version)
            self._compare.content(
                self._open[steps.FRESH].executor, self.model.content(version), clauses.DAMAGE
            )
        except Raised:
            pass
        except Violation as violation:
            raise Violation(f"{how} of {file}: version {version}: {violation}", clauses.DAMAGE) from violation
        self.shown[clauses.DAMAGE] += 1
        with contextlib.suppress(Raised):  # a store that could not be opened cannot be closed either
            self._unload(steps.FRESH)
        self._open.pop(steps.FRESH, None)
