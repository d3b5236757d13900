"""Which clause a difference breaks, by what the trial did before, and what a finding names; grain: values."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.evidence.cut_signs import Circumstances, circumstances_of, sign_of
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.verdict import Evidence, Finding, Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

FRESH = Circumstances()
RESTORED = Circumstances(restored=True)
RESCALED = Circumstances(restored=True, rescaled=True)
UNALIGNED = Circumstances(restored=True, overtakes=True)
CIRCUMSTANCES = (
    FRESH,
    RESTORED,
    RESCALED,
    UNALIGNED,
    Circumstances(records_all=True),
    Circumstances(exact=False, restored=True),
)


def missing(**known: Any) -> Difference:
    return replace(Difference(Kind.MISSING, ""), **known)


def twice(**known: Any) -> Difference:
    return replace(Difference(Kind.SURPLUS, ""), **known)


@pytest.mark.parametrize(
    ("difference", "circumstances", "clause"),
    [
        (missing(), FRESH, "ALN-2"),
        (twice(behind=True), FRESH, "ALN-2"),
        (twice(behind=True, unsent=True), FRESH, "SNP-1"),
        (twice(cleared=True), FRESH, "STA-1"),
        (twice(at_sink=True, after_end=True), Circumstances(finished=True), "BAR-6"),
        (missing(), Circumstances(overtakes=True), "UNA-1"),
        (twice(), Circumstances(overtakes=True), "UNA-1"),
        (twice(behind=True), Circumstances(overtakes=True), "ALN-2"),
        (twice(behind=True, at_sink=True), Circumstances(overtakes=True), "ALN-2"),
        (twice(behind=True, looped=True), Circumstances(overtakes=True), "CHL-5"),
        (missing(), Circumstances(records_all=True), "CHL-2"),
        (missing(looped=True), FRESH, "CHL-5"),
        (missing(), Circumstances(exact=False), "ALO-1"),
        (twice(), Circumstances(exact=False, restored=True), "ALO-2"),
        (missing(held_before=True), Circumstances(exact=False, restored=True, rescaled=True), "RSC-2"),
        (missing(), Circumstances(exact=False, restored=True, rescaled=True), "ALO-2"),
        (missing(held_before=True), RESTORED, "REC-1"),
        (missing(held_before=True, comes_later=True), RESTORED, "STA-3"),
        (twice(held_before=True), Circumstances(restored=True, read_again=True), "SRC-1"),
        (missing(held_before=True), RESCALED, "RSC-2"),
        (missing(held_before=True, listed=True), RESCALED, "RSC-3"),
        (missing(in_flight_before=True), RESCALED, "RSC-3"),
        (missing(in_flight_before=True), UNALIGNED, "UNA-1"),
        (missing(in_flight_before=True, comes_later=True), UNALIGNED, "UNA-4"),
        (missing(in_flight_before=True, looped=True), RESTORED, "CHL-5"),
        (missing(at_sink=True), FRESH, "SNK-1"),
        (missing(at_sink=True, timed=True), Circumstances(at_end=True), "STA-1"),
        (missing(at_sink=True, looped=True), Circumstances(at_end=True), "CHL-5"),
        *((missing(at_sink=True), replace(where, lost_at_sinks=True), "SNK-1") for where in CIRCUMSTANCES),
        (missing(of_sent=True, looped=True), Circumstances(lost_at_sinks=True), "SNK-1"),
        (missing(looped=True), Circumstances(lost_at_sinks=True), "CHL-5"),
        (missing(), Circumstances(finished=True), "BAR-6"),
        (missing(place="out", at_sink=True), Circumstances(finished=True, ended=("out",)), "BAR-6"),
        (missing(place="out", at_sink=True), Circumstances(finished=True, ended=("other",)), "SNK-1"),
        (missing(place="keep[0]"), Circumstances(exact=False, ended=("keep[0]",)), "BAR-6"),
        (missing(place="keep", held_before=True), Circumstances(restored=True, ended=("keep",)), "REC-1"),
        (Difference(Kind.ORDER, ""), FRESH, "BAR-2"),
        (Difference(Kind.ORDER, ""), RESCALED, "RSC-3"),
        (Difference(Kind.ORDER, "", in_flight_before=True), UNALIGNED, "UNA-1"),
        (Difference(Kind.BROADCAST, ""), UNALIGNED, "UNA-5"),
        (Difference(Kind.UNREADABLE, "", file_gone=True), Circumstances(incremental=True), "SNP-5"),
        (Difference(Kind.UNREADABLE, "", file_gone=True), FRESH, "STA-3"),
        *((missing(skipped=True), replace(where, incremental=True), "SNP-5") for where in CIRCUMSTANCES),
        *(
            (missing(skipped=True, held_before=True), replace(where, incremental=True), "SNP-5")
            for where in CIRCUMSTANCES
        ),
        (missing(skipped=True), FRESH, "ALN-2"),
        (missing(), Circumstances(incremental=True), "ALN-2"),
    ],
)
def test_the_clause_follows_from_what_is_seen_and_from_what_was_done_before(
    difference: Difference, circumstances: Circumstances, clause: str
) -> None:
    assert sign_of(difference, circumstances).clause == clause


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_difference_breaks_a_clause(kind: Kind) -> None:
    assert sign_of(Difference(kind, ""), FRESH).clause


def test_a_finding_names_the_clause_of_its_first_evidence_and_the_others_as_also() -> None:
    seen = Evidence("REC-1", "k0 is missing", "state is lost", "totals[0]", 3, 2, 40, 12.5, "kill at 9 ms")
    finding = Finding("x", ("REC-1", "ALN-2"), Verdict.INVALID, "wrong", evidence=(seen,))
    assert (finding.broken, finding.also) == ("REC-1", ("ALN-2",))
    assert finding.named_clauses == "REC-1; also ALN-2"
    expected = "state is lost, at totals[0] in checkpoint 3 of attempt 2 at 12.5 ms; before it: kill at 9 ms"
    assert seen.description == expected


def test_a_finding_of_an_older_record_names_its_first_clause() -> None:
    old = b'{"checker": "x", "clauses": ["SNK-1", "REC-1"], "verdict": "invalid", "summary": "wrong"}'
    finding = msgspec.json.decode(old, type=Finding)
    assert (finding.broken, finding.also, finding.first) == ("SNK-1", ("REC-1",), None)
    valid = msgspec.structs.replace(finding, verdict=Verdict.VALID)
    assert (valid.broken, valid.also, valid.named_clauses) == ("", (), "SNK-1, REC-1")


CHAINED = JobPlan(
    vertices=(
        VertexPlan("read", "source", 2, then=(OperatorPlan("read.mark", "pass"),)),
        VertexPlan("keep", "keep", 2, then=(OperatorPlan("keep.mark", "pass"), OperatorPlan("list", "list"))),
        VertexPlan("out", "pass", 1, then=(OperatorPlan("out.commit", "sink"),)),
        VertexPlan("beside", "sink", 2),
    ),
    edges=(
        EdgePlan("read", "keep", by=Spread.HASH, key=("key",)),
        EdgePlan("keep", "out", by=Spread.REBALANCE),
        EdgePlan("keep", "beside", by=Spread.REBALANCE),
    ),
)
SUBTASKS_OF = {
    "read": ("read[0]", "read[1]"),
    "keep": ("keep[0]", "keep[1]"),
    "out": ("out[0]",),
    "beside": ("beside[0]", "beside[1]"),
}
OPERATORS_OF = {
    "read": ("read", "read.mark"),
    "keep": ("keep", "keep.mark", "list"),
    "out": ("out", "out.commit"),
    "beside": ("beside",),
}
ALL_SUBTASKS = tuple(chain.from_iterable(SUBTASKS_OF.values()))


@pytest.mark.parametrize("number", range(len(ALL_SUBTASKS) + 1))
def test_sources_operators_and_sinks_alike_have_ended_if_all_of_their_subtasks_have(number: int) -> None:
    plan = a_plan(workload=WorkloadPlan("lineage"), job=CHAINED)
    context = a_context(plan, Book().attempt(1).checkpoint(1))
    for finished in combinations(ALL_SUBTASKS, number):
        view = SnapshotView(1, 1, {}, finished=finished)
        seen = circumstances_of(context, view, was_right=False)
        for vertex, subtasks in SUBTASKS_OF.items():
            is_over = {*subtasks} <= {*finished}
            places = {subtask: subtask in finished for subtask in subtasks}
            places |= dict.fromkeys(OPERATORS_OF[vertex], is_over)
            for place, has_ended in places.items():
                for at_sink in (False, True):
                    clause = "BAR-6" if has_ended else "SNK-1" if at_sink else "ALN-2"
                    lost = missing(place=place, at_sink=at_sink)
                    assert sign_of(lost, seen).clause == clause, (place, finished)


@pytest.mark.parametrize("circumstances", CIRCUMSTANCES)
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("at_sink", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_a_sign_is_said_only_where_its_words_are_true(
    circumstances: Circumstances, kind: Kind, at_sink: bool, behind: bool, restored: bool
) -> None:
    known = replace(circumstances, restored=restored, rescaled=restored and circumstances.rescaled)
    difference = Difference(kind, "", at_sink=at_sink, behind=behind, held_before=restored)
    said = sign_of(difference, known).seen
    assert ("unaligned" in said) <= known.overtakes
    assert ("at-least-once" in said) <= (not known.exact)
    assert ("change of parallelism" in said) <= known.rescaled
    assert ("restore" in said) <= known.restored
    assert ("behind its barriers" in said) <= behind
