"""Nothing is sent on a channel that has ended: what the checker says, and what is noted at the outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barrier_tck.harness.oracle.checkers.ends_come_last import EndsComeLast
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.observed_ends import Ends, WatchedLink, WatchedOutput
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    EndOfChannel,
    EndOfInput,
    InputConsumed,
)
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

BARRIER = CheckpointBarrier(CheckpointId(3), 0)
RECORDS = "records"


class Passed(list[object]):
    """An output that keeps what passes."""

    def send_data(self, channel: int, payload: object) -> None:
        self.append((channel, payload))

    def send_control(self, channel: int, element: object) -> None:
        self.append((channel, element))


def test_a_record_behind_the_end_of_a_channel_is_invalid() -> None:
    behind = ops.SentBehindEnd("source[0]", 1, "source[0]->totals[1]", RECORDS)
    finding = EndsComeLast().check(a_context(a_plan(), Book().attempt(1).tell(behind)))
    assert (finding.verdict, finding.clauses) == (Verdict.INVALID, ("BAR-6",))
    assert "source[0]->totals[1]" in finding.summary


def test_a_record_behind_the_end_of_all_input_is_invalid() -> None:
    book = Book().attempt(1).tell(ops.TookBehindEnd("sink[0]", 1))
    finding = EndsComeLast().check(a_context(a_plan(), book))
    assert (finding.verdict, finding.clauses) == (Verdict.INVALID, ("BAR-6",))
    assert "sink[0]" in finding.summary


def test_what_operators_are_given_is_noted_only_behind_the_end_of_input() -> None:
    found: list[object] = []
    given: list[object] = []
    deployment = SimpleNamespace(subtask="sink[0]", attempt=AttemptNumber(1))
    ends = Ends(cast("Any", deployment), (), found.append)

    class Driver:
        def run_chain(self, start: int, payload: Any) -> None:
            given.append((start, payload))

    driver = Driver()
    ends.watch(cast("Any", driver))
    driver.run_chain(0, RECORDS)
    ends.consumed = True
    driver.run_chain(1, None)
    assert not found
    driver.run_chain(0, RECORDS)
    driver.run_chain(0, RECORDS)
    assert found == [ops.TookBehindEnd("sink[0]", 1)]
    assert given == [(0, RECORDS), (1, None), (0, RECORDS), (0, RECORDS)]


def test_where_nobody_finished_early_nothing_is_claimed() -> None:
    book = Book().attempt(1)
    assert EndsComeLast().check(a_context(a_plan(), book)).clauses == ()
    finding = EndsComeLast().check(a_context(a_plan(), book.tell(ops.Finished("source[0]", 1))))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("BAR-6",))


@pytest.mark.parametrize(
    ("elements", "noted"),
    [
        ([RECORDS, BARRIER, EndOfInput(), BARRIER, EndOfChannel()], False),
        ([EndOfInput(), RECORDS], True),
        ([EndOfInput(), EndOfChannel(), BARRIER], True),
        ([EndOfChannel(), RECORDS], True),
        ([EndOfChannel(), EndOfChannel()], True),
    ],
)
def test_outputs_note_what_comes_behind_an_end_and_pass_everything_on(
    elements: list[Any], noted: bool
) -> None:
    found: list[ops.SentBehindEnd | ops.TookBehindEnd | ops.ConsumedAll] = []
    passed = Passed()
    deployment = SimpleNamespace(subtask="source[0]", attempt=AttemptNumber(2))
    names = ("source[0]->totals[0]", "source[0]->totals[1]")
    output = WatchedOutput(cast("Any", passed), Ends(cast("Any", deployment), names, found.append))
    output.send_data(0, cast("Any", RECORDS))
    for element in elements * 2 if noted else elements:
        if element == RECORDS:
            output.send_data(1, element)
        else:
            output.send_control(1, element)
    output.send_data(0, cast("Any", RECORDS))
    seen = [
        (note.subtask, note.attempt, note.channel) for note in found if isinstance(note, ops.SentBehindEnd)
    ]
    assert seen == [("source[0]", 2, names[1])] * noted
    assert len(found) == noted
    assert len(passed) == 2 + len(elements) * (1 + noted)


def test_who_says_that_all_is_consumed_is_noted_once_and_before_it_is_sent() -> None:
    found: list[ops.SentBehindEnd | ops.TookBehindEnd | ops.ConsumedAll] = []
    sent: list[Any] = []
    inner = SimpleNamespace(send=lambda message: sent.append((message, len(found))))
    deployment = SimpleNamespace(subtask="sink[0]", attempt=AttemptNumber(2))
    link = WatchedLink(cast("Any", inner), Ends(cast("Any", deployment), (), found.append))
    consumed = InputConsumed(AttemptNumber(2), SubtaskId("sink", 0))
    for message in ("other", consumed, consumed):
        link.send(message)
    assert sent == [("other", 0), (consumed, 1), (consumed, 1)]
    assert found == [ops.ConsumedAll("sink[0]", 2)]
