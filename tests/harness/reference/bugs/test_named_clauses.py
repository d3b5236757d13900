"""A trial with a planted bug names the clause that the bug breaks, before any other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.campaign.failures import failed_checker
from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.record.records import FaultRecord, TrialRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.bug_file import PlantedBug
from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

BUGS = bugs_of_runtime()
NAMED_MIN = 0.9
"""The part of the bugs whose own clause must be named first. When it was measured, 246 of 272 were."""
PLACED = ("dataflow", "exactly-once-output", "progress")
"""The checkers that name a place: the last one if the job, or what it died of, names a subtask."""
AT_THE_END = (
    "at-least-once-output",
    "changed-totals",
    "channel-order",
    "committed-transactions",
    "dataflow",
    "event-time",
    "exactly-once-output",
    "no-garbage",
    "no-local-copies",
    "progress",
    "reachability",
    "savepoints",
    "shared-files",
    "stored-checkpoints",
)
"""The checkers that also judge what no line of the history shows: what is left when a trial has ended, or elements."""
CATCHES = {
    "aborts-obeyed": "SY-01",
    "at-least-once-output": "AO-02",
    "at-least-once-snapshots": "AL-02",
    "changed-totals": "EM-01",
    "channel-order": "OR-01",
    "checkpoint-admission": "AD-01",
    "checkpoint-expiry": "SR-02",
    "checkpoint-life-cycle": "CO-03",
    "checkpoints-go-on": "AD-02",
    "checkpoints-retained": "RT-02",
    "commits-before-end": "CE-05",
    "committed-transactions": "AO-03",
    "completions-learned": "CO-17",
    "conservation": "CW-01",
    "consistent-cut": "CL-05",
    "dataflow": "EL-08",
    "ends-come-last": "FI-07",
    "event-time": "ET-09",
    "exactly-once-output": "SK-01",
    "failures-explained": "SY-03",
    "finished-subtasks": "SO-01",
    "increments-reuse": "IN-17",
    "input-reads": "SO-02",
    "labels": "CW-02",
    "local-recovery": "LO-17",
    "narrowed-jobs": "EL-02",
    "no-garbage": "CO-14",
    "no-local-copies": "LO-16",
    "nothing-held-back": "AO-05",
    "overtaking-in-time": "UN-04",
    "progress": "CO-16",
    "reachability": "UN-03",
    "restart-strategy": "RK-01",
    "restorability": "FE-02",
    "savepoints": "SV-02",
    "savepoints-answered": "SV-22",
    "shared-files": "IN-01",
    "silence-noticed": "HB-02",
    "snapshot-at-barriers": "AO-07",
    "snapshot-costs": "SC-01",
    "snapshot-formula": "EV-01",
    "snapshot-order": "SR-06",
    "snapshot-sizes": "SC-06",
    "started-from-savepoint": "SV-21",
    "stop-with-savepoint": "CO-12",
    "stored-checkpoints": "MD-03",
    "timers": "TI-04",
    "tolerated-failures": "TF-04",
}
"""Checker -> a planted bug that it catches, and whose plan takes little time."""
QUICK = ("BE-01", "CO-08", "IN-19", "IN-21", "RC-01", "SO-03", "UR-04")
SIGNS = {sign.seen: sign.clause for checker in standard_checkers() for sign in checker.signs}


def _shown(bug: PlantedBug) -> TrialRecord | None:
    """Return the first trial in which the bug is caught by its clause."""
    system = ReferenceSimulated()
    for plan in bug.plans("simulated"):
        with tempfile.TemporaryDirectory() as directory:
            record = run_trial(bug.planted_in(plan), system, Path(directory))
        if failed_checker(record, bug.clause) is not None:
            return record
    return None


def _invalid(record: TrialRecord) -> Iterator[Finding]:
    return (finding for finding in record.findings if finding.verdict is Verdict.INVALID)


def _problems(record: TrialRecord) -> Iterator[str]:
    """Yield what is wrong with the evidence of a trial."""
    for finding in _invalid(record):
        if finding.checker == "trial-ran":
            continue  # the run gave no history that could be evidence
        clauses = [entry.clause for entry in finding.evidence]
        if (
            not clauses
            or len(set(clauses)) < len(clauses)
            or clauses != list(finding.clauses[: len(clauses)])
        ):
            yield f"{finding.checker}: {clauses} are broken, of {finding.clauses}"
        if {finding.broken, *finding.also} != set(finding.clauses):
            yield f"{finding.checker}: {finding.broken}, also {finding.also}, of {finding.clauses}"
        for entry in finding.evidence:
            if entry.sign and SIGNS.get(entry.sign) != entry.clause:
                yield f"{finding.checker}: {entry.sign!r} is not in the table"
            named = [name for name in record.subtasks if name in entry.sentence]
            before, meanwhile = _struck(record, entry.at_ms)
            if not any(_is_of(entry.after, fault) for fault in (*before[-1:], *meanwhile)) and (
                before or entry.after
            ):
                yield f"{finding.checker}: {entry.after or 'no fault'} before {entry.at_ms} ms, and not {before}"
            if finding.checker in PLACED and not entry.place and (finding.checker != "progress" or named):
                yield f"{finding.checker}: no place is named for {entry.sentence}"
            if not entry.place and entry.checkpoint is None and entry.attempt is None:
                yield f"{finding.checker}: no place, checkpoint or attempt is named for {entry.sentence}"
            if entry.operation is None and finding.checker not in AT_THE_END:
                yield f"{finding.checker}: no line of the history shows that {entry.sentence}"


def _struck(record: TrialRecord, at_ms: float | None) -> tuple[list[FaultRecord], list[FaultRecord]]:
    """Return the faults that had struck before a time or, with None, the end, in order; and those at that very time."""
    fired = sorted(
        (fault.fired_at_ms, fault.index) for fault in record.faults if fault.fired_at_ms is not None
    )
    before = [record.faults[index] for time_ms, index in fired if at_ms is None or time_ms < at_ms]
    return before, [record.faults[index] for time_ms, index in fired if time_ms == at_ms]


def _is_of(after: str, fault: FaultRecord) -> bool:
    return after.startswith(fault.label) and after.endswith(f" at {fault.fired_at_ms:g} ms")


@pytest.mark.parametrize("identifier", QUICK)
def test_a_trial_names_the_clause_of_a_planted_bug(identifier: str) -> None:
    bug = BUGS[identifier]
    record = _shown(bug)
    assert record is not None
    first = next(_invalid(record))
    assert first.broken == bug.clause
    assert first.first is not None and first.first.sentence == first.examples[0]
    assert not list(_problems(record))


@pytest.mark.parametrize("checker", CATCHES)
def test_a_finding_says_where_and_when_something_was_broken_first(checker: str) -> None:
    record = _shown(BUGS[CATCHES[checker]])
    assert record is not None
    assert checker in [finding.checker for finding in _invalid(record)]
    assert not list(_problems(record))


def test_every_checker_that_catches_a_planted_bug_is_asked_where_and_when() -> None:
    # A run that gave no history has no line, and nothing else, at which to point.
    assert CATCHES.keys() == {bug.file.checkers[0] for bug in BUGS.values()} - {"trial-ran"}


@pytest.mark.parametrize(
    ("identifier", "checker", "place"),
    [
        ("SK-01", "exactly-once-output", "sink[0], on totals->sink[0]"),
        ("AL-05", "exactly-once-output", "totals"),
        ("EL-05", "progress", "totals[2], totals[3]"),
        ("DY-02", "progress", "source[0]"),
        ("GR-05", "dataflow", "out0[0], on spread[0]->out0[0]"),
        ("LP-01", "progress", "head[2]"),
        ("RS-05", "dataflow", "last, on between->last[0]"),
        ("UC-01", "dataflow", "met, on right->met[0]"),
        ("AO-05", "nothing-held-back", "totals[1]"),
        ("CO-12", "stop-with-savepoint", "sink[0]"),
        ("IN-17", "increments-reuse", "totals[1]"),
        ("IN-12", "savepoints", "totals[1]"),
        ("MD-03", "stored-checkpoints", "totals[0]"),
    ],
)
def test_a_finding_names_the_vertex_or_subtask_and_the_channel_or_edge(
    identifier: str, checker: str, place: str
) -> None:
    record = _shown(BUGS[identifier])
    assert record is not None
    (finding,) = [finding for finding in _invalid(record) if finding.checker == checker]
    assert finding.first is not None and finding.first.place == place
    assert not list(_problems(record))


def test_evidence_of_a_trial_names_the_fault_that_struck_before_and_none_that_struck_later() -> None:
    record = _shown(BUGS["IN-19"])
    assert record is not None
    first, last = (fault for fault in record.faults if fault.fired_at_ms is not None)
    assert first.fired_at_ms is not None and last.fired_at_ms is not None
    assert (first.kind, last.kind) == ("lose_executor", "kill_worker")
    evidence = [entry for finding in _invalid(record) for entry in finding.evidence]
    after = {(entry.at_ms or inf) > last.fired_at_ms: entry.after for entry in evidence}
    assert after == {
        False: f"{first.label} ({first.target}) at {first.fired_at_ms:g} ms",
        True: f"{last.label} ({last.target}) at {last.fired_at_ms:g} ms",
    }


def test_a_loop_that_ended_too_early_is_told_as_such() -> None:
    record = _shown(BUGS["LP-01"])
    assert record is not None
    first = next(_invalid(record))
    assert (first.broken, first.also) == ("CHL-5", ("REC-6",))
    assert first.first is not None
    assert first.first.sign == "something goes round a loop that had ended: it ended too early"
    assert first.examples[0] == first.first.sentence
    assert "the loop head" in first.first.sentence and first.first.attempt == 1


@pytest.mark.nightly
def test_of_ten_planted_bugs_nine_are_named_by_their_clause_and_the_others_by_one_with_a_reason() -> None:
    named: list[str] = []
    otherwise: dict[str, str] = {}
    problems: list[str] = []
    for identifier, bug in BUGS.items():
        record = _shown(bug)
        assert record is not None, f"no seed shows {identifier}"
        problems += [f"{identifier}: {problem}" for problem in _problems(record)]
        broken = next(_invalid(record)).broken
        if broken == bug.clause:
            named.append(identifier)
        elif broken not in bug.file.read_as:
            otherwise[identifier] = f"{broken} instead of {bug.clause}"
    assert not problems
    assert not otherwise
    assert len(named) >= NAMED_MIN * len(BUGS), f"{len(named)} of {len(BUGS)}"


def test_the_clauses_as_which_bugs_may_be_read_exist_and_are_not_their_own() -> None:
    for identifier, bug in BUGS.items():
        assert bug.file.read_as.keys() <= CLAUSES.keys() - {bug.clause}, identifier
        assert all(bug.file.read_as.values()), identifier


def test_every_sign_names_a_clause_and_stands_for_one() -> None:
    named = [sign for checker in standard_checkers() for sign in checker.signs]
    assert {sign.clause for sign in named} <= CLAUSES.keys()
    assert len({sign.seen for sign in named}) == len(set(named))
