"""The snapshot formula: S(C_n) = f({r in R_i : index(r) < index(barrier_n)}), for every completed checkpoint.

Each checkpoint is judged by itself, not only after a recovery (ALN-2): the source prefixes up to its
positions are folded by the sequential model and compared with the state that it holds, key by key. Checkpoints of
one attempt are compared with one another too: a barrier never overtakes an earlier one, so positions never go back
from one id to the next (BAR-2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.damage import is_own_damage
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.oracle.trial_input import TrialInput
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import CheckpointCompleted
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.sequential_model import Key, Totals, same_accumulators
from barrier_tck.harness.workloads.workload import split_name


class SnapshotFormula:
    """Every checkpoint that was opened holds the fold of exactly the records before its barriers."""

    name = "snapshot-formula"
    clauses: tuple[str, ...] = ("ALN-2", "ALN-1", "BAR-1", "BAR-2", "SNP-1", "STA-3")
    promise = "the fold of their prefix"
    """What checkpoints are, in the words of a summary."""

    def __init__(self, trial_input: TrialInput) -> None:
        """Take the input whose prefixes are folded."""
        self._input = trial_input
        # Nothing is aligned in at-least-once mode, and a job without state has no live state to leak.
        silent = [
            *(["ALN-1"] if trial_input.plan.checkpoints.mode == "at_least_once" else []),
            *(["SNP-1"] if not trial_input.spec.stateful else []),
        ]
        self.clauses = tuple(clause for clause in self.clauses if clause not in silent)

    def check(self, context: TrialContext) -> Finding:
        """Judge every checkpoint of one trial."""
        views = context.history.checkpoints
        completed = dict.fromkeys(
            told.operation.checkpoint for told in context.history.of(CheckpointCompleted)
        )
        opened = {view.checkpoint for view in views}
        unopened = [checkpoint for checkpoint in completed if checkpoint not in opened]
        problems: list[str] = []
        wrong = 0
        earlier: dict[int | None, SnapshotView] = {}
        harmed = [view for view in views if _was_harmed(view, context)]
        for view in sorted(views, key=lambda view: view.checkpoint):
            if view in harmed:
                continue
            found = list(self._problems(view, context))
            found.extend(_going_back(earlier.get(view.attempt), view))
            earlier[view.attempt] = view
            wrong += bool(found)
            problems.extend(f"checkpoint {view.checkpoint}: {problem}" for problem in found)
        counts = {
            "checkpoints": len(views),
            "wrong": wrong,
            "not_opened": len(unopened),
            "harmed": len(harmed),
        }
        if wrong:
            verdict, summary = (
                Verdict.INVALID,
                f"{wrong} of {len(views)} checkpoints are not {self.promise}",
            )
        elif unopened:
            verdict = Verdict.UNKNOWN
            summary = (
                f"{len(unopened)} completed checkpoints were not opened: {', '.join(map(str, unopened[:10]))}"
            )
        elif len(harmed) < len(views):
            besides = f", but for {len(harmed)} that the trial damaged" if harmed else ""
            verdict, summary = Verdict.VALID, f"all {len(views)} checkpoints are {self.promise}{besides}"
        elif views:
            summary = "every checkpoint was damaged by the trial before it was opened"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        else:
            verdict, summary = Verdict.VALID, "no checkpoint completed, so there was none to check"
        return Finding(self.name, self.clauses, verdict, summary, counts, chosen(problems))

    def _problems(self, view: SnapshotView, context: TrialContext) -> Iterator[str]:
        """Say what is wrong with one checkpoint; nothing if it is right."""
        if view.problem is not None:
            yield f"it could not be opened: {view.problem}"
            return
        parts = set(view.subtasks)
        yield from (
            f"subtask {subtask} has no part in it" for subtask in context.subtasks if subtask not in parts
        )
        positions = {split_name(split): position for split, position in view.positions.items()}
        misplaced = list(self._misplaced(positions))
        if misplaced:
            yield from misplaced
            return
        twice = list(_held_twice(view))
        if twice:
            yield from twice
            return
        witnesses = self._input.witnesses
        stateful = view.state_by_operator(without=witnesses)
        if len(stateful) > 1:
            yield f"more than one operator holds keyed state: {', '.join(stateful)}"
            return
        state = next(iter(stateful.values()), {})
        yield from self._compare(view, context, positions, state)
        for name in witnesses:
            yield from self._witnessed(name, state, view.state_by_operator().get(name, {}))

    def _witnessed(
        self, name: str, state: Mapping[str, list[Any]], seen: Mapping[str, list[Any]]
    ) -> Iterator[str]:
        """Say where a chained operator, which counts the same records, holds another count than the first one."""
        count = self._input.spec.count_index
        counts = {key_of_text(text): [accumulators[count]] for text, accumulators in state.items()}
        yield from (f"operator {name}: {problem}" for problem in _differences(counts, seen))

    def _compare(
        self,
        view: SnapshotView,
        context: TrialContext,
        positions: Mapping[str, int],
        state: Mapping[str, list[Any]],
    ) -> Iterator[str]:
        """Say where the state is not what the positions ask for; a job without state must hold none."""
        expected = self._input.prefix.up_to(positions) if self._input.spec.stateful else {}
        yield from _differences(expected, state)

    def _misplaced(self, positions: Mapping[str, int]) -> Iterator[str]:
        """Say which splits have no position, or one outside the split."""
        extents = self._input.prefix.extents
        for name, extent in extents.items():
            position = positions.get(name)
            if position is None:
                yield f"split {name} has no position"
            # 0 may stand for a split not yet begun, even if it starts later.
            elif position != 0 and not extent.start <= position <= max(extent.end, self._input.start_offset):
                yield f"split {name} is at {position}, outside its input from {extent.start} to {extent.end}"
        yield from (f"split {name} is not part of the input" for name in positions if name not in extents)


def _held_twice(view: SnapshotView) -> Iterator[str]:
    """Say which keys of one operator's state are in the parts of two subtasks: one of them is not its own."""
    holders: dict[tuple[str, str, str], str] = {}
    for part in view.state:
        for text in part.entries:
            holder = holders.setdefault((part.operator, part.name, text), part.subtask)
            if holder != part.subtask:
                yield f"key {text} of {part.operator} is in the parts of {holder} and {part.subtask}"


