"""Right jobs and wrong ones under drawn trials: twenty of each and some more.

``python -m tests.harness.streaming.forty_jobs run records.jsonl`` runs them as long as asked for, and adds a line of
JSON for each trial to a file. With ``page`` in the place of ``run`` it makes a page of such files. The lines of the
page in ``docs`` are kept in ``forty_jobs.jsonl``, so that another run adds to them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from barrier_tck.harness import StreamingJob, TrialRecord, Verdict, run_trial
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming


@dataclass(frozen=True)
class KnownJob:
    """A job of which it is known whether it is right."""

    address: str
    what: str
    """What it is, and what is wrong with it, in a few words."""
    right: bool

    @property
    def name(self) -> str:
        """Return its name in its module."""
        return self.address.partition(":")[2]

    @property
    def job(self) -> StreamingJob:
        """Import it."""
        found = getattr(importlib.import_module(self.address.partition(":")[0]), self.name)
        assert isinstance(found, StreamingJob)
        return found


def _known(right: bool, module: str, **jobs: str) -> Iterator[KnownJob]:
    for name, what in jobs.items():
        yield KnownJob(f"{module}:{name}", what, right)


_STOCK = "barrier_tck.harness.streaming.driver.stock_jobs"
_PLANTED, _UNUSUAL, _REPORTED = (
    f"tests.harness.streaming.{name}" for name in ("planted_sinks", "unusual_jobs", "reported_jobs")
)
RIGHT = (
    *_known(
        True,
        _STOCK,
        windows="windows by key, a directory for each micro-batch",
        pairs="inner join",
        files="each key once, Spark's own file sink",
    ),
    *_known(
        True,
        _UNUSUAL,
        left_outer="left outer join in a range of time",
        right_outer="right outer join in a range of time",
        full_outer="full outer join in a range of time",
        merged="MERGE of the newest row of each key, a version for each micro-batch",
        deleted="MERGE with deletions",
        load_time_left_out="a column of the time of loading, which is not compared",
        within_watermark="dropDuplicatesWithinWatermark",
        pandas_state="applyInPandasWithState",
        first_rows="dropDuplicates, so that the first row of a key counts",
        long_windows="windows longer than the input",
    ),
    *_known(
        True,
        _REPORTED,
        two_tables="two tables, both overwritten",
        upserted_windows="windows into SQLite by key",
        windows_added_once="windows added to SQLite, with a ledger in the same transaction",
        upserted_totals="totals into SQLite by key",
        nested_windows="windows of windows",
        sessions="session windows",
        one_file_a_partition="a file for each partition, renamed when it is whole",
        checkpoint_kept="a query that its user starts",
    ),
)
WRONG = (
    *_known(
        False,
        _PLANTED,
        appended_rows="foreachPartition appends row after row",
        taken="a directory that exists is taken for a complete one",
        noted="the micro-batch is noted before it is written",
        remembered="what is written is remembered in the driver's memory",
    ),
    *_known(
        False,
        _UNUSUAL,
        left_outer_appended="left outer join, appended",
        merged_all="MERGE by a key that a micro-batch has more than once",
        merged_any="MERGE of the oldest row of each key",
        deleted_too_late="MERGE that drops deletions before it looks for the newest row",
        load_time_appended="a column of the time of loading, appended",
        within_watermark_appended="dropDuplicatesWithinWatermark, appended",
        first_rows_appended="dropDuplicates, appended",
    ),
    *_known(
        False,
        _REPORTED,
        errors_logged="the sink logs its errors and returns",
        in_background="a thread pool writes, and nobody waits",
        without_log="Spark's file sink, read without its log",
        two_tables_asked="two tables, of which the second says whether both are written",
        added_windows="windows added to SQLite without a ledger",
        windows_noted_first="windows into SQLite, the ledger in a transaction before",
        added_totals="totals of mode update added to SQLite",
        sessions_appended="session windows, appended",
        inserted_by_uuid="insert if absent, by a key that is drawn anew",
        checkpoint_lost="a query that its user starts, with a checkpoint directory of each driver's own",
        numbered_in_memory="surrogate keys from a counter in the driver",
    ),
)
ALL = (*RIGHT, *WRONG)
KEPT = Path(__file__).with_suffix(".jsonl")
"""The lines of the page in ``docs``."""


def trials(
    system: StructuredStreaming, known: KnownJob, numbers: range, directory: Path, seed: int = 0
) -> Iterator[TrialRecord]:
    """Yield the records of some of the trials that are drawn for a job, on a cluster that is kept from job to job."""
    system._job = known.job
    # A job that is added changes the trials of no other.
    own_seed = 100 * seed + (RIGHT.index(known) if known.right else 20 + WRONG.index(known))
    configuration = CampaignConfiguration(
        system=SystemSection(known.address), seed=own_seed, trials=numbers.stop
    )
    for trial, plan in islice(enumerate(campaign_plans(configuration, system)), numbers.start, numbers.stop):
        place = directory / f"{known.name}-{trial}"
        place.mkdir(parents=True)
        yield run_trial(plan, system, place)


def until_caught(records: Iterable[TrialRecord]) -> Iterator[TrialRecord]:
    """Yield records until one is INVALID, that one included."""
    for record in records:
        yield record
        if record.verdict is Verdict.INVALID:
            return


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the jobs in turn and keep a line of each trial, or make a page of such lines."""
    parser = argparse.ArgumentParser(description="Drawn trials of right jobs and wrong ones.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run trials")
    run.add_argument("records", type=Path, help="the file to which lines are added")
    run.add_argument("--kind", choices=("right", "wrong"), help="only right jobs, or only wrong ones")
    run.add_argument("--only", nargs="*", help="the names of the jobs")
    run.add_argument("--first", type=int, default=0, help="number of the first trial")
    run.add_argument("--stop", type=int, default=30, help="number of the trial after the last")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--keep", type=Path, help="where the trials' directories are kept")
    page = commands.add_parser("page", help="print a page of what was run")
    page.add_argument("records", type=Path, nargs="*", default=[KEPT])
    options = parser.parse_args(arguments)
    if options.command == "page":
        lines = [json.loads(line) for file in options.records for line in file.read_text().splitlines()]
        print(page_of(lines), end="")
    else:
        chosen = [one for one in ALL if options.kind in (None, "right" if one.right else "wrong")]
        _run([one for one in chosen if options.only is None or one.name in options.only], options)


