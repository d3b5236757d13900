"""``barrier-tck explain``: where a lost or doubled record was at each cut, and when it went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.explanation import Explanation, Step
    from barrier_tck.harness.campaign.query_explanation import RowExplanation


def explain(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN_DIR", help="A run directory, or the directory of one of its trials."),
    ],
    trial: Annotated[
        int | None,
        typer.Argument(metavar="[TRIAL]", help="The trial's number. Default: the first that failed.", min=0),
    ] = None,
    record: Annotated[
        int | None,
        typer.Option(
            "--record", metavar="ID", help="The record. Default: the first one that the findings name.", min=0
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow one record through a trial.

    It says where the record was at each checkpoint, and when it went wrong. The trial must have been kept. Between the
    last checkpoint at which the record was where it belongs and the first at which it was not lies the step that lost
    or doubled it: the fault, the failed attempt, the restore.

    Of a query of Structured Streaming it follows the first row of the output that is wrong: from which input it comes,
    which micro-batches had it, how far each run of them came, and which fault struck between two runs. --record ID
    chooses the wrong row that comes from the input row with this id.

    \b
    Examples:
      barrier-tck explain runs/modes-20260101-120000
      barrier-tck explain runs/modes-20260101-120000 12 --record 117
    """
    from barrier_tck.harness.campaign.explanation import explained
    from barrier_tck.harness.campaign.query_explanation import explained_row, ran_a_query
    from barrier_tck.harness.record.run_directory import latest_run, trial_directory
    from barrier_tck.harness.record.run_reader import open_run, read_history, read_record

    search_working_directory()  # the workload may be the user's
    directory = path
    if not (path / "record.json").is_file():
        run = open_run(latest_run(path))
        number = trial if trial is not None else next(iter(run.campaign.failing), None)
        if number is None:
            raise UsageProblem(
                f"no trial of {path} failed; name one: {', '.join(map(str, run.kept))} were kept"
            )
        if number not in run.kept:
            raise UsageProblem(
                f"trial {number} of {path} was not kept in full; kept were {', '.join(map(str, run.kept))}"
            )
        directory = trial_directory(run.path, number)
    elif trial is not None:
        raise UsageProblem(f"{path} is the directory of one trial: leave the number {trial} out")
    of_trial, history = read_record(directory), read_history(directory)
    explanation: Explanation | RowExplanation
    if ran_a_query(of_trial):
        explanation = explained_row(of_trial, history, record)
        _print_row(console_for(as_json), explanation)
    else:
        explanation = explained(of_trial, history, record)
        _print(console_for(as_json), explanation)
    emit(as_json, {"sentence": explanation.sentence, **msgspec.to_builtins(explanation)})


def _print_row(console: Console, explanation: RowExplanation) -> None:
    from barrier_tck.harness.campaign.query_explanation import lines_of

    for line in lines_of(explanation):
        console.print(line, markup=False, soft_wrap=True)


def _print(console: Console, explanation: Explanation) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(explanation.sentence)
    for step in explanation.steps:
        mark = ">" if step == explanation.wrong else " "
        say(f"{mark} {step.at_ms:10.1f} ms  {step.what}{_where(step, explanation)}")
    if explanation.right is None and explanation.wrong is None:
        return
    right = "the beginning" if explanation.right is None else _checkpoint(explanation.right)
    wrong = "the end" if explanation.wrong is None else _checkpoint(explanation.wrong)
    say(f"between {right} and {wrong}:")
    for step in explanation.between:
        say(f"  {step.at_ms:10.1f} ms  {step.what}")


def _checkpoint(step: Step) -> str:
    return f"checkpoint {step.checkpoint} ({step.at_ms:.1f} ms)"


def _where(step: Step, explanation: Explanation) -> str:
    place = explanation.place
    if step.checkpoint is None or place is None:
        return ""
    cut = "before the cut" if step.before_the_cut else "behind the cut"
    if step.places or place.key:
        return f", the record {cut}: {'; '.join(step.places) or 'nothing under its key'}"
    return f", the record {cut}" + (" and nowhere" if step.before_the_cut else "")
