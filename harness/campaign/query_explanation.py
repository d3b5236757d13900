"""Explains a trial of a query by one row of its output that is wrong: its input, its micro-batches, and what struck.

Only what the history has is said. The judge notes which rows are wrong and which files their input is in
(``WrongRow``); the driver and its tasks tell which micro-batches ran, how far, and how often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from barrier_tck.harness.campaign.explanation import Step, what_happened
from barrier_tck.harness.record.history import History, InputRow, WrongRow
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptStarted,
    Committed,
    FaultFired,
    FaultHealed,
    Operation,
    RowsPassed,
    SinkCalled,
    SinkReturned,
    SinkStood,
    TaskBegan,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.spark_words import fault_in_words
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.first_line import first_line


class TaskSeen(msgspec.Struct, frozen=True):
    """One run of a task of a micro-batch, as far as it was seen."""

    stage: int
    partition: int
    retry: int
    """How often the task had failed before in this run of its stage."""
    began_ms: float
    again: bool = False
    """Whether the same task of this attempt had begun before."""
    rows: int = 0
    """The rows that it is known to have passed on to the sink."""
    all: bool = False
    """Whether these are all of its rows."""

    @property
    def sentence(self) -> str:
        """What is known of it."""
        tried = f", run again as attempt {self.retry}," if self.again else ""
        rows = _rows(self.rows)
        how_far = (
            f"passed all its {rows} to the sink"
            if self.all
            else f"is known to have passed {rows} to the sink"
        )
        return f"task {self.partition} of stage {self.stage}{tried} {how_far}"


class BatchRun(msgspec.Struct, frozen=True):
    """One run of a micro-batch, in one attempt of the query."""

    micro_batch: int
    attempt: int
    began_ms: float
    sink_called: bool = False
    points: tuple[str, ...] = ()
    """The sink's own points that it passed."""
    sink_returned: bool = False
    tasks: tuple[TaskSeen, ...] = ()
    committed: bool = False
    """Whether Spark is known to have committed it after this run."""
    ended: str = ""
    """How the attempt ended, if the micro-batch was not committed in it."""

    @property
    def done(self) -> tuple[str, ...]:
        """What it had done, in words."""
        passed = sum(task.rows for task in self.tasks)
        found = ["the sink was called"] * self.sink_called
        if self.tasks:
            found.append(f"{_tasks(len(self.tasks))} began and passed {_rows(passed)} to the sink")
        else:
            found.append("no task of the query is known to have begun")
        found += [f"the sink passed its point {point!r}" for point in self.points]
        if self.sink_returned:
            found.append("the sink returned")
        elif self.sink_called:
            found.append("the sink is not known to have returned")
        return tuple(found)

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.committed:
            return "Spark committed the micro-batch"
        return f"not committed: {self.ended}" if self.ended else "not known to be committed"


class Again(msgspec.Struct, frozen=True):
    """A micro-batch, or a task of it, ran again."""

    micro_batch: int
    what: str
    """What ran again, in words."""
    by_then: str
    """What the run before had done."""
    faults: tuple[str, ...]
    """What struck between the beginnings of the two runs."""


class RowExplanation(msgspec.Struct, frozen=True):
    """What is known of a row that is wrong."""

    row: WrongRow
    runs: tuple[BatchRun, ...]
    """The runs of the micro-batches that concern the row."""
    why: str
    """Why these micro-batches concern it, in words."""
    again: tuple[Again, ...]
    """What of them ran more than once, in its order."""
    others_again: tuple[int, ...]
    """Other micro-batches that ran more than once, as a whole or in a task."""
    faults: tuple[str, ...]
    """All faults that struck, in their order, with their times."""
    steps: tuple[Step, ...]
    """What happened; of micro-batches, what happened in those that ran more than once, if any of them did."""
    unknown: tuple[str, ...]
    """What is not known."""

    @property
    def sentence(self) -> str:
        """What is wrong with the row."""
        return f"{self.row.kind}: {self.row.sentence}"

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """The micro-batches that concern it."""
        return tuple(dict.fromkeys(run.micro_batch for run in self.runs))


def ran_a_query(record: TrialRecord) -> bool:
    """Whether a trial ran a query of Structured Streaming."""
    return any(finding.checker == CommittedOutput.name for finding in record.findings)