def _run(chosen: Iterable[KnownJob], options: argparse.Namespace) -> None:
    numbers = range(options.first, options.stop)
    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.closing(StructuredStreaming(stock_job.job)) as system,
        open(options.records, "a", buffering=1) as records,
    ):
        for known in chosen:
            found = trials(system, known, numbers, options.keep or Path(scratch), options.seed)
            for number, record in enumerate(found if known.right else until_caught(found), numbers.start):
                records.write(json.dumps(line_of(known, options.seed, number, record)) + "\n")
                print(
                    f"{known.name} {number}: {record.verdict.value} {record.wall_seconds:.0f} s", flush=True
                )


def line_of(known: KnownJob, seed: int, trial: int, record: TrialRecord) -> dict[str, Any]:
    """Return what is kept of a trial."""
    unusual = [found for found in record.findings if found.verdict is not Verdict.VALID]
    return {
        "job": known.name,
        "seed": seed,
        "trial": trial,
        "verdict": record.verdict.value,
        "clause": next((found.broken for found in unusual if found.broken), ""),
        "summaries": [f"{found.checker}: {found.summary}" for found in unusual],
        "faults": [f"{fault.label} ({fault.outcome})" for fault in record.faults],
        "seconds": round(record.wall_seconds, 1),
    }


# --- the page -----------------------------------------------------------------------------------------------

_HEAD = """\
# Jobs of which it is known whether they are right

A right job must be VALID in each drawn trial, and a wrong one INVALID in one of the first thirty. Their input had no
late rows before commit 06302556. They are jobs as people have reported them, and the likes of them:
[planted_sinks.py](../tests/harness/streaming/planted_sinks.py),
[unusual_jobs.py](../tests/harness/streaming/unusual_jobs.py) and
[reported_jobs.py](../tests/harness/streaming/reported_jobs.py). Trials are counted from 1. Of some wrong jobs not all
trials before were run, so that an earlier one might have caught them.

[forty_jobs.jsonl](../tests/harness/streaming/forty_jobs.jsonl) has a line for each trial, with the commit at which it
ran.

<!-- Generated: python -m tests.harness.streaming.forty_jobs page > docs/forty-jobs.md -->
"""


