"""``expiring``: counts the records of a key in state with a time to live, and says of each what it found (EVT-5).

The state goes when it was not used for ``ttl_ms`` by the clock of the operator, and it is the last use that counts: no
restore and no move to another subtask gives it more to live. So the model is told what time the clock showed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import unknown_problem, whole_number_problem
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

COUNTED = "counted"
"""The name of the state: when it was used last (ms), and what it holds."""
FORMS = ("value", "list", "map")
"""What its state may be."""
REFRESHED_BY = ("writing", "reading")
"""What may count as a use of its state."""


class ReplayedExpiring:
    """The records of a key since its state was new.

    Of the ids of records, those that ``clear_every`` divides end the state, and those that ``look_every`` divides
    change nothing. What is over goes when it is looked for, and ahead of each snapshot.
    """

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self.name, self.ttl = operator.name, wanted["ttl_ms"]
        self.form, self.by_reading = wanted.get("form", "value"), wanted.get("refreshed_by") == "reading"
        self.clear_every, self.look_every = wanted.get("clear_every"), wanted.get("look_every")
        self.now_ms = 0

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        self.remove_what_is_over(kept)
        before: list[int] = list(kept.get("ids", ()))
        if before and self.by_reading:
            kept["used"] = self.now_ms
        if divides(self.clear_every, row["id"]):
            kept.clear()
        elif not divides(self.look_every, row["id"]):
            kept.update(ids=[*before, row["id"]], used=self.now_ms)
        first = before[0] if before else "-"
        return [("", {**row, "how": f"{self.name}:{len(before)} since {first}"})]

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        return ()

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        if not kept:
            return {}
        ids: list[int] = kept["ids"]
        shown: list[Any]
        if self.form == "value":
            shown = [len(ids), ids[0]]
        elif self.form == "list":
            shown = list(ids)
        else:
            shown = [[identifier, ids.count(identifier)] for identifier in sorted(set(ids))]
        return {COUNTED: [kept["used"], shown]}

    def remove_what_is_over(self, kept: KeyState) -> None:
        if kept and self.now_ms >= kept["used"] + self.ttl:
            kept.clear()


def divides(every: int | None, identifier: int) -> bool:
    """Return whether a record is one of those that something is done with."""
    return every is not None and identifier % every == 0


def _problem(operator: OperatorPlan) -> str | None:
    wanted = operator.parameters
    problem = unknown_problem(operator, "ttl_ms", "form", "refreshed_by", "clear_every", "look_every")
    problem = problem or whole_number_problem(operator, "ttl_ms", 1)
    for name in ("clear_every", "look_every"):
        if name in wanted:
            problem = problem or whole_number_problem(operator, name, 2)
    for name, known in (("form", FORMS), ("refreshed_by", REFRESHED_BY)):
        if wanted.get(name, known[0]) not in known:
            problem = problem or f"{operator.name!r} needs one of {', '.join(known)} for {name}"
    return problem


KIND = OperatorKind(name="expiring", keeps=Keeps.BY_KEY, problem=_problem, replayed=ReplayedExpiring)
