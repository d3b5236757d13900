"""A report of very many trials keeps few of them and counts all."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barrier_tck.harness.record.records import FindingGroup, TrialSummary, summary_of
from barrier_tck.harness.record.run_reader import RunDirectoryCorrupt
from barrier_tck.harness.record.trial_rows import make_rows
from barrier_tck.harness.record.unknown_trials import CRASHED, WhyUnknown, why_unknown
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports import html, intervals, matrix, run_totals
from barrier_tck.reports.intervals import SAMPLE_MAX, Lengths
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.machine_readable import as_junit, as_object
from barrier_tck.reports.matrix import LISTED_MAX, ClauseRow
from barrier_tck.reports.run_comparison import compared
from barrier_tck.reports.run_totals import RunTotals, size_of
from barrier_tck.reports.smallest import Smallest
from barrier_tck.reports.wording import percentile
from tests.reports.synthetic_run import campaign_of, record_of, spark_campaign, write_run

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


# --- what limits must not change --------------------------------------------------------------------------

CLAUSES_DRAWN = ("ALN-1", "SNK-1", "REC-1")
drawn_findings = st.lists(
    st.builds(
        Finding,
        checker=st.sampled_from(["output", "progress", "trial-ran"]),
        clauses=st.lists(st.sampled_from(CLAUSES_DRAWN), unique=True, max_size=2).map(tuple),
        verdict=st.sampled_from(Verdict),
        summary=st.sampled_from(["", f"{CRASHED}: why"]),
    ),
    max_size=3,
).map(tuple)
drawn_trials = st.lists(
    st.tuples(st.sampled_from(Verdict), drawn_findings, st.integers(0, 4), st.booleans()),
    min_size=1,
    max_size=14,
).map(
    lambda drawn: [
        TrialSummary(
            trial=number,
            verdict=verdict,
            findings=found,
            faults_planned=planned,
            recoveries=planned,
            recoveries_reported=reported,
            measurements={"some_ms": float(planned)},
        )
        for number, (verdict, found, planned, reported) in enumerate(drawn)
    ]
)


BOTH = Finding("output", ("SNK-1", "REC-1"), Verdict.INVALID, "")
"""REC-1 was perhaps broken also."""


@settings(deadline=None)
@given(drawn_trials, st.integers(1, 5), st.integers(0, 13))
@example(
    [
        TrialSummary(number, Verdict.INVALID, findings=(BOTH,), measurements={"some_ms": 0.0})
        for number in range(3)
    ],
    1,
    5,
)
def test_limits_shorten_lists_and_change_nothing_else(
    rows: list[TrialSummary], limit: int, shown: int
) -> None:
    """What all trials show together is compared with the same, made of the list of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in (
            (matrix, ("LISTED_MAX",)),
            (run_totals, ("LISTED_MAX", "NAMED_MAX")),
            (intervals, ("SAMPLE_MAX",)),
        ):
            for name in names:
                patch.setattr(module, name, limit)
        totals = RunTotals(shown={shown})
        for trial in rows:
            totals.add(trial)
        verdicts = {trial.trial: run_totals.verdict_of(trial) for trial in rows}
        assert totals.verdicts == Counter(verdicts.values()) and totals.judged is Verdict.worst(
            verdicts.values()
        )
        reported = [trial for trial in rows if trial.recoveries_reported]
        assert totals.recoveries == sum(trial.recoveries for trial in reported)
        reasons = {trial.trial: why_unknown(verdicts[trial.trial], trial.findings) for trial in rows}
        for why in WhyUnknown:
            named = [number for number, reason in reasons.items() if reason is why]
            assert totals.why_unknown[why] == len(named)
            assert totals.unknown_because(why) == ", ".join(
                [*map(str, named[:limit]), *(["..."] if len(named) > limit else [])]
            )
        for row in totals.clauses.rows():
            _require_row(row, rows, limit)
        others = [
            trial for trial in rows if trial.trial != shown and verdicts[trial.trial] is not Verdict.VALID
        ]
        others.sort(key=lambda trial: (-verdicts[trial.trial].severity, *size_of(trial)))
        good = [trial for trial in rows if trial.trial != shown and verdicts[trial.trial] is Verdict.VALID]
        listed = {trial.trial for trial in (*others[:limit], *good[:limit])} | ({shown} & verdicts.keys())
        assert [trial.trial for trial in totals.listed] == sorted(listed)
        [series] = totals.lengths.series()
        assert (series.count, series.most) == (len(rows), max(trial.recoveries for trial in rows))


