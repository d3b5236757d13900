"""What a subtask says last becomes its part of later checkpoints, and must have all that others may need (BAR-6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.list_process import ListProcess, OperatorListState, OperatorStates
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.messages import (
    OperatorSnapshot,
    StateList,
    SubtaskFinished,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_end import SubtaskEnd

SUBTASK = SubtaskId("keep", 0)
LISTS = (StateList("dealt", (b"\x01", b"\x02")), StateList("shared", (b"\x03",), to_all=True))


class NamesOne:
    """Names one of the lists."""

    kept: OperatorListState[int]

    def open(self, lists: OperatorStates) -> None:
        self.kept = lists.split_list("dealt", int)

    def process(self, row: Any, number: int) -> Any:
        return ()


class Sent:
    """A router and a link to the coordinator: remembers the messages."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)

    def send_control(self, element: Any) -> None: ...


@pytest.mark.parametrize("finished", [False, True], ids=["it finishes", "it had finished in the checkpoint"])
def test_a_subtask_that_finishes_hands_on_the_lists_of_every_operator_of_its_chain(finished: bool) -> None:
    parts = tuple(OperatorSnapshot(uid, input_ended=True, lists=LISTS) for uid in ("head", "behind"))
    restored = SubtaskSnapshot(SUBTASK, AttemptNumber(1), parts, finished=finished)
    operators: list[Any] = []
    for one in parts:
        operator = ListProcess(one.operator, NamesOne).build(RowPlane())
        context: Any = type("Context", (), {"place": None})()
        operator.open(context, one)
        operators.append(operator)
    sent: Any = Sent()
    deployment = SubtaskDeployment("job", SUBTASK, AttemptNumber(2), JobConfig(), restored, CheckpointId(1))
    event_time: Any = type("EventTime", (), {"at_the_end": staticmethod(lambda: msgspec.UNSET)})
    SubtaskEnd(deployment, operators, sent, sent, False, event_time).finish("read", None)
    (last,) = sent.messages
    assert isinstance(last, SubtaskFinished)
    assert last.snapshot.finished
    assert last.snapshot.operators == parts
