"""Following a wrong row of a query through a trial; grain: histories that are written here."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.campaign.query_explanation import RowExplanation, explained_row, lines_of
from barrier_tck.harness.cli.campaign_output import explain_command
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import (
    End,
    History,
    InputRow,
    OutputComparison,
    OutputCounts,
    Recorded,
    WrongRow,
)
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptStarted,
    Committed,
    FaultFired,
    JobFinished,
    Operation,
    RowsPassed,
    SinkCalled,
    SinkReturned,
    SinkStood,
    TaskBegan,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord, TrialRecord, TrialResult
from barrier_tck.harness.record.run_directory import write_trial
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.run_totals import RunTotals

ROOT = Path(__file__).parents[3]
LOST_DRIVER = Reason.PROCESS_LOST, "the driver's process is gone"


def history_of(*operations: Operation, wrong: tuple[WrongRow, ...] = ()) -> History:
    """An operation each half a second."""
    lines = tuple(
        Recorded(index, 500.0 * index, "coordinator", operation) for index, operation in enumerate(operations)
    )
    counts = OutputCounts(24, 32, 0, 8, 0, 0, 0, 0)
    compared = OutputComparison(counts, ("2 times: id=10",), wrong=wrong)
    return History(lines, End.FINISHED, Reason.FINISHED, "", None, output_query=compared)


def record_of(*faults: FaultRecord) -> TrialRecord:
    finding = Finding(
        "committed-output", ("SNK-1",), Verdict.INVALID, "8 duplicated rows", {}, ("2 times: id=10",)
    )
    return TrialRecord(
        version=1,
        trial=0,
        system="my_job:job",
        world="spark",
        plan=TrialPlan(),
        verdict=Verdict.INVALID,
        findings=(finding,),
        end="finished",
        end_reason="",
        started_at="2026-01-01T00:00:00+00:00",
        wall_seconds=1.0,
        duration_ms=1.0,
        faults=faults,
    )


def killed(
    point: ProtocolPoint, label: str = "crash coordinator", kind: str = "crash_coordinator"
) -> FaultRecord:
    return FaultRecord(0, label, kind, f"after {point.value}", point.value, "fired", 3.0, "pid 7")


def task(batch: int, attempt: int, partition: int = 0, run: int = 0, retry: int = 0) -> TaskBegan:
    return TaskBegan(batch, attempt, 7, partition, run, retry)


def passed(rows: int, began: TaskBegan, all_of_them: bool = True) -> RowsPassed:
    place = began.micro_batch, began.attempt, began.stage, began.partition, began.run
    return RowsPassed(*place, rows, all_of_them)


def whole(batch: int, attempt: int, rows: int = 4) -> list[Operation]:
    """One run of a micro-batch with one task."""
    began = task(batch, attempt)
    return [SinkCalled(batch, attempt), began, passed(rows, began), SinkReturned(batch, attempt)]


def committed(batch: int, attempt: int) -> Committed:
    return Committed("tasks", batch, attempt)


TWICE = WrongRow(
    kind="duplicated",
    row="id=10, doubled=62",
    expected=1,
    committed=2,
    found_by=("id",),
    input=(InputRow("00001.parquet", 3, "id=10, key=k1, value=31", 1),),
    input_rows=1,
    read_by=(1,),
)
KILLED_AFTER_IT_WROTE = (
    AttemptStarted(1),
    *whole(0, 1),
    committed(0, 1),
    *whole(1, 1, rows=8),
    FaultFired(0, "driver process (pid 4711)"),
    AttemptEnded(1, *LOST_DRIVER),
    AttemptStarted(2),
    *whole(1, 2, rows=8),
    committed(1, 2),
    AttemptEnded(2, Reason.FINISHED),
    JobFinished(),
)


def test_a_row_that_an_appending_sink_wrote_twice() -> None:
    """The driver dies after the sink has returned, before Spark commits; the guide shows what is said then."""
    history = history_of(*KILLED_AFTER_IT_WROTE, wrong=(TWICE,))
    found = explained_row(record_of(killed(ProtocolPoint.ALL_ACKNOWLEDGED)), history)
    page = (ROOT / "docs" / "guide" / "streaming-job.md").read_text()
    shown = page.partition("## Follow one row")[2].partition("```text\n")[2].partition("```")[0]
    assert [line.split() for line in lines_of(found)] == [line.split() for line in _unwrapped(shown)]


def _unwrapped(text: str) -> list[str]:
    """Return the lines of a sample in which a line goes on in those that are indented by eight."""
    return re.sub(r"\n {8}(?! )", " ", text).splitlines()


def test_a_row_that_a_sink_lost_which_notes_first() -> None:
    """In the second run the sink returns, and no task of it has run."""
    lost = msgspec.structs.replace(TWICE, kind="lost", committed=0)
    began = task(1, 1)
    history = history_of(
        AttemptStarted(1),
        SinkCalled(1, 1),
        SinkStood("noted", 1),
        began,
        FaultFired(0, "pid 7"),
        AttemptEnded(1, *LOST_DRIVER),
        AttemptStarted(2),
        SinkCalled(1, 2),
        SinkReturned(1, 2),
        SinkCalled(2, 2),
        committed(1, 2),
        wrong=(lost,),
    )
    found = explained_row(record_of(killed(ProtocolPoint.BARRIER_RECEIVED)), history)
    first, second = found.runs
    assert first.done == (
        "the sink was called",
        "1 task began and passed 0 rows to the sink",
        "the sink passed its point 'noted'",
        "the sink is not known to have returned",
    )
    assert second.done == (
        "the sink was called",
        "no task of the query is known to have begun",
        "the sink returned",
    )
    assert (first.committed, second.committed) == (False, True)
    assert found.again[0].faults == ("kill the driver, at the beginning of a task (pid 7), at 2000.0 ms",)
    assert found.unknown == ()


def test_a_task_that_ran_again_in_one_run_of_its_micro_batch() -> None:
    first, other = task(1, 1, 0, run=1), task(1, 1, 1, run=2)
    second = task(1, 1, 0, run=3, retry=1)
    history = history_of(
        AttemptStarted(1),
        SinkCalled(1, 1),
        first,
        other,
        passed(2, first, all_of_them=False),
        FaultFired(0, "executor 1"),
        passed(3, other),
        second,
        passed(4, second, all_of_them=False),
        passed(4, second),
        SinkReturned(1, 1),
        wrong=(TWICE,),
    )
    fault = killed(ProtocolPoint.RECORDS_PROCESSED, "kill executor of tasks", "kill_executor")
    found = explained_row(record_of(fault), history)
    (again,) = found.again
    assert again.what == "task 0 of stage 7 of micro-batch 1 ran again"
    assert again.by_then == "task 0 of stage 7 is known to have passed 2 rows to the sink"
    assert again.faults == ("kill executor of a task, in the middle of a task (executor 1), at 2500.0 ms",)
    assert [one.sentence for one in found.runs[0].tasks] == [
        "task 0 of stage 7 is known to have passed 2 rows to the sink",
        "task 1 of stage 7 passed all its 3 rows to the sink",
        "task 0 of stage 7, run again as attempt 1, passed all its 4 rows to the sink",
    ]
    assert found.runs[0].end == "not known to be committed"
    assert "which of the tasks of a micro-batch had the row" in found.unknown
    told = [step.what for step in found.steps]
    assert "task 0 of stage 7 of micro-batch 1 has passed 2 rows to the sink" in told
    assert sum("passed" in what and "4 rows" in what for what in told) == 1, "that all were passed is enough"


def test_of_a_row_whose_input_is_not_known_those_that_ran_again_are_followed() -> None:
    nowhere = WrongRow(kind="unexpected", row="total=7", expected=0, committed=1)
    found = explained_row(record_of(), history_of(*KILLED_AFTER_IT_WROTE, wrong=(nowhere,)))
    assert (found.micro_batches, found.others_again) == ((1,), ())
    assert found.why == "those that ran more than once, as it is not known which ones had the row"
    assert [what.partition(":")[0] for what in found.unknown] == [
        "from which row of the input it comes",
        "which micro-batch wrote it",
    ]


def test_of_a_row_that_nothing_ran_again_of_it_says_so_and_names_what_ran_again_elsewhere() -> None:
    elsewhere = msgspec.structs.replace(TWICE, read_by=(0,), micro_batches=(0, 0))
    found = explained_row(record_of(), history_of(*KILLED_AFTER_IT_WROTE, wrong=(elsewhere,)))
    lines = list(lines_of(found))
    assert (found.micro_batches, found.again, found.others_again) == ((0,), (), (1,))
    assert "written by micro-batch 0 (2 times)" in lines
    assert "micro-batches that concern it: those that took its input or wrote it" in lines
    assert "none of them is known to have run more than once" in lines
    assert "other micro-batches that ran more than once: 1" in lines
    assert not [line for line in lines if line.startswith("not known: which micro-batch wrote")]


def test_if_the_writer_is_not_known_what_ran_again_is_followed_beside_what_took_the_input() -> None:
    window = msgspec.structs.replace(
        TWICE, read_by=(0,), micro_batches=(), found_by=(), within="at", input_rows=2
    )
    found = explained_row(record_of(), history_of(*KILLED_AFTER_IT_WROTE, wrong=(window,)))
    assert (found.micro_batches, found.others_again) == ((0, 1), ())
    assert found.why.endswith("ran more than once, as it is not known which one wrote it")
    assert any(again.micro_batch == 1 for again in found.again)
    lines = list(lines_of(found))
    assert any("of the input whose at lies in its window" in line for line in lines), lines
    lost = msgspec.structs.replace(window, committed=0)
    never = explained_row(record_of(), history_of(*KILLED_AFTER_IT_WROTE, wrong=(lost,)))
    assert (never.micro_batches, never.others_again) == ((0,), (1,)), "nobody wrote it"


def test_where_nothing_is_known_all_micro_batches_are_followed() -> None:
    nowhere = WrongRow(kind="lost", row="total=7", expected=1, committed=0)
    quiet = (AttemptStarted(1), *whole(0, 1), *whole(1, 1), JobFinished())
    found = explained_row(record_of(), history_of(*quiet, wrong=(nowhere,)))
    assert found.micro_batches == (0, 1)
    assert found.why.startswith("all of them, as none is known to have run more than once")


def test_a_fault_that_struck_before_the_first_run_is_not_said_to_have_struck_between() -> None:
    history = history_of(
        FaultFired(0), *KILLED_AFTER_IT_WROTE[:10], *KILLED_AFTER_IT_WROTE[11:], wrong=(TWICE,)
    )
    found = explained_row(record_of(killed(ProtocolPoint.ALL_ACKNOWLEDGED)), history)
    lines = list(lines_of(found))
    assert "  no fault struck between the two runs" in lines
    assert any(
        line.endswith("fault: kill the driver, after the sink had returned, before Spark had committed")
        for line in lines
    )


def test_tasks_alone_tell_of_micro_batches_where_spark_has_its_own_sink() -> None:
    first, second = task(1, 1), task(1, 2)
    history = history_of(
        AttemptStarted(1), first, passed(2, first), AttemptStarted(2), second, wrong=(TWICE,)
    )
    found = explained_row(record_of(), history)
    assert [run.done for run in found.runs] == [
        ("1 task began and passed 2 rows to the sink",),
        ("1 task began and passed 0 rows to the sink",),
    ]
    assert found.again[0].what == "micro-batch 1 ran again in attempt 2 of the query"


def test_points_of_a_sink_are_those_of_the_micro_batch_that_it_was_called_for() -> None:
    both = msgspec.structs.replace(TWICE, read_by=(0, 1))
    calls: list[Operation] = list(
        itertools.chain.from_iterable(
            (SinkCalled(batch, 1), SinkStood(f"point {batch}", 1), SinkReturned(batch, 1)) for batch in (0, 1)
        )
    )
    # A sink that does something in the background passes a point when it has returned: it is of none.
    found = explained_row(record_of(), history_of(*calls, SinkStood("late", 1), wrong=(both,)))
    assert [run.points for run in found.runs] == [("point 0",), ("point 1",)]
    assert "which tasks ran: none has told, or the record is of an earlier version" in found.unknown


def test_a_row_is_chosen_by_the_id_of_its_input() -> None:
    other = msgspec.structs.replace(
        TWICE, row="id=1, doubled=2", input=(InputRow("00000.parquet", 1, "id=1, key=k1, value=10", 0),)
    )
    history = history_of(*KILLED_AFTER_IT_WROTE, wrong=(TWICE, other))
    assert explained_row(record_of(), history, 1).row == other
    assert explained_row(record_of(), history, 10).row == TWICE
    with pytest.raises(
        UsageProblem, match=r"none of them comes from an input row with the id 31; leave --record out"
    ):
        explained_row(record_of(), history, 31)


def test_a_trial_of_an_earlier_version_is_not_explained_and_its_examples_are_shown() -> None:
    with pytest.raises(UsageProblem, match=r"an earlier version ran it; its examples are: 2 times: id=10"):
        explained_row(record_of(), history_of())


def test_the_command_explains_what_a_trial_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = history_of(*KILLED_AFTER_IT_WROTE, wrong=(TWICE,))
    record = record_of(killed(ProtocolPoint.ALL_ACKNOWLEDGED))
    write_trial(tmp_path, TrialResult(record, history))
    assert run(["explain", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    expected: RowExplanation = explained_row(record, history)
    assert printed == [line.rstrip() for line in lines_of(expected)]
    assert run(["explain", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["sentence"] == expected.sentence
    assert told["again"][0]["micro_batch"] == 1


def test_the_campaign_says_how_to_follow_a_row_if_one_is_wrong() -> None:
    wrong = record_of()
    right = msgspec.structs.replace(
        wrong, findings=tuple(msgspec.structs.replace(one, verdict=Verdict.VALID) for one in wrong.findings)
    )
    campaign: Any = None  # nothing of it is asked
    reported = ReportedRun(Path("runs/one two"), campaign, RunTotals(), {3: wrong, 4: right})
    assert [explain_command(reported, trial) for trial in (3, 4, 5)] == [
        "barrier-tck explain 'runs/one two' 3",
        None,
        None,
    ]