def _require_row(row: ClauseRow, rows: list[TrialSummary], limit: int) -> None:
    """Compare what is said of a clause with what the findings say one by one."""
    votes: dict[int, Verdict] = {}
    also: dict[int, None] = {}
    for trial in rows:
        first = next((finding.broken for finding in trial.findings if finding.broken), "")
        for finding in trial.findings:
            if row.clause in finding.clauses:
                verdict = finding.verdict
                if verdict is Verdict.INVALID and first != row.clause:
                    verdict = Verdict.UNKNOWN
                    also[trial.trial] = None
                votes[trial.trial] = Verdict.worst((votes.get(trial.trial, Verdict.VALID), verdict))
    worst = Verdict.worst(votes.values())
    bad = [number for number, verdict in votes.items() if verdict is worst]
    assert row.trials == {verdict: [*votes.values()].count(verdict) for verdict in Verdict}
    assert row.worst_trials == (() if worst is Verdict.VALID else tuple(bad[:limit]))
    assert row.also == tuple([*also][:limit])
    assert row.only_also == (bool(also) and worst is Verdict.UNKNOWN and set(bad) <= also.keys())


def test_a_page_says_how_many_trials_it_does_not_show_whatever_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = spark_campaign(tmp_path / "run")
    for limit in (1, 3, 100):
        for module in (matrix, run_totals):
            monkeypatch.setattr(module, "LISTED_MAX", limit)
        monkeypatch.setattr(html, "VALID_ROWS_MAX", 2)
        loaded = load_run(run)
        rows, unlisted = html._rows(loaded, set())
        assert len(rows) + unlisted == loaded.totals.trials == 12
        assert loaded.verdict is Verdict.INVALID and sum(loaded.totals.verdicts.values()) == 12


def test_the_smallest_trial_of_a_finding_is_listed_however_many_are_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other trials may be smaller by their record and have a larger plan."""
    for module in (matrix, run_totals):
        monkeypatch.setattr(module, "LISTED_MAX", 2)
    records = [
        msgspec.structs.replace(record_of(6), trial=number, duration_ms=float(number)) for number in range(6)
    ]
    group = FindingGroup("SNK-1", records[0].findings[0].checker, "no faults", 6, (0, 1), 5)
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records, groups=(group,))))
    assert [trial.trial for trial in run.listed] == [0, 1, 5]


@pytest.mark.parametrize("in_parquet", [False, True])
def test_rows_that_are_lost_or_doubled_are_noticed(tmp_path: Path, in_parquet: bool) -> None:
    for lost in range(3):
        run = write_run(tmp_path / f"lost {lost}", [record_of(trial) for trial in (0, 6, 9)])
        rows = [summary_of(record_of(trial)) for trial in (0, 6, 9)]
        (run / "trials.jsonl").unlink()
        written = make_rows(run, in_parquet)
        for number, row in enumerate(rows):
            if number != lost:
                written.append(row)
        written.flush()
        loaded = load_run(run)
        assert sorted(row.trial for row in loaded.rows()) == [0, 6, 9] and loaded.totals.trials == 3
        assert any("is kept in full but missing from trials." in notice for notice in loaded.notices)
        written.append([row for number, row in enumerate(rows) if number != lost][-1])
        written.flush()
        with pytest.raises(RunDirectoryCorrupt, match="is there twice"):
            load_run(run)


def test_a_run_took_the_same_steps_as_itself_where_a_trial_has_a_digest(tmp_path: Path) -> None:
    records = [
        msgspec.structs.replace(record_of(trial), trace_digest="same" if trial else None)
        for trial in range(3)
    ]
    run = load_run(write_run(tmp_path / "run", records))
    found = compared(run, run)
    assert (found.same_plans, found.same_steps, found.other_verdicts) == (3, 2, ())
