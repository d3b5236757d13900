"""At-least-once output and snapshots: a real run with duplicates is valid, and every planted mistake is flagged.

Each history is that of a simulated run with two recoveries, changed in one place (ALO-1, ALO-2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.at_least_once_output import AtLeastOnceOutput
from barrier_tck.harness.oracle.checkers.at_least_once_snapshots import AtLeastOnceSnapshots, add_up
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End, History, Recorded, SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted, Operation
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled

Output = list[dict[str, Any]]


def killed_before_the_commit_of(nth: int, subtask: str) -> ScheduledFault:
    return ScheduledFault(KillWorker(subtask), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth))


PLAN = TrialPlan(
    seed=0,
    workload=WorkloadPlan(batches=12, batch_records=2, keys=3, records_per_second=600),
    job=JobPlan(widths={"source": 2, "totals": 2, "sink": 1}),
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=10, max_concurrent=2, async_ms_max=4),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
    faults=(killed_before_the_commit_of(2, "totals[0]"), killed_before_the_commit_of(4, "totals[1]")),
)
INPUT = TrialInput(KeyedTotals(), PLAN)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A run in which two checkpoints were restored, and both restores caused duplicates."""
    history = execute(PLAN, ReferenceSimulated(), tmp_path_factory.mktemp("trial")).history
    assert history is not None and history.output is not None
    return history


def judge(history: History, output: Output | None = None) -> Finding:
    changed = history if output is None else msgspec.structs.replace(history, output=tuple(output))
    return AtLeastOnceOutput(INPUT).check(TrialContext(PLAN, changed))


def judge_snapshots(history: History, plan: TrialPlan = PLAN) -> Finding:
    context = TrialContext(plan, history, subtasks=ReferenceSimulated().job(plan).names)
    return AtLeastOnceSnapshots(TrialInput(KeyedTotals(), plan)).check(context)


def rows(history: History) -> Output:
    return [dict(row) for row in history.output or ()]


def restored(history: History) -> list[SnapshotView]:
    numbers = [line.operation.restored_checkpoint for line in history.of(AttemptStarted)]
    return [view for view in history.checkpoints if view.checkpoint in numbers]


def replayed(history: History, identifier: int) -> bool:
    """Return whether any restored checkpoint has the record at or after its S_n."""
    record = INPUT.records[identifier]
    return any(record.offset >= view.positions[record.split] for view in restored(history))


def test_a_run_with_duplicates_is_valid_and_they_are_counted(run: History) -> None:
    finding = judge(run)
    assert finding.verdict is Verdict.VALID, finding.examples
    assert finding.counts["duplicated"] >= 5 and finding.counts["carried"] >= 1
    assert finding.counts["committed"] == finding.counts["expected"] + finding.counts["duplicated"]
    assert len(restored(run)) == 2


# --- one-sided and two-sided violations of the output -------------------------------------------------------


def test_a_lost_record_is_invalid(run: History) -> None:
    output = rows(run)
    gone = output[7]["id"]
    finding = judge(run, [row for row in output if row["id"] != gone])
    assert finding.verdict is Verdict.INVALID and finding.counts["lost"] == 1
    assert f"id {gone}" in finding.examples[0]


def test_a_lost_transaction_is_one_of_the_sink_and_a_lost_record_is_not(run: History) -> None:
    assert run.storage is not None
    found = run.storage.transactions[0]
    storage = msgspec.structs.replace(run.storage, transactions=run.storage.transactions[1:])
    lost = msgspec.structs.replace(run, storage=storage)
    without = rows(run)[1:]
    assert judge(run, without).broken == "ALO-2"
    finding = judge(lost, without)
    assert (finding.verdict, finding.broken) == (Verdict.INVALID, "SNK-1")
    assert finding.first is not None
    assert (finding.first.checkpoint, finding.first.attempt) == (found.checkpoint, found.attempt)
    assert judge(lost).verdict is Verdict.VALID, "no row is lost, so a file may have been merged with another"