def explained_row(record: TrialRecord, history: History, identifier: int | None = None) -> RowExplanation:
    """Explain a trial of a query by the wrong row that comes from the input row with an id; None: the first one.

    Raises UsageProblem if no such row is known.
    """
    row = _row_of(record, history, identifier)
    words = {fault.index: fault_in_words(fault) for fault in record.faults}
    runs = _runs(history)
    again = _ran_again(history, runs, words)
    repeated = {one.micro_batch for one in again}
    followed, why = _followed(row, runs, repeated)
    return RowExplanation(
        row=row,
        runs=tuple(run for run in runs if run.micro_batch in followed),
        why=why,
        again=tuple(one for one in again if one.micro_batch in followed),
        others_again=tuple(sorted(repeated - set(followed))),
        faults=tuple(_faults(history, words)),
        steps=tuple(_steps(history, words, sorted(repeated & set(followed)) or followed)),
        unknown=tuple(_unknown(row, runs, followed, history)),
    )


# --- the row --------------------------------------------------------------------------------------------------


def _row_of(record: TrialRecord, history: History, identifier: int | None) -> WrongRow:
    wrong = history.output_query.wrong if history.output_query is not None else ()
    if not wrong:
        texts = [
            text for one in record.findings if one.checker == CommittedOutput.name for text in one.examples
        ]
        hint = f"; its examples are: {' / '.join(texts)}" if texts else ""
        raise UsageProblem(
            f"no row of the output is noted as wrong in this trial: it has none, or an earlier version ran it{hint}"
        )
    if identifier is None:
        return wrong[0]
    for row in wrong:
        if any(
            f"{column}={identifier}" in found.row.split(", ")
            for column in row.found_by
            for found in row.input
        ):
            return row
    raise UsageProblem(
        f"of the output of a query only the first rows that are wrong are kept, and none of them comes from an input "
        f"row with the id {identifier}; leave --record out, or name the id of one of these: "
        f"{' / '.join(row.sentence for row in wrong)}"
    )


def _followed(row: WrongRow, runs: Sequence[BatchRun], repeated: set[int]) -> tuple[tuple[int, ...], str]:
    """Return the micro-batches that concern a row, and why."""
    if row.read_by or row.micro_batches:
        # If it is not known which one wrote it, it may have been one that ran more than once.
        again = repeated - {*row.read_by} if row.committed and not row.micro_batches else set[int]()
        known = tuple(sorted({*row.read_by, *row.micro_batches, *again}))
        ways = ["took its input"] * bool(row.read_by) + ["wrote it"] * bool(row.micro_batches)
        ways += ["ran more than once, as it is not known which one wrote it"] * bool(again)
        return known, f"those that {' or '.join(ways)}"
    if repeated:
        return tuple(
            sorted(repeated)
        ), "those that ran more than once, as it is not known which ones had the row"
    every = dict.fromkeys(run.micro_batch for run in runs)
    return tuple(
        every
    ), "all of them, as none is known to have run more than once, nor which ones had the row"


def _unknown(
    row: WrongRow, runs: Sequence[BatchRun], followed: Sequence[int], history: History
) -> Iterator[str]:
    if not (row.found_by or row.within):
        yield (
            "from which row of the input it comes: the output has no window and no column with the name of the input's "
            "id or key, or no row of the input has the same values there"
        )
    elif not row.read_by:
        yield "which micro-batch took its input: the checkpoint directory does not say"
    if row.committed and not row.micro_batches:
        yield "which micro-batch wrote it: the output has no column batch_id"
    if not any(line for line in history.of(TaskBegan)):
        yield "which tasks ran: none has told, or the record is of an earlier version"
    elif any(
        len({(task.stage, task.partition) for task in run.tasks}) > 1
        for run in runs
        if run.micro_batch in followed
    ):
        yield "which of the tasks of a micro-batch had the row"


# --- the micro-batches ------------------------------------------------------------------------------------------


