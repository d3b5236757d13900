"""A trial in which nothing happened keeps no clause: so for each checker that leaves a clause to no precondition.

Such a checker says by itself when the clause was exercised (``ALWAYS``). It is asked here about plans of every kind, of
which the history has nothing but the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.clause_mechanisms import lacks_mechanism, mechanism_of
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.oracle.vacuity import without_vacuous_clauses
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.record.history import End, History, StorageView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Evidence, Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled, workload_named

CHECKERS = {checker.name: checker for checker in standard_checkers()}
PAIRS = [
    (checker.name, clause)
    for checker in CHECKERS.values()
    for clause, needed in checker.covers.items()
    if needed is ALWAYS
]
ALWAYS_COUNTS = {
    ("progress", "REC-6"): "any job, also one that nothing disturbs, may stand still or die",
    (
        "faults-fired",
        "CAM-3",
    ): "it speaks of the campaign: a trial without faults has none that failed to fire",
}
"""Checker and clause -> why each trial that is VALID counts."""
EMPTY = History((), End.FINISHED, Reason.FINISHED, "", (), storage=StorageView())


@cache
def plans() -> tuple[FilledPlan, ...]:
    """Return plans of every kind, each also without faults, and without checkpoints."""
    stored = Path(__file__).parents[2] / "fixtures" / "0.1.0" / "plans"
    found = [read_plan(path) for path in sorted(stored.glob("*.json"))]
    found += [msgspec.structs.replace(plan, faults=()) for plan in found]
    found += [
        msgspec.structs.replace(
            plan, savepoints=(), checkpoints=msgspec.structs.replace(plan.checkpoints, enabled=False)
        )
        for plan in found[:1]
    ]
    return tuple(filled(plan) for plan in found)


def verdicts(checker: type[StandardChecker], clause: str) -> Iterator[tuple[Verdict, bool]]:
    """Yield what a checker says of trials in which nothing happened, and whether each of them counts for a clause."""
    for plan in plans():
        trial = TrialToJudge(TrialInput(workload_named(plan.workload.name), plan), frozenset(Capability))
        if not checker.applies(trial):
            continue
        context = TrialContext(plan, EMPTY, capabilities=frozenset(each.name for each in Capability))
        judge = checker.made_for(trial)
        finding = without_vacuous_clauses(judge.check(context), judge, context)
        yield finding.verdict, clause in finding.clauses


@pytest.mark.parametrize(("name", "clause"), PAIRS)
def test_a_trial_in_which_nothing_happened_does_not_count_for_a_clause_without_a_precondition(
    name: str, clause: str
) -> None:
    counts = [counts for verdict, counts in verdicts(CHECKERS[name], clause) if verdict is Verdict.VALID]
    assert counts, "no plan is judged"
    assert any(counts) is ((name, clause) in ALWAYS_COUNTS)


def test_a_clause_about_a_mechanism_that_a_system_does_not_have_is_never_covered() -> None:
    assert lacks_mechanism("BAR-1", ["CHECKPOINTS"]) and not lacks_mechanism("BAR-1", ["BARRIERS"])
    assert lacks_mechanism("CHL-5", ["BARRIERS"]) and not lacks_mechanism("CHL-5", ["LOOPS"])
    assert not lacks_mechanism("REC-1", []) and not lacks_mechanism("SNK-1", [])
    finding = Finding("snapshot-formula", ("ALN-2", "BAR-2", "REC-1"), Verdict.VALID, "")
    judge = CHECKERS["snapshot-formula"]
    context = TrialContext(plans()[0], EMPTY, capabilities=frozenset({"SNAPSHOT_INSPECTION"}))
    assert "BAR-2" not in without_vacuous_clauses(finding, cast("Any", judge), context).clauses
    evidence = (Evidence(clause="BAR-2", sentence="it went back"),)
    wrong = msgspec.structs.replace(finding, verdict=Verdict.INVALID, evidence=evidence)
    said = without_vacuous_clauses(
        wrong, cast("Any", judge), dataclasses.replace(context, capabilities=frozenset())
    )
    assert ("BAR-2" in said.clauses, said.evidence) == (True, evidence), "what was seen to be broken is said"


@pytest.mark.parametrize(
    ("clause", "one_of"),
    [
        ("BAR-2", ["FIFO_CHANNELS", "BARRIERS"]),
        ("BAR-3", ["BARRIERS"]),
        ("ALN-1", ["BARRIERS"]),
        ("ALN-2", ["SNAPSHOT_INSPECTION"]),
        ("ALO-1", ["BARRIERS"]),
        ("UNA-1", ["UNALIGNED_CHECKPOINTS"]),
        ("CHL-1", ["CHANDY_LAMPORT", "LOOPS"]),
        ("CHL-2", ["CHANDY_LAMPORT", "LOOPS", "UNALIGNED_CHECKPOINTS"]),
        ("STA-3", ["SNAPSHOT_INSPECTION"]),
        ("SNP-1", ["SNAPSHOT_INSPECTION"]),
        ("COO-1", ["BARRIERS"]),
        ("COO-4", ["CHECKPOINTS"]),
        ("LOC-1", ["LOCAL_RECOVERY"]),
        ("RSC-2", ["RESCALING", "ELASTIC"]),
        ("REC-1", []),
        ("SRC-1", []),
    ],
)
def test_what_a_clause_needs(clause: str, one_of: list[str]) -> None:
    assert [each.name for each in mechanism_of(clause)] == one_of
    assert not any(lacks_mechanism(clause, [name]) for name in one_of)
    assert lacks_mechanism(clause, ["ATTEMPTS"]) is bool(one_of)


def test_each_mechanism_is_of_clauses_that_there_are() -> None:
    known = {clause for checker in CHECKERS.values() for clause in checker.covers}
    assert all(
        mechanism_of(clause) for clause in known if clause[:3] in ("BAR", "UNA", "CHL", "LOC", "RSC", "COO")
    )


def test_reasons_are_given_for_clauses_without_a_precondition_alone() -> None:
    assert ALWAYS_COUNTS.keys() <= set(PAIRS)
