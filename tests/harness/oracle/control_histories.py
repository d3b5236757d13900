"""Judges literal histories of checkpoints, and each of them a second time behind an attempt that failed."""

from __future__ import annotations

from typing import Any

import msgspec

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import SUBTASKS, Book, a_context, a_plan

REPEATABLE = Capability.DETERMINISTIC_REPLAY.name


def a_trial(book: Book, plan: TrialPlan, repeatable: bool = True) -> TrialContext:
    context = a_context(plan, book)
    capabilities = context.capabilities | ({REPEATABLE} if repeatable else set())
    return TrialContext(plan, context.history, subtasks=SUBTASKS, capabilities=frozenset(capabilities))


def judge(checker: Checker, book: Book, repeatable: bool = True, faults: Any = (), **config: Any) -> Finding:
    """Judge a history, and demand the same verdict on it if another attempt was before it."""
    plan = a_plan(checkpoints=CheckpointPlan(**{"interval_ms": 1, **config}), faults=faults)
    found = checker.check(a_trial(book, plan, repeatable))
    again = checker.check(a_trial(behind_an_attempt(book, plan), plan, repeatable))
    assert again.verdict is found.verdict, f"behind another attempt: {again.summary}"
    return found


def behind_an_attempt(book: Book, plan: TrialPlan) -> Book:
    """Return the history after an attempt that took one checkpoint, in no time, and failed; so that one is restored."""
    whole = Book().attempt(1).nothing(plan.checkpoints.interval_ms - 1)
    taken_ms = len(whole.operations)
    whole = whole.triggered(1).acknowledged(1).completed(1).attempt_failed(1)
    whole.operations = [
        msgspec.structs.replace(line, time_ms=min(line.time_ms, taken_ms)) for line in whole.operations
    ]
    before = len(whole.operations)
    for line in book.operations:
        operation = _of_the_next_attempt(line.operation)
        index, time_ms = before + line.index, before + line.time_ms
        whole.operations.append(
            msgspec.structs.replace(line, index=index, time_ms=time_ms, operation=operation)
        )
    return whole


def _of_the_next_attempt(operation: ops.Operation) -> ops.Operation:
    """Return the operation with the attempt and the checkpoints that come one later; nobody's are 0 and stay."""
    changed: dict[str, Any] = {}
    for name in operation.__struct_fields__:
        value = getattr(operation, name)
        if name == "restored_checkpoint":
            changed[name] = 1 + (value or 0)
        elif name in ("attempt", "checkpoint", "passed_over_for") and value:
            changed[name] = value + 1
        elif name in ("recorded", "under_way") and value:
            changed[name] = tuple(number + 1 for number in value)
    return msgspec.structs.replace(operation, **changed)


def last(book: Book, checkpoint: int) -> Book:
    """Add the checkpoint that follows the end of all input."""
    return book.tell(ops.CheckpointTriggered(checkpoint, 1, final=True))


def failed(book: Book, checkpoint: int, reason: Reason = Reason.EXPIRED) -> Book:
    return book.tell(ops.CheckpointAborted(checkpoint, 1, reason))
