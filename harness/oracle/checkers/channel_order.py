"""Channels are FIFO: the records of one split and key take effect in the order of the split (BAR-2).

Records that a restored checkpoint held in flight also take effect in the order of their channel, at another parallelism
too (RSC-3).

A record reaches its key's operator over only one channel, that of its source, and the operator numbers the rows of a
key as it makes them. So with growing numbers of a key, the offsets of each split grow, even across a recovery, which
also replays in order. Between splits any order is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED, RESCALED
from barrier_tck.harness.oracle.evidence.recoveries import ancestors, restored_checkpoints
from barrier_tck.harness.oracle.evidence.replayed_order import REPLAYED
from barrier_tck.harness.oracle.evidence.trial_input import InputRecord, TrialInput
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.sequential_model import Key, values_of

_OVERTAKEN = Sign("a record takes effect before an earlier one of its split and key", "BAR-2")
_REORDERED = Sign("records that were in flight take effect in another order after a restore", "RSC-3")


class ChannelOrder(StandardChecker):
    """Compares the order in which the records of each split took effect with the order of the split."""

    name = "channel-order"
    requires = (
        "The records of one split and key take effect in the order of the split, and those that a "
        "restored checkpoint held in flight in the order of their channel."
    )
    judges = (
        "workloads with a sequential model that keeps state, unless a shuffle runs in at-least-once mode; "
        "systems with FIFO channels"
    )
    covers = {"BAR-2": COMPLETED, "RSC-3": RESCALED}
    needs = frozenset({Capability.FIFO_CHANNELS})
    signs = (_OVERTAKEN, _REORDERED)
    rank = 60

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.SEQUENTIAL and trial.exact and trial.input.spec.stateful

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        """Take the input with which the output is compared; its job must number the rows of a key."""
        self._input = trial_input
        self.clauses = ("BAR-2", "RSC-3") if trial_input.plan.rescales else ("BAR-2",)

    def check(self, context: TrialContext) -> Finding:
        """Judge the rows of one trial; rows that were judged elsewhere say nothing about their order."""
        if context.history.output is None:
            summary = "the rows were not read one by one, so nothing is said about their order"
            return Finding(self.name, (), Verdict.VALID, summary)
        spec, records = self._input.spec, self._input.records
        read = values_of((spec.id_column, spec.aggregates[spec.count_index].name))
        known: list[tuple[int, InputRecord, int]] = []
        for row in context.history.output:
            try:
                identifier, number = read(row)
                record = records.get(identifier)
            except (KeyError, TypeError):
                continue  # another checker reports rows that are not the job's
            if record is not None and isinstance(number, int):
                known.append((number, record, identifier))
        if len({identifier for _, _, identifier in known}) < len(known):
            summary = "records took effect more than once, so there is no single order to judge"
            return Finding(self.name, (), Verdict.VALID, summary)
        known.sort(key=itemgetter(0))
        latest: dict[tuple[Key, str], InputRecord] = {}
        keepers = ", ".join(_keepers(context.plan.job))
        overtaken: list[Breach] = []
        for number, record, identifier in known:
            before = latest.get((record.key, record.split))
            if before is not None and before.offset > record.offset:
                after = f"id {identifier} ({record}) has number {number}, after {before} of the same split"
                overtaken.append(Breach(_OVERTAKEN, after, place=keepers))
            latest[record.key, record.split] = record
        numbers = {identifier: number for number, _, identifier in known}
        replayed, reordered = self._replayed(context, numbers)
        wrong = len(overtaken) + len(reordered)
        counts = {"rows": len(known), REPLAYED: replayed, "out_of_order": wrong}
        if wrong:
            summary = f"{wrong} records took effect before an earlier one of their split or channel and key"
            return self.broken(context, summary, counts, [*overtaken, *reordered])
        summary = "records of one split and key took effect in the order of the split"
        covered = tuple(clause for clause in self.clauses if clause != "RSC-3" or context.later_jobs)
        return Finding(self.name, covered, Verdict.VALID, summary, counts)

    def _replayed(self, context: TrialContext, numbers: Mapping[int, int]) -> tuple[int, list[Breach]]:
        """Return how many records of restored checkpoints were in flight to the operator, each behind another of its
        channel and key, and which of these took effect before the other.
        """
        last = max(restored_checkpoints(context.history), default=None)
        seen, reordered = 0, list[Breach]()
        for view in ancestors(context.history, last):
            stateful = _keepers(context.plan_of(view.attempt).job)
            for channel in view.in_flight:
                if channel.receiver.rpartition("[")[0] not in stateful:
                    continue
                latest: dict[Key, int] = {}
                for row in channel.rows:
                    identifier: int = row[self._input.spec.id_column]
                    record = self._input.records.get(identifier)
                    if record is None or identifier not in numbers:
                        continue  # another checker reports records that are not the input's, or are lost
                    before = latest.get(record.key)
                    if before is not None:
                        seen += 1
                        if numbers[before] > numbers[identifier]:
                            way = f"{channel.sender}->{channel.receiver}"
                            sentence = (
                                f"id {identifier} ({record}) has number {numbers[identifier]}, and {before} has "
                                f"{numbers[before]}: checkpoint {view.checkpoint} held them the other way round in "
                                f"flight from {channel.sender} to {channel.receiver} (RSC-3)"
                            )
                            reordered.append(
                                Breach(_REORDERED, sentence, None, way, view.checkpoint, view.attempt)
                            )
                    latest[record.key] = identifier
        return seen, reordered


def _keepers(job: JobPlan) -> list[str]:
    """Return the vertices that keep state by key."""
    return [vertex.name for vertex in job.vertices if keeps_by_key(vertex)]
