"""Money is conserved: at every cut, accounts and channels together hold the same total, and each account what is due.

The first part needs no model at all: whatever the run was, money was only moved. The second part is exact. What an
order moves depends on the order alone, so each balance follows from the orders before the cut, less the payments that
have yet to reach an account because they, or those that they follow from, are in a channel (CHL-2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_preconditions import (
    IN_A_LOOP,
    OVERTAKEN,
    RECORDED,
    STATE_CHANGED,
    STATE_HELD,
)
from barrier_tck.harness.oracle.evidence.cut_signs import CUT_SIGNS, breach_of, circumstances_of, unreadable
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.in_flight import IN_FLIGHT, SOMETIMES_IN_FLIGHT, edge_of
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.opened_checkpoints import misplaced, opened_checkpoints, positions_of
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.plan.job_graph import SINK
from barrier_tck.harness.record.history import Row, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.money import banks_of
from barrier_tck.harness.workloads.payments import OPENING, postings


class Conservation(StandardChecker):
    """Every checkpoint holds all the money, and the balances of the orders before it."""

    name = "conservation"
    requires = (
        "Every checkpoint holds all the money, in accounts and channels, and the balance of each account."
    )
    judges = "the workload `money`, where checkpoints can be opened"
    covers = {
        "CHL-2": RECORDED,
        "CHL-5": IN_A_LOOP,
        "ALN-2": COMPLETED,
        "UNA-1": OVERTAKEN,
        "STA-1": STATE_HELD,
        "STA-3": COMPLETED,
        "SNP-1": STATE_CHANGED,
    }
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    sometimes = (SOMETIMES_IN_FLIGHT,)
    signs = CUT_SIGNS
    rank = 30

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return (
            trial.opens_checkpoints and trial.meaning is Meaning.BY_VERTEX and bool(banks_of(trial.plan.job))
        )

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input
        checkpoints = trial_input.plan.checkpoints
        cut = "CHL-2" if checkpoints.records_all else "UNA-1" if checkpoints.overtakes else "ALN-2"
        self.clauses = (cut, "CHL-5", "STA-1", "SNP-1", "STA-3")

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint that could be opened."""
        job = self._input.plan.job
        accounts = len(banks_of(job)) * self._input.plan.workload.keys
        problems: list[Breach] = []
        right: list[int | None] = []
        judged = compared = moving = 0
        for view in opened_checkpoints(context).judged:
            unfit = list(misplaced(view, self._input.extents, self._input.start_offset))
            if view.problem is not None or unfit:
                wrong = unreadable(view, context) if view.problem is not None else unfit[0]
                circumstances = circumstances_of(context, view, view.attempt in right)
                problems.append(breach_of(wrong, circumstances, context, view))
                continue
            judged += 1
            under_way = list(self._under_way(view))
            moving += sum(1 for row in under_way if row["carries"])
            held = _balances(view)
            compared += len(held)
            found = [*self._lost(held, under_way, accounts), *self._wrong(view, held, under_way)]
            if found:
                circumstances = circumstances_of(context, view, view.attempt in right)
                problems += [breach_of(entry, circumstances, context, view) for entry in found]
            else:
                right.append(view.attempt)
        counts = {
            "checkpoints": judged,
            "balances": compared,
            IN_FLIGHT: moving,
            "violations": len(problems),
        }
        if problems:
            summary = f"money is made or lost: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        if not judged:
            summary = "no checkpoint was completed and opened, so no money was counted"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        summary = (
            f"each of {judged} checkpoints holds {accounts * OPENING}, with {moving} payments in channels"
        )
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)

    def _under_way(self, view: SnapshotView) -> Iterator[Row]:
        """Yield the rows in the channels that do not lead to a sink: what sinks are sent is a copy."""
        job = self._input.plan.job
        for channel in view.in_flight:
            edge = edge_of(job, channel)
            if edge is not None and job.vertex(edge.target).kind != SINK:
                yield from channel.rows

    @staticmethod
    def _lost(held: Mapping[str, int], under_way: list[Row], accounts: int) -> Iterator[Difference]:
        untouched = accounts - len(held)
        carried = sum(row["carries"] for row in under_way)
        total = sum(held.values()) + untouched * OPENING + carried
        if total != accounts * OPENING:
            yield Difference(
                Kind.WRONG,
                f"accounts and channels hold {total} instead of {accounts * OPENING}; {carried} of it is in channels",
                looped=True,
            )

    def _wrong(
        self, view: SnapshotView, held: Mapping[str, int], under_way: list[Row]
    ) -> Iterator[Difference]:
        """Yield the accounts whose balance is not what the orders before the cut give."""
        changes: Counter[str] = Counter()
        positions = positions_of(view)
        for split in self._input.splits:
            for row in split.rows[split.start_offset : positions[split.name]]:
                for account, change in postings(row):
                    changes[account] += change
        for row in under_way:
            for account, change in postings(row):
                changes[account] -= change
        for account in dict.fromkeys((*held, *changes)):
            due, seen = OPENING + changes[account], held.get(account, OPENING)
            if seen != due:
                held_is = f"account {account} holds {seen} instead of {due}"
                yield Difference(Kind.WRONG, held_is, account, looped=True)


def _balances(view: SnapshotView) -> dict[str, int]:
    return {
        str(key_of_text(text)[0]): entry[0] for part in view.state for text, entry in part.entries.items()
    }
