"""A report of very many trials keeps few of them and counts all."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.record.records import TrialSummary, summary_of
from barrier_tck.harness.record.trial_rows import make_rows
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports import intervals, matrix, run_totals
from barrier_tck.reports.intervals import SAMPLE_MAX, Lengths
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.machine_readable import as_junit, as_object
from barrier_tck.reports.matrix import LISTED_MAX
from barrier_tck.reports.run_totals import RunTotals, size_of
from barrier_tck.reports.smallest import Smallest
from barrier_tck.reports.wording import percentile
from tests.reports.synthetic_run import campaign_of, record_of, write_run

BAD_EACH = 5
"""Of so many trials one is INVALID."""


def trials(first: int, number: int) -> Iterator[TrialSummary]:
    good = summary_of(record_of(0))
    bad = msgspec.structs.replace(
        good,
        verdict=Verdict.INVALID,
        findings=(Finding("output", ("SNK-1",), Verdict.INVALID, "lost"),),
    )
    for trial in range(first, first + number):
        # The larger the number, the shorter the trial: so the last ones are the smallest.
        yield msgspec.structs.replace(
            bad if trial % BAD_EACH == 0 else good, trial=trial, duration_ms=1e6 - trial
        )


def test_the_smallest_are_kept_in_order_and_all_are_counted() -> None:
    kept = Smallest[int](3, lambda value: (value % 10, value))
    for value in [*range(40, 0, -1)]:
        kept.add(value)
    assert kept.values() == (10, 20, 30) and kept.count == 40
    few = Smallest[str](5, len)
    few.add("long")
    assert few.values() == ("long",)


def test_all_trials_are_counted_and_the_smallest_bad_ones_are_listed() -> None:
    totals = RunTotals(shown={5})
    number = 3 * BAD_EACH * LISTED_MAX
    for trial in trials(0, number):
        totals.add(trial)
    assert totals.trials == number and totals.verdicts[Verdict.INVALID] == 3 * LISTED_MAX
    bad = [trial.trial for trial in totals.listed if trial.verdict is Verdict.INVALID]
    assert bad == [5, *range(number - BAD_EACH * LISTED_MAX, number, BAD_EACH)], "5 is the group's"
    good = [trial.trial for trial in totals.listed if trial.verdict is Verdict.VALID]
    assert good == [trial for trial in range(2 * LISTED_MAX) if trial % BAD_EACH][:LISTED_MAX]
    [row] = [row for row in totals.clauses.rows() if row.clause == "SNK-1"]
    assert row.trials[Verdict.INVALID] == 3 * LISTED_MAX and len(row.worst_trials) == LISTED_MAX
    assert totals.clauses.broken_first() == "SNK-1 first in 3,000 trials"
    assert totals.faults.by_point().total.planned == number * len(record_of(0).faults) > 0


def test_memory_does_not_grow_with_the_number_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 50
    for module in (matrix, run_totals):
        monkeypatch.setattr(module, "LISTED_MAX", few)
    monkeypatch.setattr(intervals, "SAMPLE_MAX", few)
    totals, number = RunTotals(), 4 * BAD_EACH * few
    tracemalloc.start()
    try:
        held = []
        for first in (0, number):
            for trial in trials(first, number):
                totals.add(trial)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < 0.2 * held[0], held


def test_percentiles_of_very_many_values_are_those_of_a_sample() -> None:
    lengths, number = Lengths(), 5 * SAMPLE_MAX
    for value in range(number):
        lengths.add({"some_ms": float(value)})
    [series] = lengths.series()
    assert (series.count, series.most, series.trials) == (number, number - 1, number)
    assert len(series.values) == SAMPLE_MAX and list(series.values) == sorted(series.values)
    for part in (0.5, 0.95):
        assert percentile(series.values, part) == pytest.approx(part * number, abs=0.02 * number)


def test_a_report_of_many_trials_says_what_it_does_not_list(tmp_path: Path) -> None:
    number = 2 * LISTED_MAX
    [bad] = trials(0, 1)
    passed = Finding("output", ("SNK-1",), Verdict.VALID, "")
    good = msgspec.structs.replace(bad, verdict=Verdict.VALID, findings=(passed,))
    run = write_run(tmp_path / "run", [], campaign_of([]))
    (run / "trials.jsonl").unlink()
    rows = make_rows(run, in_parquet=True)
    for trial in range(number):
        rows.append(msgspec.structs.replace(good, trial=trial))
    rows.flush()
    loaded = load_run(run)
    assert len(loaded.listed) == LISTED_MAX and loaded.count(Verdict.VALID) == number
    assert any(
        "1,000 are shown one by one" in notice and "trials.parquet" in notice for notice in loaded.notices
    )
    written = as_object(loaded)
    assert (written["trials"], len(written["trial_list"]), written["trials_not_listed"]) == (
        2_000,
        1_000,
        1_000,
    )
    assert 'name="trials without a test case" value="1000"' in as_junit(loaded)
    assert sum(1 for _ in loaded.rows()) == number
    assert min(map(size_of, loaded.listed)) == size_of(loaded.listed[0])
