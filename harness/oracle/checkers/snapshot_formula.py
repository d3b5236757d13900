"""The snapshot formula: S(C_n) = f({r in R_i : index(r) < index(barrier_n)}), for every completed checkpoint.

Each checkpoint is judged by itself, not only after a recovery (ALN-2): the sequential model folds the source prefixes
up to its positions, and the result is compared with the state that it holds, key by key. The checkpoints of one
attempt are also compared with one another: a barrier never overtakes an earlier one, so positions never go back from
one id to the next (BAR-2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_preconditions import HELD_BACK, OVERTAKEN, STATE_CHANGED
from barrier_tck.harness.oracle.evidence.cut_signs import (
    CUT_SIGNS,
    breach_of,
    circumstances_of,
    restored_view,
    unreadable,
)
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.in_flight import IN_FLIGHT, SOMETIMES_IN_FLIGHT, in_flight_problems
from barrier_tck.harness.oracle.evidence.increment_chains import named_as_skipped, owner_of, skipped
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.opened_checkpoints import (
    going_back,
    misplaced,
    missing_parts,
    opened_checkpoints,
    positions_of,
)
from barrier_tck.harness.oracle.evidence.preconditions import (
    COMPLETED,
    COMPLETED_BY_BARRIERS,
    OF_RESTORES,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.recoveries import attempt_of
from barrier_tck.harness.oracle.evidence.sent_on import all_was_sent
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.sequential_model import Key, Totals, same_accumulators


class SnapshotFormula(StandardChecker):
    """Every checkpoint that was opened holds the fold of exactly the records before its barriers."""

    name = "snapshot-formula"
    requires = "Every completed checkpoint holds the fold of the records before its barriers."
    judges = (
        "workloads with a sequential model, unless a shuffle runs in at-least-once mode; systems whose "
        "checkpoints can be opened"
    )
    covers = {
        "ALN-2": COMPLETED,
        "ALN-1": HELD_BACK,
        "UNA-1": OVERTAKEN,
        "BAR-1": COMPLETED_BY_BARRIERS,
        "BAR-2": COMPLETED,
        "SNP-1": STATE_CHANGED,
        "STA-3": COMPLETED,
        **OF_RESTORES,
    }
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    sometimes = (SOMETIMES_IN_FLIGHT,)
    signs = CUT_SIGNS
    rank = 70
    promise = "what the records before {their} barriers give"
    """What checkpoints must hold, in the words of a summary."""

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.meaning is Meaning.SEQUENTIAL and trial.exact

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input
        # Nothing is aligned in at-least-once mode, and a job without state has no live state that could leak.
        silent = [
            *(["ALN-1"] if trial_input.plan.checkpoints.mode == "at_least_once" else []),
            *(["SNP-1"] if not trial_input.spec.stateful else []),
            *(["ALN-2", "ALN-1", "BAR-2"] if trial_input.plan.checkpoints.overtakes else ["UNA-1"]),
        ]
        silent += [clause for clause in OF_RESTORES if clause not in of_restores(trial_input.plan)]
        self.clauses = tuple(clause for clause in self.clauses if clause not in silent)

    def check(self, context: TrialContext) -> Finding:
        """Judge every checkpoint of one trial."""
        views, opened = context.history.checkpoints, opened_checkpoints(context)
        unopened, harmed = opened.unopened, opened.harmed
        problems: list[Breach] = []
        wrong = 0
        earlier: dict[int | None, SnapshotView] = {}
        right: list[int | None] = []
        for view in opened.judged:
            found = list(named_as_skipped(self._problems(view, context)))
            found.extend(going_back(earlier.get(view.attempt), view))
            earlier[view.attempt] = view
            wrong += bool(found)
            if found:
                circumstances = circumstances_of(context, view, view.attempt in right)
                problems += [breach_of(entry, circumstances, context, view) for entry in found]
            else:
                right.append(view.attempt)
        counts = {
            "checkpoints": len(views),
            "wrong": wrong,
            "not_opened": len(unopened),
            "harmed": len(harmed),
        }
        if context.plan.checkpoints.overtakes:
            counts[IN_FLIGHT] = sum(len(channel.rows) for view in opened.judged for channel in view.in_flight)
        if wrong:
            summary = f"{wrong} of {len(views)} checkpoints do not hold {self.promise.format(their='their')}"
            return self.broken(context, summary, counts, problems)
        if unopened:
            verdict = Verdict.UNKNOWN
            summary = (
                f"{len(unopened)} completed checkpoints were not opened: {', '.join(map(str, unopened[:10]))}"
            )
        elif len(harmed) < len(views):
            besides = f", except {len(harmed)} that the trial damaged" if harmed else ""
            verdict, summary = Verdict.VALID, f"{self._all_hold(len(views))}{besides}"
        elif views:
            summary = "the trial damaged every checkpoint before it was opened"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        else:
            verdict, summary = Verdict.VALID, "no checkpoint completed, so there was none to check"
        return Finding(self.name, self.clauses, verdict, summary, counts)

    def _all_hold(self, number: int) -> str:
        if number == 1:
            return f"the only checkpoint holds {self.promise.format(their='its')}"
        return f"all {number} checkpoints hold {self.promise.format(their='their')}"

    def _problems(self, view: SnapshotView, context: TrialContext) -> Iterator[Difference]:
        """Yield what is wrong with one checkpoint; nothing if it is right."""
        if view.problem is not None:
            yield unreadable(view, context)
            return
        yield from missing_parts(view, context)
        wrong = list(misplaced(view, self._input.prefix.extents, self._input.start_offset))
        if wrong:
            yield from wrong
            return
        twice = list(_held_twice(view))
        if twice:
            yield from twice
            return
        witnesses = self._input.witnesses
        stateful = view.state_by_operator(without=witnesses)
        if len(stateful) > 1:
            names = ", ".join(stateful)
            yield Difference(Kind.STRANGE, f"more than one operator holds keyed state: {names}", names)
            return
        state = next(iter(stateful.values()), {})
        yield from self._compare(view, context, positions_of(view), state)
        for name in witnesses:
            yield from self._witnessed(name, state, view.state_by_operator().get(name, {}), view, context)

    def _witnessed(
        self,
        name: str,
        state: Mapping[str, list[Any]],
        seen: Mapping[str, list[Any]],
        view: SnapshotView,
        context: TrialContext,
    ) -> Iterator[Difference]:
        """Yield the keys for which a chained operator, which counts the same records, holds another count."""
        count = self._input.spec.count_index
        counts = {key_of_text(text): [accumulators[count]] for text, accumulators in state.items()}
        for key, kind, problem in list(_differences(counts, seen)):
            yield self._difference(kind, f"operator {name}: {problem}", key, view, context, name)

    def _compare(
        self,
        view: SnapshotView,
        context: TrialContext,
        positions: Mapping[str, int],
        state: Mapping[str, list[Any]],
    ) -> Iterator[Difference]:
        """Yield the keys whose state does not match the positions; a job without state must hold none."""
        expected = self._input.prefix.up_to(positions) if self._input.spec.stateful else {}
        if view.in_flight:
            yield from in_flight_problems(context.plan_of(view.attempt), view)
            yield from self._strangers(view)
            expected = self._without(expected, view)
        for key, kind, problem in list(_differences(expected, state, self._input.spec.count_index)):
            yield self._difference(kind, problem, key, view, context)

    def _difference(
        self,
        kind: Kind,
        sentence: str,
        key: Key,
        view: SnapshotView,
        context: TrialContext,
        operator: str = "",
    ) -> Difference:
        """Return that a key holds what it should not, with what the restored and later checkpoints say about it."""
        restored = restored_view(context, attempt_of(context.history, view))
        held = _holders(restored, key) if restored is not None else ()
        spec = self._input.spec
        flying = restored is not None and any(
            (record := self._input.records.get(row[spec.id_column])) is not None and record.key == key
            for channel in restored.in_flight
            for row in channel.rows
        )
        lacks = kind is Kind.MISSING
        later = lacks and self._comes_later(key, view, context)

        def sent() -> bool:
            return all_was_sent(context, view, self._input.extents)

        of = operator or self._operator(view, context)
        left_out = skipped(context, view, of, key, sent=sent, comes_later=later) if lacks else ""
        return Difference(
            kind,
            f"{sentence}, {left_out}" if left_out else sentence,
            operator or self._place(key, view, context),
            in_flight_before=flying and not held,
            held_before=bool(held) or (restored is not None and not flying),
            behind=kind is Kind.SURPLUS and self._is_behind(key, view),
            unsent=kind is Kind.SURPLUS and sent(),
            comes_later=later,
            skipped=bool(left_out),
        )

    def _place(self, key: Key, view: SnapshotView, context: TrialContext) -> str:
        """Return the subtasks that hold state of a key or, if none does, who is to hold it, as far as it is known."""
        of = self._operator(view, context)
        return ", ".join(_holders(view, key)) or owner_of(context, view, of, key) or of

    def _operator(self, view: SnapshotView, context: TrialContext) -> str:
        """Return the operator that keeps the totals; "" if no checkpoint has any."""
        views = (view, *context.history.checkpoints)
        names = (name for entry in views for name in entry.state_by_operator(without=self._input.witnesses))
        return next(names, "")

    def _is_behind(self, key: Key, view: SnapshotView) -> bool:
        """Return whether a record of a key lies behind the barriers."""
        positions = positions_of(view)
        return any(
            one.key == key and one.offset >= positions.get(one.split, 0)
            for one in self._input.records.values()
        )

    def _comes_later(self, key: Key, view: SnapshotView, context: TrialContext) -> bool:
        """Return whether a later checkpoint of the attempt holds of a key what the records before it give."""
        for later in opened_checkpoints(context).judged:
            if (
                later.checkpoint <= view.checkpoint
                or later.attempt != view.attempt
                or later.problem is not None
            ):
                continue
            if later.in_flight or list(
                misplaced(later, self._input.prefix.extents, self._input.start_offset)
            ):
                continue
            state = next(iter(later.state_by_operator(without=self._input.witnesses).values()), {})
            expected = self._input.prefix.up_to(positions_of(later))
            if all(wrong != key for wrong, _, _ in _differences(expected, state)):
                return True
        return False

    def _strangers(self, view: SnapshotView) -> Iterator[Difference]:
        identifier = self._input.spec.id_column
        for channel in view.in_flight:
            for row in channel.rows:
                if row[identifier] not in self._input.records:
                    strange = (
                        f"record {row[identifier]} in flight to {channel.receiver} is not part of the input"
                    )
                    yield Difference(Kind.IN_FLIGHT, strange, channel.receiver)

    def _without(self, expected: Totals, view: SnapshotView) -> Totals:
        """Return the fold without the records that are in flight and have not reached the state yet (UNA-1)."""
        job, spec = self._input.plan.job, self._input.spec
        before = [vertex.name for vertex in job.vertices if keeps_by_key(vertex)]
        for vertex in reversed(job.vertices):
            if any(edge.target in before for edge in job.edges if edge.source == vertex.name):
                before.append(vertex.name)
        left = {key: list(accumulators) for key, accumulators in expected.items()}
        for channel in view.in_flight:
            for row in channel.rows if channel.receiver.rpartition("[")[0] in before else ():
                record = self._input.records.get(row[spec.id_column])
                if record is not None:
                    held = left.setdefault(record.key, [0] * len(record.increments))
                    for place, increment in enumerate(record.increments):
                        held[place] -= increment
        return {key: held for key, held in left.items() if held[spec.count_index]}


def _holders(view: SnapshotView, key: Key) -> tuple[str, ...]:
    """Return the subtasks that hold state of a key."""
    return tuple(
        dict.fromkeys(
            part.subtask for part in view.state for text in part.entries if key_of_text(text) == key
        )
    )


def _held_twice(view: SnapshotView) -> Iterator[Difference]:
    """Yield the keys of one operator's state that are in the parts of two subtasks, one of which cannot own it."""
    holders: dict[tuple[str, str, str], str] = {}
    for part in view.state:
        for text in part.entries:
            holder = holders.setdefault((part.operator, part.name, text), part.subtask)
            if holder != part.subtask:
                twice = f"key {text} of {part.operator} is in the parts of {holder} and {part.subtask}"
                yield Difference(Kind.FOREIGN_KEY, twice, part.subtask)


def _differences(
    expected: Totals, state: Mapping[str, list[Any]], count_index: int = 0
) -> Iterator[tuple[Key, Kind, str]]:
    """Yield the keys for which a checkpoint's state is not the expected one, each with what is wrong with it."""
    matched = 0
    for text, accumulators in state.items():
        key = key_of_text(text)
        want = expected.get(key)
        if want is None:
            yield (
                key,
                Kind.SURPLUS,
                f"key {text} holds {accumulators}, but no record of it lies before the barriers",
            )
            continue
        matched += 1
        if not same_accumulators(want, accumulators):
            more = (accumulators[count_index] or 0) - want[count_index]
            kind = Kind.SURPLUS if more > 0 else Kind.MISSING if more < 0 else Kind.WRONG
            one = f": the count is one too {'high' if more > 0 else 'low'}" if abs(more) == 1 else ""
            yield (
                key,
                kind,
                f"key {text} holds {accumulators}; the records before the barriers give {want}{one}",
            )
    if matched < len(expected):
        present = {key_of_text(text) for text in state}
        for key, want in expected.items():
            if key not in present:
                text = msgspec.json.encode(list(key)).decode()
                yield key, Kind.MISSING, f"key {text} is missing; the records before the barriers give {want}"
