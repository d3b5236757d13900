"""Compares what an open store gives with what the model holds, and says which clause is broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.spark_store import clauses
from barrier_tck.harness.certify.spark_store.executor import Pair, StoreExecutor
from barrier_tck.harness.certify.spark_store.layouts import MANY, RANGED, Family, Key, StoreLayout
from barrier_tck.harness.certify.spark_store.model import Content, VersionedStore
from barrier_tck.harness.certify.spark_store.steps import brief

_ROUNDS_COMPARED = 12


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The comparisons of one session; each raises Violation if something differs, and counts itself otherwise."""

    layout: StoreLayout
    model: VersionedStore
    shown: Counter[str]
    """Promise -> how many comparisons showed it."""

    def content(self, executor: StoreExecutor, content: Content, clause: str) -> None:
        """Compare everything in a store."""
        for family in self.layout.families:
            entries = content[family.name]
            if family.kind == MANY:
                for key in sorted(self.model.keys_written(family.name) | set(entries)):
                    self.key(executor, family, key, content, clause)
            else:
                self.family(executor, family, content, clause)
                # The keys of other families too: most of them are not here.
                for key in sorted({key for others in content.values() for key in others}):
                    self.key(executor, family, key, content, clause)
            self.shown[clauses.FAMILIES] += len(self.layout.families) > 1 and bool(entries)

    def key(self, executor: StoreExecutor, family: Family, key: Key, content: Content, clause: str) -> None:
        """Compare the values of one key."""
        wanted = content[family.name].get(key, ())
        if family.kind == MANY:
            found: tuple[str, ...] = executor.values(family, key)
            clause = clauses.VALUES if clause in (clauses.READS, clauses.VERSIONS) else clause
        else:
            value = executor.get(family, key)
            found = () if value is None else (value,)
        if found != wanted:
            others = [content[other.name].get(key) for other in self.layout.families if other is not family]
            if found and found in others:
                clause = clauses.FAMILIES
            raise Violation(
                f"{family.name}: key {brief(key)} has {_values(found)}, expected {_values(wanted)}",
                self._blamed(clause, {(family.name, key, value) for value in found if value not in wanted}),
            )
        self.shown[clause] += 1

    def family(self, executor: StoreExecutor, family: Family, content: Content, clause: str) -> None:
        """Compare all rows of a family, and their order if it has one."""
        found = executor.iterate(family)
        what = f"iterator({family.name})"
        self.pairs(what, family, found, content[family.name], clause)
        if family.kind == RANGED:
            self.order(what, found)

    def pairs(
        self, what: str, family: Family, found: list[Pair], wanted: dict[Key, tuple[str, ...]], clause: str
    ) -> None:
        """Compare the rows that a scan gave, in whatever order."""
        expected = Counter((key, values[0]) for key, values in wanted.items())
        given = Counter(found)
        if given != expected:
            missing, surplus = list((expected - given).elements()), list((given - expected).elements())
            differences = [f"misses {brief(missing[:3])}"] if missing else []
            if surplus:
                differences.append(f"has {brief(surplus[:3])} too much")
            raise Violation(
                f"{what} {' and '.join(differences)}",
                self._blamed(clause, {(family.name, key, value) for key, value in surplus}),
            )
        self.shown[clause] += bool(wanted) or clause != clauses.SCANS

    def order(self, what: str, found: list[Pair]) -> None:
        """Compare the order of rows in a family that is ordered by its first column."""
        order = [key[0] for key, _ in found]
        if order != sorted(order):
            raise Violation(f"{what} gives the keys in the order {order}", clauses.SCANS)
        self.shown[clauses.SCANS] += len(order) > 1

    def storage(self, files: list[int], rounds: int) -> None:
        """Compare how many files there were after each of the last rounds with those before.

        Compactions make the numbers rise and fall, over fewer rounds than are compared. So both the least and the most
        of the last rounds must have grown, by half a file a round.
        """
        before, last = files[-2 * _ROUNDS_COMPARED : -_ROUNDS_COMPARED], files[-_ROUNDS_COMPARED:]
        if min(min(last) - min(before), max(last) - max(before)) >= _ROUNDS_COMPARED // 2:
            raise Violation(
                f"{rounds} batches that write the same key, with maintenance after each, leave more and more files in "
                f"storage: {min(before)} to {max(before)} before the last {_ROUNDS_COMPARED} batches, {min(last)} to "
                f"{max(last)} since",
                clauses.CLEANUP,
            )
        self.shown[clauses.CLEANUP] += 1

    def _blamed(self, clause: str, unexpected: set[tuple[str, Key, str]]) -> str:
        """Return the clause that is broken: aborts, if what an aborted batch wrote is there."""
        return clauses.ABORTS if unexpected & self.model.given_up else clause


def _values(values: tuple[str, ...]) -> str:
    return " and ".join(map(brief, values)) or "no value"