def _runs(history: History) -> tuple[BatchRun, ...]:
    """Return every run of every micro-batch, in the order in which they began."""
    runs: dict[tuple[int, int], BatchRun] = {}
    tasks: dict[tuple[int, int], dict[tuple[int, int, int], TaskSeen]] = {}
    called: BatchRun | None = None

    def run_of(micro_batch: int, attempt: int, at_ms: float) -> BatchRun:
        return runs.setdefault((micro_batch, attempt), BatchRun(micro_batch, attempt, at_ms))

    def change(run: BatchRun, **changes: object) -> BatchRun:
        runs[run.micro_batch, run.attempt] = changed = msgspec.structs.replace(run, **changes)
        return changed

    for line in history.operations:
        match line.operation:
            case SinkCalled(micro_batch=batch, attempt=attempt):
                called = change(run_of(batch, attempt, line.time_ms), sink_called=True)
            case SinkStood(point=point, attempt=attempt):
                if called is not None and called.attempt == attempt and not called.sink_returned:
                    run = runs[called.micro_batch, attempt]
                    change(run, points=(*run.points, point))
            case SinkReturned(micro_batch=batch, attempt=attempt):
                called = change(run_of(batch, attempt, line.time_ms), sink_returned=True)
            case TaskBegan(micro_batch=batch, attempt=attempt) as began:
                run_of(batch, attempt, line.time_ms)
                known = tasks.setdefault((batch, attempt), {})
                again = any(key[:2] == (began.stage, began.partition) for key in known)
                known[began.stage, began.partition, began.run] = TaskSeen(
                    began.stage, began.partition, began.retry, line.time_ms, again
                )
            case RowsPassed(micro_batch=batch, attempt=attempt) as passed:
                known = tasks.get((batch, attempt), {})
                key = passed.stage, passed.partition, passed.run
                if key in known:
                    known[key] = msgspec.structs.replace(known[key], rows=passed.rows, all=passed.all)
            case Committed(checkpoint=batch):
                last = [run for run in runs.values() if run.micro_batch == batch]
                if last:
                    change(last[-1], committed=True)
    ends = {line.operation.attempt: line.operation for line in history.of(AttemptEnded)}
    for of_run, run in list(runs.items()):
        change(
            run,
            tasks=tuple(tasks.get(of_run, {}).values()),
            ended="" if run.committed or run.attempt not in ends else _ended(ends[run.attempt]),
        )
    return tuple(runs.values())


def _ended(end: AttemptEnded) -> str:
    detail = first_line(end.detail) or end.reason.value
    return f"attempt {end.attempt} of the query ended ({detail})" if end.reason is not Reason.FINISHED else ""


def _ran_again(history: History, runs: Sequence[BatchRun], words: dict[int, str]) -> tuple[Again, ...]:
    """Return each micro-batch that ran again after another run, and each task that did so in one run of it."""
    found: list[tuple[float, Again]] = []

    def add(batch: int, what: str, by_then: str, begin_ms: float, end_ms: float) -> None:
        between = tuple(_faults(history, words, begin_ms, end_ms))
        found.append((end_ms, Again(batch, what, by_then, between)))

    for number, run in enumerate(runs):
        before = next((one for one in reversed(runs[:number]) if one.micro_batch == run.micro_batch), None)
        if before is not None:
            what = f"micro-batch {run.micro_batch} ran again in attempt {run.attempt} of the query"
            add(run.micro_batch, what, "; ".join(before.done), before.began_ms, run.began_ms)
        for place, task in enumerate(run.tasks):
            if task.again:
                first = next(
                    one
                    for one in reversed(run.tasks[:place])
                    if (one.stage, one.partition) == (task.stage, task.partition)
                )
                what = (
                    f"task {task.partition} of stage {task.stage} of micro-batch {run.micro_batch} ran again"
                )
                add(run.micro_batch, what, first.sentence, first.began_ms, task.began_ms)
    return tuple(again for _, again in sorted(found, key=lambda one: one[0]))


def _faults(
    history: History, words: dict[int, str], begin_ms: float = 0.0, end_ms: float = float("inf")
) -> Iterator[str]:
    """Yield the faults that struck in a time, in words."""
    for line in history.of(FaultFired):
        if begin_ms <= line.time_ms <= end_ms:
            yield f"{_fault(line.operation, words)}, at {line.time_ms:.1f} ms"


def _fault(fired: FaultFired, words: dict[int, str]) -> str:
    label = words.get(fired.fault, f"fault {fired.fault}")
    return label + (f" ({fired.target})" if fired.target else "")