def test_a_duplicate_before_every_restored_checkpoint_is_invalid(run: History) -> None:
    output = rows(run)
    early = next(row for row in output if not replayed(run, row["id"]))
    finding = judge(run, [*output, early])
    assert finding.verdict is Verdict.INVALID and finding.counts["unexplained"] >= 1
    assert any("lies before the barriers of every restored checkpoint" in text for text in finding.examples)


def test_duplicates_without_any_recovery_are_invalid(run: History) -> None:
    def from_the_beginning(line: Recorded[Operation]) -> Recorded[Operation]:
        if not isinstance(line.operation, AttemptStarted):
            return line
        started = msgspec.structs.replace(line.operation, restored_checkpoint=None)
        return msgspec.structs.replace(line, operation=started)

    never = msgspec.structs.replace(run, operations=tuple(map(from_the_beginning, run.operations)))
    finding = judge(never)
    assert finding.verdict is Verdict.INVALID
    assert any("no checkpoint was ever restored" in text for text in finding.examples)


def test_more_duplicates_than_there_were_restores_are_invalid(run: History) -> None:
    output = rows(run)
    again = next(row for row in output if replayed(run, row["id"]))
    finding = judge(run, [*output, again, again, again])
    assert finding.verdict is Verdict.INVALID and finding.counts["unexplained"] >= 1


def test_a_surplus_in_a_restored_state_that_the_output_does_not_show_is_invalid(run: History) -> None:
    view = restored(run)[-1]

    def one_more(entries: dict[str, list[int]]) -> None:
        key = next(iter(entries))
        entries[key] = [entries[key][0] + 1, entries[key][1] + 7]

    history = with_state(run, run.checkpoints.index(view), one_more)
    assert judge(history).verdict is Verdict.INVALID
    assert judge_snapshots(history).verdict is Verdict.INVALID


def change_a_key(row: dict[str, Any]) -> None:
    row["key"] = "k99"


def add_to_the_sum(row: dict[str, Any]) -> None:
    row["sum"] += 1


def add_to_the_count(row: dict[str, Any]) -> None:
    row["count"] += 1


def invent_an_id(row: dict[str, Any]) -> None:
    row["id"] = 999_999_999


def drop_a_column(row: dict[str, Any]) -> None:
    del row["sum"]


@pytest.mark.parametrize(
    "damage", [change_a_key, add_to_the_sum, add_to_the_count, invent_an_id, drop_a_column]
)
def test_any_damage_to_any_row_is_invalid(run: History, damage: Callable[[dict[str, Any]], None]) -> None:
    for position in range(len(rows(run))):
        output = rows(run)
        damage(output[position])
        assert judge(run, output).verdict is Verdict.INVALID, output[position]


def test_deleting_or_repeating_a_row_is_nearly_always_invalid(run: History) -> None:
    """Not always: the last row that a sink took early may be there or be missing, and both are right."""
    output = rows(run)
    deleted = [judge(run, output[:i] + output[i + 1 :]).verdict for i in range(len(output))]
    repeated = [judge(run, [*output, row]).verdict for row in output]
    for verdicts in (deleted, repeated):
        assert verdicts.count(Verdict.INVALID) >= 0.9 * len(output), verdicts


# --- what cannot be judged ----------------------------------------------------------------------------------


def test_an_unread_output_or_an_unopened_restored_checkpoint_is_unknown(run: History) -> None:
    assert judge(msgspec.structs.replace(run, output=None)).verdict is Verdict.UNKNOWN
    assert judge(msgspec.structs.replace(run, checkpoints=())).verdict is Verdict.UNKNOWN


