"""What must have happened before a VALID says something: what only seems to be a chance is none."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.preconditions import RAN_AGAIN, RECOVERED, RESCALED
from barrier_tck.harness.oracle.evidence.survived_kills import survived_kills
from barrier_tck.harness.plan.trial_plan import RescalePlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.system.job_view import JobView
from tests.harness.oracle.oracle_histories import KILL, Book, a_context, a_plan, positions_at, right_view

PLAN = a_plan(faults=(KILL,))


def context_of(book: Book, end: End = End.FINISHED) -> TrialContext:
    return a_context(PLAN, book, end)


def test_an_attempt_that_only_started_has_recovered_nothing() -> None:
    before = Book().attempt(1).checkpoint(1).attempt_failed(1)
    started = context_of(before.started(2, 1), End.FAILED)
    assert not RAN_AGAIN.holds(started)
    assert not RECOVERED.holds(started)
    assert RECOVERED.holds(context_of(Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2, 1)))


@pytest.mark.parametrize(("end", "ran"), [(End.FINISHED, True), (End.FAILED, False)])
def test_where_nothing_says_that_an_attempt_runs_the_end_of_the_job_does(end: End, ran: bool) -> None:
    book = Book().tell(ops.AttemptStarted(1)).attempt_failed(1).tell(ops.AttemptStarted(2))
    assert RAN_AGAIN.holds(context_of(book, end)) is ran


def test_a_kill_is_survived_if_what_began_later_was_committed() -> None:
    assert not survived_kills(context_of(Book().committed(None).fault()))
    assert survived_kills(context_of(Book().fault().committed(None)))
    assert not survived_kills(context_of(Book().committed(None)))


@pytest.mark.parametrize("end", [End.FINISHED, End.FAILED])
@pytest.mark.parametrize("went_on", [True, False])
def test_without_commits_a_point_that_a_killed_subtask_passes_again_shows_it(end: End, went_on: bool) -> None:
    fired = FaultRecord(0, "kill", "kill_worker", "at 10 ms", None, "fired", went_on=went_on)
    context = replace(context_of(Book().fault(), end), faults=(fired,))
    assert survived_kills(context) is (went_on and end is End.FINISHED)


@pytest.mark.parametrize(
    ("stopped", "widths", "state", "chance"),
    [
        (True, {"totals": 1}, True, True),
        (True, {"totals": 1}, False, False),
        (True, {}, True, False),
        (False, {"totals": 1}, True, False),
    ],
    ids=["narrower, with state", "without any state", "as wide as before", "never stopped"],
)
def test_a_rescale_is_a_chance_if_it_happened_and_moved_something(
    stopped: bool, widths: dict[str, int], state: bool, chance: bool
) -> None:
    plan = a_plan(rescales=(RescalePlan(widths),))
    view = right_view(plan, 1, positions_at(plan, 0.5))
    view = view if state else msgspec.structs.replace(view, state=())
    book = Book().attempt(1).checkpoint(1)
    if stopped:
        book.tell(ops.JobStopped(1, False))
    context = a_context(plan, book.attempt(2, 1), views=(view,))
    context = replace(context, later_jobs=(JobView(()),) if stopped else ())
    assert RESCALED.holds(context) is chance