def _steps(history: History, words: dict[int, str], followed: Sequence[int]) -> Iterator[Step]:
    """Yield what happened, of micro-batches only those that are followed."""
    finished = {_task(line.operation) for line in history.of(RowsPassed) if line.operation.all}
    called: int | None = None
    for line in history.operations:
        operation = line.operation
        if isinstance(operation, SinkCalled):
            called = operation.micro_batch
        what = _step(operation, words, followed, called)
        if isinstance(operation, RowsPassed) and not operation.all and _task(operation) in finished:
            what = None  # the line that says that all were passed is enough
        if what is not None:
            yield Step(line.time_ms, what)


def _task(passed: RowsPassed) -> tuple[int, int, int, int]:
    return passed.attempt, passed.stage, passed.partition, passed.run


def _step(
    operation: Operation, words: dict[int, str], followed: Sequence[int], called: int | None
) -> str | None:
    match operation:
        case FaultFired():
            return f"fault: {_fault(operation, words)}"
        case FaultHealed(fault=fault):
            return f"healed: {words.get(fault, f'fault {fault}')}"
        case AttemptStarted(attempt=attempt):
            return f"attempt {attempt} of the query starts" + " from the checkpoint directory" * (attempt > 1)
        case SinkStood(point=point) if called in followed:
            return f"the sink passes its point {point!r}"
        case SinkCalled(micro_batch=batch) if batch in followed:
            return f"the sink is called for micro-batch {batch}"
        case SinkReturned(micro_batch=batch) if batch in followed:
            return f"the sink returns from micro-batch {batch}"
        case TaskBegan(micro_batch=batch, stage=stage, partition=partition, retry=retry) if batch in followed:
            return f"task {partition} of stage {stage} of micro-batch {batch} begins (attempt {retry})"
        case RowsPassed(micro_batch=batch, stage=stage, partition=partition) as passed if batch in followed:
            rows = f"all its {_rows(passed.rows)}" if passed.all else _rows(passed.rows)
            return f"task {partition} of stage {stage} of micro-batch {batch} has passed {rows} to the sink"
        case Committed(checkpoint=batch) if batch in followed:
            return f"micro-batch {batch} is known to be committed"
        case AttemptEnded():
            return what_happened(operation, words)
        case _:
            return None


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"


def _tasks(number: int) -> str:
    return f"{number} task{'s' * (number != 1)}"


def lines_of(explanation: RowExplanation) -> Iterator[str]:
    """Yield what is known of a row, for a terminal."""
    row = explanation.row
    yield explanation.sentence
    if row.writers:
        yield f"written by {row.writers}"
    yield from _input(row)
    yield f"micro-batches that concern it: {explanation.why}"
    for run in explanation.runs:
        yield f"  micro-batch {run.micro_batch} in attempt {run.attempt} of the query: {'; '.join(run.done)}; {run.end}"
    for again in explanation.again:
        yield again.what
        yield f"  by then: {again.by_then}"
        yield from (f"  between the two runs: {fault}" for fault in again.faults)
        if not again.faults:
            yield "  no fault struck between the two runs"
    if not explanation.again:
        yield "none of them is known to have run more than once"
    if explanation.others_again:
        yield f"other micro-batches that ran more than once: {', '.join(map(str, explanation.others_again))}"
    yield "what happened:"
    for step in explanation.steps:
        yield f"  {step.at_ms:10.1f} ms  {step.what}"
    yield from (f"not known: {what}" for what in explanation.unknown)


def _input(row: WrongRow) -> Iterator[str]:
    if not (row.found_by or row.within):
        return
    ways = [f"with the same {' and '.join(row.found_by)}"] * bool(row.found_by)
    ways += [f"whose {row.within} lies in its window"] * bool(row.within)
    more = f", of which the first {len(row.input)}" if row.input_rows > len(row.input) else ""
    yield f"from {_rows(row.input_rows)} of the input {' and '.join(ways)}{more}:"
    for found in row.input:
        yield f"  row {found.number} of {found.file}{_taken(found)}: {found.row}"


def _taken(found: InputRow) -> str:
    return "" if found.micro_batch is None else f", which micro-batch {found.micro_batch} took"
