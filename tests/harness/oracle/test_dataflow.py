"""Dataflow on graphs with several sinks, edges and attempts: each kind of mistake is found; grain: simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.evidence.at_least_once_flow import AttemptFlow, Kept
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import CheckpointProblem, History, SnapshotView, StateView
from barrier_tck.harness.record.operations import AttemptStarted
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.lineage import Lineage, source
from barrier_tck.harness.workloads.operator_kind import WAITING
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.kills import kill

KEY = ("key",)
JOB = JobPlan(
    vertices=(
        source("read"),
        VertexPlan("spread", "rekey", 3, {"by": 2}),
        VertexPlan("twice", "keep", 2, then=(OperatorPlan("twice.keep", "keep"),)),
        VertexPlan("out0", SINK, 2),
        VertexPlan("out1", SINK, 1),
    ),
    edges=(
        EdgePlan("read", "spread", Spread.HASH, KEY),
        EdgePlan("read", "twice", Spread.HASH, KEY),
        EdgePlan("read", "twice", Spread.HASH, KEY, 1),
        EdgePlan("spread", "out0", Spread.BROADCAST),
        EdgePlan("spread", "out1", Spread.REBALANCE),
        EdgePlan("twice", "out1", Spread.REBALANCE),
    ),
)
"""Two edges between the same vertices, a broadcast, a chain of stateful operators, two sinks that share a sender."""
EXACT = filled(
    TrialPlan(
        seed=1,
        workload=WorkloadPlan("lineage", batches=12, records_per_second=300),
        job=JOB,
        checkpoints=CheckpointPlan(interval_ms=12, retained=3),
        faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out1[0]", worker=True),
    )
)
AT_LEAST_ONCE = msgspec.structs.replace(
    EXACT,
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=10, retained=3, async_ms_max=5),
    seed=3,
    network=NetworkPlan(slow_channel=6, slow_factor=8),
    faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out1[0]", nth=2, worker=True),
)


def run(plan: TrialPlan, directory: Path) -> History:
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.history is not None and result.record.recoveries == 1
    dataflow = next(one for one in result.record.findings if one.checker == "dataflow")
    assert dataflow.verdict is Verdict.VALID, dataflow.examples
    assert len(result.history.checkpoints) >= 4
    return result.history


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> History:
    return run(EXACT, tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> History:
    return run(AT_LEAST_ONCE, tmp_path_factory.mktemp("again"))


def judge(plan: TrialPlan, history: History, **context: Any) -> Finding:
    exactly = plan.checkpoints.mode == "exactly_once"
    view = barrier_view(plan)
    seen = TrialContext(plan, history, job=view, subtasks=view.names, **context)
    return Dataflow(TrialInput(Lineage(), plan), exactly).check(seen)


def with_view(history: History, change: Callable[[SnapshotView], SnapshotView], number: int = -1) -> History:
    views = list(history.checkpoints)
    views[number] = change(views[number])
    return msgspec.structs.replace(history, checkpoints=tuple(views))


def told(finding: Finding, words: str) -> bool:
    return finding.verdict is Verdict.INVALID and any(words in example for example in finding.examples)


# --- sinks --------------------------------------------------------------------------------------------------


def test_a_row_that_another_sink_wrote_is_missing_here_and_too_much_there(exact: History) -> None:
    moved = exact.output_by.index("out0[0]")
    by = (*exact.output_by[:moved], "out1[0]", *exact.output_by[moved + 1 :])
    finding = judge(EXACT, msgspec.structs.replace(exact, output_by=by))
    assert told(finding, "is missing from what out0 committed") and told(finding, "is in what out1 committed")
    view = exact.checkpoints[-1]
    moved = view.reached_by.index("out1[0]")
    writers = (*view.reached_by[:moved], "out0[1]", *view.reached_by[moved + 1 :])
    finding = judge(EXACT, with_view(exact, lambda one: msgspec.structs.replace(one, reached_by=writers)))
    assert told(finding, "is in what out0 committed or prepared")


def test_a_row_of_nobody_is_told_and_a_system_that_tells_no_writers_is_judged_as_a_whole(
    exact: History,
) -> None:
    strange = ("elsewhere", *exact.output_by[1:])
    finding = judge(EXACT, msgspec.structs.replace(exact, output_by=strange))
    assert told(finding, "was written by elsewhere, which is no sink of the job")
    silent = msgspec.structs.replace(exact, output_by=())
    assert judge(EXACT, silent).verdict is Verdict.VALID
    assert silent.output is not None
    assert judge(EXACT, msgspec.structs.replace(silent, output=silent.output[1:])).verdict is Verdict.INVALID


def test_rows_of_a_sink_that_do_not_stand_in_the_order_of_their_channel_are_told(exact: History) -> None:
    view = exact.checkpoints[-1]
    assert view.reached_sinks is not None
    rows, by = tuple(reversed(view.reached_sinks)), tuple(reversed(view.reached_by))
    turned = with_view(exact, lambda one: msgspec.structs.replace(one, reached_sinks=rows, reached_by=by))
    assert told(judge(EXACT, turned), "one overtook the other")


# --- ways ---------------------------------------------------------------------------------------------------


def test_a_broadcast_that_reaches_one_subtask_twice_and_another_never_is_told(exact: History) -> None:
    """Nevertheless the number of copies is right."""
    view = exact.checkpoints[-1]
    writers = tuple("out0[0]" if one == "out0[1]" else one for one in view.reached_by)
    broken = with_view(exact, lambda one: msgspec.structs.replace(one, reached_by=writers))
    assert told(judge(EXACT, broken), "came to out0[0] 2 times by way of")


def test_a_key_that_a_hash_edge_sends_to_two_subtasks_without_state_is_told(exact: History) -> None:
    view = exact.checkpoints[-1]
    assert view.reached_sinks is not None
    row = next(row for row in view.reached_sinks if "spread[1]" in row["path"])
    wrong = tuple(
        {**one, "path": one["path"].replace("spread[1]", "spread[0]")} if one["id"] == row["id"] else one
        for one in view.reached_sinks
    )
    broken = with_view(exact, lambda one: msgspec.structs.replace(one, reached_sinks=wrong))
    assert told(judge(EXACT, broken), "though records are sent there by key")


# --- checkpoints that cannot be judged ----------------------------------------------------------------------


def unreadable(view: SnapshotView) -> SnapshotView:
    problem = CheckpointProblem(view.checkpoint, Reason.INCOMPLETE, "some/file", "no snapshot of twice.keep")
    return msgspec.structs.replace(view, state=(), problem=problem)


@pytest.mark.long
def test_a_checkpoint_that_cannot_be_opened_is_no_reason_to_be_silent(exact: History) -> None:
    assert told(judge(EXACT, with_view(exact, unreadable)), "could not be opened: some/file: no snapshot of")


def test_a_checkpoint_that_the_trial_damaged_says_nothing(exact: History) -> None:
    from barrier_tck.faults.kinds.damage_primary import DamagePrimary
    from barrier_tck.faults.targets import Damage
    from barrier_tck.faults.vocabulary import At, ScheduledFault

    damage = ScheduledFault(DamagePrimary("twice[0]", Damage.TRUNCATED), At(1))
    plan = msgspec.structs.replace(EXACT, faults=(damage,))
    fired = FaultRecord(0, "", "damage_primary", "", "", "fired", files=("some/file",))
    finding = judge(plan, with_view(exact, unreadable), faults=(fired,))
    assert (finding.verdict, finding.counts["harmed"]) == (Verdict.VALID, 1)


def test_a_completed_checkpoint_that_nobody_opened_is_not_passed_over(exact: History) -> None:
    fewer = msgspec.structs.replace(exact, checkpoints=exact.checkpoints[:-1])
    assert judge(EXACT, fewer).verdict is Verdict.UNKNOWN


def test_a_position_outside_the_split_and_one_that_goes_back_are_told(exact: History) -> None:
    def moved(by: int) -> Callable[[SnapshotView], SnapshotView]:
        return lambda view: msgspec.structs.replace(
            view, positions={split: max(0, at + by) for split, at in view.positions.items()}
        )

    assert told(judge(EXACT, with_view(exact, moved(1_000))), "outside its input")
    assert told(judge(EXACT, with_view(exact, moved(-5))), "one barrier overtook the other")


def test_state_of_an_operator_that_keeps_none_is_told(exact: History) -> None:
    def renamed(view: SnapshotView) -> SnapshotView:
        stray = msgspec.structs.replace(view.state[0], operator="spread")
        return msgspec.structs.replace(view, state=(*view.state, stray))

    number = max(number for number, view in enumerate(exact.checkpoints) if view.state)
    finding = judge(EXACT, with_view(exact, renamed, number))
    assert told(finding, "spread holds state, but no such operator keeps any")


# --- which clause a record breaks that a state should not have ---------------------------------------------


def a_line(kind: str, **parameters: int) -> TrialPlan:
    """Return a job of one operator between a source and a sink, without faults."""
    job = JobPlan(
        vertices=(source("read", 1), VertexPlan("some", kind, 1, parameters), VertexPlan("out", SINK, 1)),
        edges=(EdgePlan("read", "some", Spread.HASH, KEY), EdgePlan("some", "out", Spread.FORWARD)),
    )
    workload = WorkloadPlan("lineage", batches=12, keys=1, records_per_second=300)
    return filled(TrialPlan(seed=1, workload=workload, job=job, checkpoints=CheckpointPlan(interval_ms=12)))


def of_line(plan: TrialPlan, directory: Path) -> History:
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.history is not None and result.record.verdict is Verdict.VALID
    return result.history


def kept_by(view: SnapshotView, name: str) -> list[Any]:
    return [
        entry for part in view.state if part.name == name for kept in part.entries.values() for entry in kept
    ]


def with_kept(view: SnapshotView, name: str, entry: list[Any]) -> SnapshotView:
    parts = tuple(
        msgspec.structs.replace(part, entries={'["k0"]': [*part.entries.get('["k0"]', ()), entry]})
        if part.name == name
        else part
        for part in view.state
    )
    return msgspec.structs.replace(view, state=parts)


def test_a_record_behind_the_barrier_breaks_isolation_if_nothing_was_sent_of_it_and_else_alignment(
    tmp_path: Path,
) -> None:
    plan = a_line("keep", every=1)
    history = of_line(plan, tmp_path)
    number, later = next(
        (number, later)
        for number, (view, later) in enumerate(pairwise(history.checkpoints))
        if 0 < len(kept_by(view, "seen")) < len(kept_by(later, "seen"))
    )
    view = history.checkpoints[number]
    entry = next(one for one in kept_by(later, "seen") if one not in kept_by(view, "seen"))
    changed = with_kept(view, "seen", entry)
    row = next(row for row in later.reached_sinks or () if row["id"] == entry[1])
    assert judge(plan, with_view(history, lambda _: changed, number)).broken == "SNP-1"
    sent = msgspec.structs.replace(
        changed,
        reached_sinks=(*(view.reached_sinks or ()), row),
        reached_by=(*view.reached_by, "out[0]"),
    )
    assert judge(plan, with_view(history, lambda _: sent, number)).broken == "ALN-2"


def test_a_record_that_waits_for_a_timer_that_has_gone_off_was_not_cleared(tmp_path: Path) -> None:
    plan = a_line("window", size_ms=10)
    history = of_line(plan, tmp_path)
    number = next(number for number, view in enumerate(history.checkpoints) if kept_by(view, "seen"))
    view = history.checkpoints[number]
    assert any(part.name == WAITING for part in view.state)
    back = with_kept(view, WAITING, [*kept_by(view, "seen")[0], 10])
    assert judge(plan, with_view(history, lambda _: back, number)).broken == "STA-1"


# --- at least once ------------------------------------------------------------------------------------------


def entry_with(view: SnapshotView, times: int) -> tuple[int, str, int]:
    """Return the part, the key and the place in its list of a record that is there ``times`` times."""
    for number, part in enumerate(view.state):
        if part.operator == "twice":
            for text, kept in part.entries.items():
                seen = Counter((one[0], one[1]) for one in kept)
                for place, one in enumerate(kept):
                    if seen[one[0], one[1]] == times:
                        return number, text, place
    raise AssertionError(f"no record is there {times} times")


def with_entry(
    history: History, number: int, times: int, change: Callable[[list[Any], int], list[Any]]
) -> History:
    """Return the history with one list of records changed, in the state of ``twice`` in one checkpoint."""
    view = history.checkpoints[number]
    at, text, place = entry_with(view, times)
    part = view.state[at]
    entries = {**part.entries, text: change(list(part.entries[text]), place)}
    state = (*view.state[:at], msgspec.structs.replace(part, entries=entries), *view.state[at + 1 :])
    return with_view(history, lambda one: msgspec.structs.replace(one, state=state), number)


def doubled(kept: list[Any], place: int) -> list[Any]:
    return [*kept, kept[place]]


def dropped(kept: list[Any], place: int) -> list[Any]:
    return kept[:place] + kept[place + 1 :]


def test_duplicates_do_occur_and_are_counted(again: History) -> None:
    finding = judge(AT_LEAST_ONCE, again)
    assert finding.verdict is Verdict.VALID and finding.counts["duplicated"] > 0


@pytest.mark.long
def test_an_attempt_may_add_a_record_once_and_no_more(again: History) -> None:
    """A restore explains two copies of a replayed record but no third one; for other records it explains none."""
    for times, words in ((1, "twice instead of once"), (2, "3 times instead of twice")):
        finding = judge(AT_LEAST_ONCE, with_entry(again, -1, times, doubled))
        assert told(finding, "is in the state of twice")
        assert told(finding, words)


def test_what_came_twice_and_lost_one_copy_is_told(again: History) -> None:
    """The restored checkpoint had it and the replay added it, so one copy is less than the mode promises."""
    assert told(judge(AT_LEAST_ONCE, with_entry(again, -1, 2, dropped)), "1 of 2 are there")


def test_what_an_operator_took_early_is_due_behind_it(again: History) -> None:
    """Then it was sent before the barrier, so the next operator must have it in the same checkpoint."""
    started = [line.operation.restored_checkpoint for line in again.of(AttemptStarted)]
    restored = next(number for number, view in enumerate(again.checkpoints) if view.checkpoint == started[-1])
    view = again.checkpoints[restored]
    early = [
        one
        for part in view.state
        if part.operator == "twice"
        for kept in part.entries.values()
        for one in kept
        if is_behind(one, view)
    ]
    assert early, "the plan has no record that came early"

    def without(operator: str) -> Callable[[SnapshotView], SnapshotView]:
        return lambda one: msgspec.structs.replace(
            one,
            state=tuple(
                msgspec.structs.replace(
                    part,
                    entries={
                        text: [entry for entry in kept if entry[1] != early[0][1]]
                        for text, kept in part.entries.items()
                    },
                )
                if part.operator == operator
                else part
                for part in one.state
            ),
        )

    finding = judge(AT_LEAST_ONCE, with_view(again, without("twice.keep"), restored))
    assert told(finding, "is missing from the state of twice.keep")


def test_what_an_attempt_had_taken_early_it_still_has_in_its_next_checkpoint(again: History) -> None:
    """Both checkpoints for themselves may have it or not: it lies behind the barriers of both."""
    for number, (one, other) in enumerate(pairwise(again.checkpoints)):
        if one.attempt != other.attempt:
            continue
        for part in other.state:
            for text, kept in part.entries.items():
                early = [entry for entry in kept if is_behind(entry, other)]
                if part.operator == "twice" and early:
                    place = (part.subtask, text)
                    before = with_entry_of(again, number, *place, early[0], True)
                    history = with_entry_of(before, number + 1, *place, early[0], False)
                    split, offset = divmod(early[0][1], 100_000)
                    record = f"record {early[0][1]} by way of read.mark (read-{split}@{offset})"
                    words = f"checkpoint {other.checkpoint}: {record} is missing from the state of twice"
                    assert told(judge(AT_LEAST_ONCE, history), words)
                    return
    raise AssertionError("the plan has no record that came early")


def is_behind(entry: list[Any], view: SnapshotView) -> bool:
    """Return whether a record lies behind the barriers of a checkpoint."""
    identifier: int = entry[1]
    return identifier % 100_000 >= view.positions[f"read-{identifier // 100_000}"]


def with_entry_of(
    history: History, number: int, subtask: str, text: str, entry: list[Any], there: bool
) -> History:
    """Return the history in which one subtask of ``twice`` has a record of a key in one checkpoint, or has it not."""

    def changed(part: StateView) -> StateView:
        if (part.operator, part.subtask) != ("twice", subtask):
            return part
        kept = [one for one in part.entries.get(text, []) if one != entry] + [entry] * there
        return msgspec.structs.replace(part, entries={**part.entries, text: kept})

    def change(view: SnapshotView) -> SnapshotView:
        return msgspec.structs.replace(view, state=tuple(map(changed, view.state)))

    return with_view(history, change, number)


def test_the_output_of_the_last_attempt_is_known_to_the_record(again: History) -> None:
    output, by = again.output, again.output_by
    assert output is not None
    for rows, writers in ((output[1:], by[1:]), ((*output, output[0]), (*by, by[0]))):
        finding = judge(AT_LEAST_ONCE, msgspec.structs.replace(again, output=rows, output_by=writers))
        assert told(finding, "committed")


def test_a_record_that_is_lost_makes_up_for_no_duplicate(again: History) -> None:
    right = judge(AT_LEAST_ONCE, again)

    def without_a_record(view: SnapshotView) -> SnapshotView:
        place, part = next((n, p) for n, p in enumerate(view.state) if any(map(len, p.entries.values())))
        key, kept = next((key, kept) for key, kept in part.entries.items() if kept)
        less = msgspec.structs.replace(part, entries={**part.entries, key: kept[1:]})
        return msgspec.structs.replace(view, state=(*view.state[:place], less, *view.state[place + 1 :]))

    lost = judge(AT_LEAST_ONCE, with_view(again, without_a_record))
    assert lost.verdict is Verdict.INVALID
    assert right.counts["duplicated"] - lost.counts["duplicated"] in (0, 1), (
        "one copy may have been a duplicate"
    )
    sums = [
        judge(AT_LEAST_ONCE, with_view(again, without_a_record, number)).counts["duplicated"]
        for number in range(-3, 0)
    ]
    assert max(sums) == right.counts["duplicated"], "most records are there once"


def test_nothing_comes_early_where_a_subtask_reads_one_channel() -> None:
    """Only a subtask that waits for other channels continues after a barrier (ALO-3)."""
    before, behind = Counter({(0, "k0", ""): 1}), Counter({(1, "k0", ""): 1})

    def kept_early(width: int) -> int:
        vertices = (VertexPlan("read", "source", width), VertexPlan("keep", "keep", 2))
        job = JobPlan(
            vertices=(*vertices, VertexPlan("out", SINK, 2)),
            edges=(EdgePlan("read", "keep", Spread.HASH, KEY), EdgePlan("keep", "out", Spread.FORWARD)),
        )
        flow = AttemptFlow(job, {"read": before + behind}, {})
        held = Counter({(0, (0, "k0", "")): 1})
        added = dict(flow.by_barrier({"read": before}, {"keep": Kept(held, held)}))
        assert flow.ever["keep"] == Counter({(0, (0, "k0", "")): 1, (0, (1, "k0", "")): 1})
        assert added["keep"].least == Counter({(0, (0, "k0", "")): 1})
        assert added["out"].least == added["out"].most, "it is known what was sent before the barrier"
        return (added["keep"].most - added["keep"].least).total()

    assert (kept_early(1), kept_early(2)) == (0, 1)
