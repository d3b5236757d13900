"""Matrices and rankings count what the records say, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.faults.vocabulary import Phase
from barrier_tck.harness.record.records import FaultRecord, TrialSummary, summary_of
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.matrix import TIMED, Cell, ClauseRow, unchecked_clauses
from barrier_tck.reports.ranking import TIMELINES_MAX, ranked_findings, timeline_trials
from barrier_tck.reports.run_totals import RunTotals
from tests.reports.synthetic_run import POINTS, campaign_of, record_of, spark_campaign, write_run

RECORDS = [record_of(trial) for trial in range(12)]
CAMPAIGN = campaign_of(RECORDS)
SUMMARIES = tuple(summary_of(record) for record in RECORDS)


def totals_of(trials: Iterable[TrialSummary]) -> RunTotals:
    totals = RunTotals()
    for trial in trials:
        totals.add(trial)
    return totals


def clause_rows(trials: Iterable[TrialSummary]) -> tuple[ClauseRow, ...]:
    return totals_of(trials).clauses.rows()


findings = st.builds(
    Finding,
    checker=st.sampled_from(["output", "progress"]),
    clauses=st.lists(st.sampled_from(["ALN-1", "SNK-1", "XYZ-9"]), unique=True).map(tuple),
    verdict=st.sampled_from(Verdict),
    summary=st.just(""),
)
faults = st.builds(
    FaultRecord,
    index=st.just(0),
    label=st.just("kill"),
    kind=st.sampled_from(["kill_executor", "kill_worker"]),
    trigger=st.just("then"),
    point=st.sampled_from([None, "snapshot_taken", "restored", "a_point_of_tomorrow"]),
    outcome=st.sampled_from(["fired", "not_fired", "skipped"]),
)
trials = st.lists(
    st.tuples(st.lists(findings, max_size=3).map(tuple), st.lists(faults, max_size=3).map(tuple)), max_size=6
).map(
    lambda drawn: tuple(
        TrialSummary(trial=number, verdict=Verdict.VALID, findings=found, faults=planned)
        for number, (found, planned) in enumerate(drawn)
    )
)


def test_clauses_count_trials_and_the_worst_come_first() -> None:
    rows = {row.clause: row for row in clause_rows(SUMMARIES)}
    assert list(rows) == ["SNK-1", "ALN-1", "REC-1", "CAM-3", "ALN-2", "REC-6"]
    assert rows["SNK-1"].trials == {Verdict.VALID: 11, Verdict.UNKNOWN: 0, Verdict.INVALID: 1}
    assert rows["SNK-1"].worst_trials == (6,)
    assert rows["CAM-3"].verdict is Verdict.UNKNOWN
    assert rows["ALN-2"].worst_trials == ()


def test_only_the_clause_that_was_broken_first_is_a_violation_and_the_others_are_also() -> None:
    chain = (
        Finding("one", ("ALN-1", "REC-1"), Verdict.INVALID, "first"),
        Finding("two", ("SNK-1", "ALN-1"), Verdict.INVALID, "later"),
        Finding("three", ("REC-1", "ALN-2"), Verdict.VALID, "fine"),
    )
    other = (Finding("two", ("SNK-1",), Verdict.INVALID, "alone"),)
    unsure = (Finding("two", ("ALN-2", "CAM-3"), Verdict.UNKNOWN, "?"),)
    trials = tuple(
        TrialSummary(trial=number, verdict=Verdict.INVALID, findings=found)
        for number, found in enumerate((chain, chain, other, unsure))
    )
    rows = {row.clause: row for row in clause_rows(trials)}
    assert {
        name: row.trials[Verdict.INVALID] for name, row in rows.items() if row.trials[Verdict.INVALID]
    } == {
        "ALN-1": 2,
        "SNK-1": 1,
    }
    assert {name: row.also for name, row in rows.items() if row.also} == {"REC-1": (0, 1), "SNK-1": (0, 1)}
    assert [name for name, row in rows.items() if row.only_also] == ["REC-1"], (
        "SNK-1 was broken first in trial 2"
    )
    assert rows["REC-1"].verdict is rows["CAM-3"].verdict is Verdict.UNKNOWN


def test_a_clause_that_nobody_checked_has_no_row() -> None:
    rows = clause_rows(SUMMARIES)
    missing = unchecked_clauses(rows)
    assert {row.clause for row in rows} | set(missing) == set(CLAUSES)
    assert "UNA-1" in missing
    assert unchecked_clauses(clause_rows(())) == tuple(CLAUSES)


def test_points_come_in_the_protocols_order_and_timed_faults_last() -> None:
    matrix = totals_of(SUMMARIES).faults.by_point()
    assert set(matrix.rows) == {*(point.value for point in POINTS), "checkpoint_aborted", TIMED}
    assert matrix.rows[0] == "records_processed"
    assert matrix.rows[-1] == TIMED
    assert matrix.cells["checkpoint_aborted", "crash_coordinator"] == Cell(0, 1)
    assert matrix.total == Cell(15, 16)


def test_every_phase_has_a_row_and_every_kind_that_the_system_can_suffer_a_column() -> None:
    matrix = totals_of(SUMMARIES).faults.by_phase(CAMPAIGN)
    assert matrix.rows == tuple(phase.value for phase in Phase)
    assert matrix.kinds == CAMPAIGN.fault_kinds
    assert matrix.total == Cell(15, 16)
    assert (matrix.fired, matrix.possible) == (6, 18)
    assert ("alignment", "crash_coordinator") in matrix.reachable
    assert ("alignment", "crash_coordinator") not in matrix.cells


def test_a_fault_that_fired_was_possible_whatever_the_system_declared() -> None:
    undeclared = msgspec.structs.replace(CAMPAIGN, fault_kinds=(), fault_phases=())
    matrix = totals_of(SUMMARIES).faults.by_phase(undeclared)
    assert matrix.fired == matrix.possible == 6


@pytest.mark.long
@settings(deadline=None)  # the first example pays for imports
@given(trials)
def test_no_vote_and_no_fault_is_lost(drawn: tuple[TrialSummary, ...]) -> None:
    for row in clause_rows(drawn):
        checked = [
            trial for trial in drawn if any(row.clause in finding.clauses for finding in trial.findings)
        ]
        assert sum(row.trials.values()) == len(checked)
        votes = [each.verdict for trial in checked for each in trial.findings if row.clause in each.clauses]
        broken = [next((each.broken for each in trial.findings if each.broken), "") for trial in checked]
        worst = Verdict.worst(votes)
        if worst is Verdict.INVALID and row.clause not in broken:
            worst = Verdict.UNKNOWN
        assert row.verdict is worst
        assert row.trials[Verdict.INVALID] == broken.count(row.clause)
    total = totals_of(drawn).faults.by_point().total
    assert total.planned == sum(len(trial.faults) for trial in drawn)
    assert total.fired == sum(fault.outcome == "fired" for trial in drawn for fault in trial.faults)


def test_findings_are_ranked_by_severity(tmp_path: Path) -> None:
    ranked = ranked_findings(load_run(spark_campaign(tmp_path / "run")))
    assert [(entry.trial.trial, entry.finding.verdict) for entry in ranked] == [
        (6, Verdict.INVALID),
        (9, Verdict.UNKNOWN),
    ]


def test_timelines_are_of_the_worst_trials_and_one_valid_one(tmp_path: Path) -> None:
    run = load_run(spark_campaign(tmp_path / "run"))
    assert [record.trial for record in timeline_trials(run)] == [6, 9, 2]


def test_of_trials_that_fail_the_smallest_comes_first_in_findings_and_in_timelines(tmp_path: Path) -> None:
    sizes = {0: (2, 40.0), 1: (1, 90.0), 2: (1, 30.0), 3: (0, 500.0)}
    failed = [
        msgspec.structs.replace(
            record_of(trial),
            verdict=Verdict.INVALID,
            findings=(Finding("output", ("SNK-1",), Verdict.INVALID, "rows are lost"),),
            faults=(FaultRecord(0, "kill", "kill_executor", "then", None, "fired"),) * faults,
            plan=msgspec.structs.replace(record_of(trial).plan, faults=()),
            attempts=(),
            checkpoints=(),
            duration_ms=duration_ms,
        )
        for trial, (faults, duration_ms) in sizes.items()
    ]
    run = load_run(write_run(tmp_path / "run", failed))
    assert [entry.trial.trial for entry in ranked_findings(run)] == [3, 2, 1, 0]
    assert [record.trial for record in timeline_trials(run)] == [3, 2, 1, 0]


def test_there_are_never_too_many_timelines(tmp_path: Path) -> None:
    invalid = [msgspec.structs.replace(record_of(trial), verdict=Verdict.INVALID) for trial in range(12)]
    run = load_run(write_run(tmp_path / "run", invalid))
    assert len(timeline_trials(run)) == TIMELINES_MAX - 1


def test_valid_trials_are_drawn_until_every_kind_of_fault_is_shown(tmp_path: Path) -> None:
    quiet = [record_of(trial) for trial in (0, 1, 3)]
    other = record_of(4)
    crash = msgspec.structs.replace(other.faults[0], kind="crash_coordinator")
    run = load_run(
        write_run(tmp_path / "run", [*quiet, msgspec.structs.replace(other, faults=(crash,))], valid_kept=9)
    )
    drawn = [record.trial for record in timeline_trials(run)]
    assert len(drawn) == 2
    assert 4 in drawn