EXPLAINED = {
    ("first_rows", 6): (
        ": a write that succeeded and reported an error let Spark take the input of two micro-batches as one, so that "
        "the last of three, at which the other fault was aimed, never came"
    ),
}
"""Job and trial, from 0 -> why it was UNKNOWN."""
_SUMMARY_MAX = 240
"""How many characters of what was found the page has at most."""
_SPARKS_OWN = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
"""What a query fails with that never starts again after its first offsets were half written."""


def page_of(lines: Sequence[dict[str, Any]]) -> str:
    """Return the page in Markdown, from the lines of any number of runs."""
    counts = {verdict: sum(line["verdict"] == verdict.value for line in lines) for verdict in Verdict}
    told = ", ".join(f"{number} {verdict.name}" for verdict, number in counts.items())
    parts = [_HEAD, f"{len(lines)} trials ran: {told}.\n", "## Wrong jobs\n"]
    parts += [
        "| job | what is wrong | INVALID in trial | trials run | clause | what was found |",
        "|---|---|---|---|---|---|",
    ]
    parts += [_wrong_row(known, [line for line in lines if line["job"] == known.name]) for known in WRONG]
    parts += [
        "\n## Right jobs\n",
        "A query of Spark 4.1 to 4.3 with state never starts again if its driver was killed while it wrote its first",
        "offsets ([the guide](guide/streaming-job.md#what-was-found-in-spark-itself)). Trials that met this are",
        "INVALID, and the job is not to blame: they are counted in the last column.",
        "",
        "| job | what it is | trials | VALID | UNKNOWN | INVALID | INVALID by Spark's own defect |",
        "|---|---|---|---|---|---|---|",
    ]
    parts += [_right_row(known, [line for line in lines if line["job"] == known.name]) for known in RIGHT]
    parts += [
        "\n## Trials of right jobs that were not VALID\n",
        "| job | trial | commit | verdict | what was found | the same trial later |",
        "|---|---|---|---|---|---|",
    ]
    parts += _not_valid_rows(lines)
    return "\n".join(parts) + "\n"


def _not_valid_rows(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a row for each, with what the same trial was when it ran at a later commit."""
    right = {known.name for known in RIGHT}
    for number, line in enumerate(lines):
        if line["job"] not in right or line["verdict"] == Verdict.VALID.value:
            continue
        again = [other for other in lines[number + 1 :] if _trial_of(other) == _trial_of(line)]
        later = ", ".join(f"{one['verdict'].upper()} at {one['commit']}" for one in again) or "not run again"
        summary = " ".join(line["summaries"][0].partition(": ")[2].split()).replace("|", "/")
        told = textwrap.shorten(summary, _SUMMARY_MAX, placeholder=" …")
        told += EXPLAINED.get((line["job"], line["trial"]), "")
        cells = (f"`{line['job']}`", line["trial"] + 1, line["commit"], line["verdict"].upper(), told, later)
        yield f"| {' | '.join(map(str, cells))} |"


def _trial_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["job"], line["seed"], line["trial"]


def _wrong_row(known: KnownJob, lines: Sequence[dict[str, Any]]) -> str:
    caught = next((line for line in lines if line["verdict"] == Verdict.INVALID.value), None)
    if caught is None:
        return f"| `{known.name}` | {known.what} | in none | {len(lines)} | | |"
    summary = caught["summaries"][0].partition(": ")[2].partition(";")[0]
    return f"| `{known.name}` | {known.what} | {caught['trial'] + 1} | {len(lines)} | {caught['clause']} | {summary} |"


def _right_row(known: KnownJob, lines: Sequence[dict[str, Any]]) -> str:
    of_spark = [line for line in lines if any(_SPARKS_OWN in summary for summary in line["summaries"])]
    own = [line for line in lines if line not in of_spark]
    numbers = [
        sum(line["verdict"] == verdict.value for line in own)
        for verdict in (Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID)
    ]
    cells = map(str, (len(lines), *numbers, len(of_spark)))
    return f"| `{known.name}` | {known.what} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
