"""Snapshots in at-least-once mode: at least the fold of their prefix, and everything beyond it is explained (ALO-1).

Which surplus is right? A subtask whose channels i deliver barrier n at different times takes its snapshot of n after
the last of them, and meanwhile goes on processing all channels. So for each key the snapshot holds

* every record before barrier n on its channel: the fold of the prefix S_n, with nothing missing;
* records at or after S_n that came early. Channels are FIFO and one source subtask reads a split in order, so for
  each split and key they are the *first* ones after S_n: a prefix, which is empty for the channel that was last;
* the surplus with which the attempt was restored, that is what its checkpoint m held beyond its own prefix, unchanged:
  the records of that surplus lie after S_m and were replayed, so they are counted again, now as part of the prefix or
  as early records.

Hence, per key, ``state(n) - fold(S_n) - surplus(m)`` must be the sum, count and values together, of one prefix per
split of the key's records after S_n. If a count fits but a sum does not, this is a violation, and so is a negative
surplus, which means loss. If a surplus is so large that not all sums of prefixes can be listed
(``COMBINATIONS_MAX``), only the count is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from operator import add, sub
from typing import Any

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.opened_checkpoints import opened_checkpoint
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED, COMPLETED_BY_BARRIERS
from barrier_tck.harness.oracle.evidence.recoveries import Cut, cut_of, restored_checkpoints, state_of
from barrier_tck.harness.oracle.standard_checker import Meaning, TrialToJudge
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.sequential_model import Key

COMBINATIONS_MAX = 100_000
"""The largest number of sums of prefixes that are listed to explain one surplus."""

Vector = tuple[int, ...]
"""A count and sums, in the order of the model's aggregates."""


class AtLeastOnceSnapshots(SnapshotFormula):
    """Every checkpoint holds all records before its barriers; any surplus is early records, or was restored."""

    name = "at-least-once-snapshots"
    requires = "A checkpoint holds at least that fold, and everything beyond it can be explained."
    judges = (
        "workloads with a sequential model, if a shuffle runs in at-least-once mode; systems whose "
        "checkpoints can be opened"
    )
    covers = {
        "ALO-1": COMPLETED_BY_BARRIERS,
        "BAR-1": COMPLETED_BY_BARRIERS,
        "BAR-2": COMPLETED,
        "STA-3": COMPLETED,
    }
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 80
    promise = "what the records before {their} barriers give, apart from repeats that can be explained"

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.meaning is Meaning.SEQUENTIAL and not trial.exact

    def _compare(
        self,
        view: SnapshotView,
        context: TrialContext,
        positions: Mapping[str, int],
        state: Mapping[str, list[Any]],
    ) -> Iterator[Difference]:
        """Yield a sentence for each key that lacks something, or has more than can be explained."""
        spec = self._input.spec
        width, count_index = len(spec.aggregates), spec.count_index
        carried = self._restored_cut(view, context)
        held = state_of(view, self._input)
        fold = {key: list(values) for key, values in self._input.prefix.up_to(positions).items()}
        here = Cut(view.checkpoint, positions, held, fold)
        zero = [0] * width
        for key in dict.fromkeys([*held, *fold, *(carried.state if carried is not None else ())]):
            before = carried.surplus(key, width) if carried is not None else zero
            surplus = tuple(a - b for a, b in zip(here.surplus(key, width), before, strict=True))
            if surplus[count_index] < 0:
                missing = (
                    f"key {_text(key)} holds {held.get(key, zero)}; the records before the barriers give "
                    f"{fold.get(key, zero)} and {before} was restored in addition: {-surplus[count_index]} are missing"
                )
                yield self._difference(Kind.MISSING, missing, key, view, context)
            elif any(surplus) and not self._explains(key, positions, surplus):
                yield Difference(
                    Kind.SURPLUS,
                    f"key {_text(key)} holds {held.get(key, zero)}, {list(surplus)} more than the prefix and "
                    "what was carried in, and no records right after the barriers add up to that",
                    self._place(key, view, context),
                )

    def _restored_cut(self, view: SnapshotView, context: TrialContext) -> Cut | None:
        """Return the checkpoint with which the view's attempt began; raises ValueError if it was not opened."""
        checkpoints = restored_checkpoints(context.history)
        if view.attempt is None and any(checkpoint is not None for checkpoint in checkpoints.values()):
            raise ValueError(f"it is not known which attempt took checkpoint {view.checkpoint}")
        restored = checkpoints.get(view.attempt) if view.attempt is not None else None
        if restored is None:
            return None
        found = opened_checkpoint(context, restored)
        if found is None:
            raise ValueError(f"checkpoint {restored} was restored by attempt {view.attempt} but never opened")
        return cut_of(found, self._input)

    def _explains(self, key: Key, positions: Mapping[str, int], surplus: Vector) -> bool:
        """Return whether prefixes of the key's records after the positions, one for each split, add up to the
        surplus."""
        number = surplus[self._input.spec.count_index]
        prefixes = [
            _prefix_sums(offsets_and_values, positions.get(split, 0), number, len(surplus))
            for split, offsets_and_values in self._by_key.get(key, {}).items()
        ]
        return add_up(prefixes, surplus, self._input.spec.count_index)

    @cached_property
    def _by_key(self) -> dict[Key, dict[str, list[tuple[int, list[int]]]]]:
        """Key -> split -> (offset, increments) of its records, in order."""
        found: dict[Key, dict[str, list[tuple[int, list[int]]]]] = {}
        for record in self._input.records.values():
            splits = found.setdefault(record.key, {})
            splits.setdefault(record.split, []).append((record.offset, record.increments))
        return found


def add_up(prefixes: Sequence[Sequence[Vector]], surplus: Vector, count_index: int) -> bool:
    """Return whether one can choose one vector from each sequence so that they add up to the surplus.

    Each sequence begins with zero. Beyond ``COMBINATIONS_MAX`` combinations, only the count is compared.
    """
    if not prefixes:
        return not any(surplus)
    *others, last = sorted(prefixes, key=len)
    reachable: dict[Vector, None] = {(0,) * len(surplus): None}
    for prefix in others:
        if len(reachable) * len(prefix) > COMBINATIONS_MAX:
            return sum(len(each) - 1 for each in prefixes) >= surplus[count_index]
        reachable = {
            total: None
            for base in reachable
            for vector in prefix
            if (total := tuple(map(add, base, vector)))[count_index] <= surplus[count_index]
        }
    return any(tuple(map(sub, surplus, vector)) in reachable for vector in last)


def _prefix_sums(
    records: Sequence[tuple[int, list[int]]], position: int, number: int, width: int
) -> list[Vector]:
    """Return the sums of the first 0, 1, ... ``number`` records at or after a position."""
    later = [tuple(values) for offset, values in records if offset >= position][:number]
    zero: Vector = (0,) * width
    return list(accumulate(later, lambda a, b: tuple(map(add, a, b)), initial=zero))


def _text(key: Key) -> str:
    return msgspec.json.encode(list(key)).decode()