def _was_harmed(view: SnapshotView, context: TrialContext) -> bool:
    """Tell whether a checkpoint could not be opened because the trial had damaged it: it says nothing then."""
    return view.problem is not None and is_own_damage(view.problem, context)


def _going_back(earlier: SnapshotView | None, view: SnapshotView) -> Iterator[str]:
    """Say which splits were further on in an earlier checkpoint of the same attempt."""
    for name, position in view.positions.items():
        before = earlier.positions.get(name, 0) if earlier is not None else 0
        if earlier is not None and position < before:
            yield (
                f"split {name} is at {position}, but was at {before} in the earlier checkpoint "
                f"{earlier.checkpoint}: one barrier overtook the other"
            )


def _differences(expected: Totals, state: Mapping[str, list[Any]]) -> Iterator[str]:
    """Say for which keys a checkpoint's state is not the expected one."""
    matched = 0
    for text, accumulators in state.items():
        key = key_of_text(text)
        want = expected.get(key)
        if want is None:
            yield f"key {text} holds {accumulators}, but no record of it lies before the barriers"
            continue
        matched += 1
        if not same_accumulators(want, accumulators):
            yield f"key {text} holds {accumulators}; the records before the barriers give {want}"
    if matched < len(expected):
        present = {key_of_text(text) for text in state}
        yield from (
            f"key {msgspec.json.encode(list(key)).decode()} is missing; "
            f"the records before the barriers give {want}"
            for key, want in expected.items()
            if key not in present
        )


@lru_cache(maxsize=4096)
def key_of_text(text: str) -> Key:
    """Return the key that a JSON text of key values means; raises ValueError if it is no JSON list."""
    try:
        return tuple(msgspec.json.decode(text, type=list[Any]))
    except msgspec.DecodeError as error:
        raise ValueError(
            f"the state has a key {text!r}, which is not the JSON text of a list: {error}"
        ) from error