def test_losses_of_a_stuck_job_are_unknown_and_unexplained_duplicates_invalid(run: History) -> None:
    stuck = msgspec.structs.replace(run, end=End.STUCK)
    output = rows(run)
    gone = output[7]["id"]
    assert judge(stuck, [row for row in output if row["id"] != gone]).verdict is Verdict.UNKNOWN
    early = next(row for row in output if not replayed(run, row["id"]))
    assert judge(stuck, [*output, early]).verdict is Verdict.INVALID


# --- snapshots (ALO-1) --------------------------------------------------------------------------------------


def with_state(run: History, index: int, change: Callable[[dict[str, list[int]]], None]) -> History:
    view = run.checkpoints[index]
    part = next(part for part in view.state if part.entries)
    entries = {key: list(values) for key, values in part.entries.items()}
    change(entries)
    state = tuple(
        msgspec.structs.replace(part, entries=entries) if other is part else other for other in view.state
    )
    changed = msgspec.structs.replace(view, state=state)
    return msgspec.structs.replace(
        run, checkpoints=tuple(changed if other is view else other for other in run.checkpoints)
    )


def one_less(entries: dict[str, list[int]]) -> None:
    next(iter(entries.values()))[0] -= 1


def far_less(entries: dict[str, list[int]]) -> None:
    values = next(iter(entries.values()))
    values[0], values[1] = 0, 0


def a_sum_without_a_record(entries: dict[str, list[int]]) -> None:
    next(iter(entries.values()))[1] += 1


def records_that_do_not_exist(entries: dict[str, list[int]]) -> None:
    next(iter(entries.values()))[0] += 1_000


def an_invented_key(entries: dict[str, list[int]]) -> None:
    entries['["k99"]'] = [1, 1]


def test_every_snapshot_of_a_run_is_accounted_for_and_some_hold_a_surplus(run: History) -> None:
    finding = judge_snapshots(run)
    assert finding.verdict is Verdict.VALID, finding.examples
    assert finding.counts["checkpoints"] >= 4


@pytest.mark.parametrize(
    "change", [one_less, far_less, a_sum_without_a_record, records_that_do_not_exist, an_invented_key]
)
def test_a_snapshot_whose_content_no_records_explain_is_invalid(
    run: History, change: Callable[[dict[str, list[int]]], None]
) -> None:
    last = max(place for place, view in enumerate(run.checkpoints) if not view.finished)
    assert judge_snapshots(with_state(run, last, change)).verdict is Verdict.INVALID


def test_a_surplus_is_the_sum_of_prefixes_count_and_values_together() -> None:
    prefixes = [[(0, 0), (1, 5), (2, 3)], [(0, 0), (1, -1)]]
    assert all(add_up(prefixes, surplus, 0) for surplus in ((0, 0), (1, 5), (1, -1), (2, 3), (2, 4), (3, 2)))
    assert not any(add_up(prefixes, surplus, 0) for surplus in ((0, 1), (1, -2), (2, 5), (4, 2), (-1, 0)))
    assert add_up([], (0, 0), 0) and not add_up([], (1, 1), 0)


# --- which checkers judge -----------------------------------------------------------------------------------


def names(plan: TrialPlan) -> list[str]:
    return [checker.name for checker in checkers_for(filled(plan), [Capability.SNAPSHOT_INSPECTION])]


def test_the_mode_chooses_the_checkers() -> None:
    assert names(PLAN)[:2] == ["at-least-once-output", "at-least-once-snapshots"]
    exact = msgspec.structs.replace(PLAN, checkpoints=CheckpointPlan())
    assert names(exact)[:2] == ["exactly-once-output", "snapshot-formula"]


def test_without_checkpoints_or_without_a_shuffle_output_is_exact_in_either_mode() -> None:
    off = CheckpointPlan(enabled=False, mode="at_least_once")
    assert names(msgspec.structs.replace(PLAN, checkpoints=off))[0] == "exactly-once-output"
    passthrough = msgspec.structs.replace(PLAN, workload=WorkloadPlan("passthrough"), job=JobPlan())
    assert names(passthrough)[:2] == ["exactly-once-output", "snapshot-formula"]
