"""A user's streaming job without Spark: its definition, what it shows of itself, and what is drawn for it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.exhaust_memory import ExhaustMemory
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.kinds.partition_executor import PartitionExecutor
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import Direction, Peers, WriteFault
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness import StreamingJob, TrialPlan, Upserts, UsageProblem, WorkloadPlan
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.cli.main import run as run_command
from barrier_tck.harness.cluster.cluster_config import DockerClusterConfig
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import (
    End,
    History,
    OutputComparison,
    OutputCounts,
    Recorded,
    StateComparison,
    WrongRow,
)
from barrier_tck.harness.record.query_times import LateInput, LateRow, Reference, RowsDue, WatermarkComparison
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import EXERCISED, Verdict
from barrier_tck.harness.streaming import structured_streaming
from barrier_tck.harness.streaming.batch_watermarks import BatchWatermarks
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.driver.expected_rows import compared_watermarks
from barrier_tck.harness.streaming.driver.micro_batches import files_read, last_watermark_ms
from barrier_tck.harness.streaming.query_definition import QueryPlace, QueryState
from barrier_tck.harness.streaming.query_targets import TASKS, QueryTargets
from barrier_tck.harness.streaming.state_in_between import StateInBetween
from barrier_tck.harness.streaming.structured_streaming import (
    POINTS,
    STEP_OF_SINK,
    StructuredStreaming,
    _time_of_row,
)
from barrier_tck.harness.system.system_names import open_system, reference_of
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import checkers_of
from barrier_tck.harness.workloads.workload_names import filled

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "my_streaming_job"


def same(frame: Any) -> Any:
    return frame


def written(batch: Any, batch_id: int, place: QueryPlace) -> None:
    raise AssertionError("no Spark runs here")


def started(spark: Any, place: QueryPlace) -> Any:
    raise AssertionError("no Spark runs here")


job = StreamingJob(query=same, sink=written)
to_files = StreamingJob(query=same)
TABLE = Upserts(keys=("key",), sequence_by="id")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"output_mode": "upsert"}, "output_mode is 'upsert'"),
        ({"delivery": "maybe"}, "delivery is 'maybe'"),
        ({"sink": "csv"}, "sink is 'csv'; name one of parquet, orc"),
        ({"sink": "parquet", "output_mode": "complete"}, "a file sink only appends"),
        ({"latest_by": ("key",)}, "latest_by is for output_mode 'update'"),
        ({"upserts": Upserts(keys=(), sequence_by="id"), "sink": written}, "upserts has no keys"),
        ({"upserts": TABLE}, "a file sink only appends, and upserts"),
        ({"points": ("between",)}, "points are passed by a function"),
        ({"points": ("one", "one"), "sink": written}, "points names one more than once"),
        (
            {"upserts": TABLE, "output_mode": "complete", "sink": written},
            "upserts is for output_mode 'append'",
        ),
        (
            {"output_mode": "update", "sink": written, "final_by": "at"},
            "final_by is for output_mode 'append'",
        ),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        StreamingJob(query=same, **fields)


def test_a_job_is_found_again_by_the_name_of_its_module() -> None:
    assert job.address == f"{__name__}:job"
    with pytest.raises(UsageProblem, match="must be bound to a name"):
        _ = StreamingJob(query=same, sink=written).address


def test_a_job_is_opened_by_its_name_and_opened_again_by_the_same_name() -> None:
    for name in (f"{__name__}:job", "structured-streaming"):
        system = open_system(name)
        assert isinstance(system, StructuredStreaming)
        assert reference_of(system) == name


def test_a_view_has_the_points_that_the_sink_and_its_tasks_pass() -> None:
    plan = TrialPlan(workload=WorkloadPlan(batches=3))
    view = StructuredStreaming(job).job(plan)
    assert set(view.shows) == set(POINTS)
    assert view.times(ProtocolPoint.ALL_ACKNOWLEDGED, None) == 3
    assert view.times(ProtocolPoint.SNAPSHOT_TAKEN, TASKS) == 3
    # Spark's own sinks call nothing of ours in the driver.
    assert StructuredStreaming(to_files).job(plan).coordinator_passes == {}


@pytest.mark.parametrize("files", [2, 10])
def test_a_job_is_looked_at_with_as_many_files_as_a_trial_may_read(files: int, tmp_path: Path) -> None:
    """What is late, for instance, shows only in a file that the look has."""
    for number in range(files):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    system = StructuredStreaming(replace(job, input=tmp_path))
    drawn = max(profile.workload.batches[1] for profile in system.profiles)
    assert system._sample.workload.batches == drawn == min(8, files)


def test_a_directory_gives_no_more_batches_than_it_has_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"{name}.parquet")
    system = StructuredStreaming(StreamingJob(query=same, sink=written, input=tmp_path))
    assert system.job(TrialPlan()).times(ProtocolPoint.ALL_ACKNOWLEDGED, None) == 2
    assert system.profiles[0].workload.batches == (2, 2)


def test_the_output_is_judged_by_the_batch_and_by_no_model_of_the_workload() -> None:
    names = [checker.name for checker in checkers_of(filled(TrialPlan()), StructuredStreaming(job))]
    assert names == ["progress", "faults-fired", "committed-output"]


def test_state_is_judged_if_the_job_says_what_it_keeps() -> None:
    keeps = replace(job, state=QueryState(of=same))
    assert [checker.name for checker in checkers_of(filled(TrialPlan()), StructuredStreaming(keeps))][-1] == (
        StateInBetween.name
    )


def test_a_query_that_its_user_starts_is_hit_in_the_tasks_of_each_micro_batch() -> None:
    """Its faults used to strike within the first 1.5 s only, in which such a query has hardly begun."""
    system = StructuredStreaming(replace(to_files, start=started))
    assert Capability.WORKER_KILL in system.capabilities
    plans = drawn(system, 60)
    view = system.job(plans[0])
    assert (view.points_of(None), view.times(ProtocolPoint.SNAPSHOT_TAKEN, TASKS)) == ((), 3)
    aimed = [one.trigger for plan in plans for one in plan.faults if isinstance(one.trigger, After)]
    assert {one.nth for one in aimed} >= {1, 2, 3}
    assert len(aimed) > 40


def test_a_third_of_the_trials_has_a_spark_that_retries_no_task() -> None:
    """Where a task fails for good, the query ends and starts again; with retries it hardly ever does."""
    without = sum(plan.system.get("retries") == "none" for plan in drawn(StructuredStreaming(job), 60))
    assert 15 <= without <= 27


@pytest.mark.long
def test_timed_faults_strike_in_the_course_of_a_query_and_not_only_before_its_first_micro_batch() -> None:
    system = StructuredStreaming(job)
    faults = [one for plan in drawn(system, 200) for one in plan.faults]
    times = [one.trigger.time_ms for one in faults if isinstance(one.trigger, At)]
    assert len(times) > 5
    assert sum(time >= 100 for time in times) > len(times) // 2
    assert max(times) <= 4 * 150, "Spark takes longer for so many micro-batches"


AT_STEPS = ("between the tables", "before the note")


@pytest.mark.parametrize("starts", [None, started])
def test_faults_are_drawn_at_each_step_of_a_sink_that_names_its_points(starts: Any) -> None:
    system = StructuredStreaming(replace(job, points=AT_STEPS, start=starts))
    plans = drawn(system, 60)
    assert all(system.job(plan).times(STEP_OF_SINK, None) == 2 * plan.workload.batches for plan in plans)
    steps = [
        one.trigger.nth
        for plan in plans
        for one in plan.faults
        if isinstance(one.trigger, After) and one.trigger.point is STEP_OF_SINK
    ]
    assert len(steps) > 10
    assert {(nth - 1) % 2 for nth in steps} == {0, 1}, "both steps are struck"
    assert not any(
        STEP_OF_SINK in system_without.job(plan).shows
        for system_without in [StructuredStreaming(job)]
        for plan in plans
    )


def test_drawn_trials_pause_processes_disturb_writes_and_hide_the_checkpoint_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structured_streaming, "has_java_compiler", lambda: True)
    system = StructuredStreaming(job)
    configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), seed=0, trials=60)
    faults = [one.fault for plan in islice(campaign_plans(configuration, system), 60) for one in plan.faults]
    assert {type(fault) for fault in faults} == {
        CrashCoordinator, DisturbWrites, KillExecutor, KillWorker, PauseExecutor, PauseWorker
    }  # fmt: skip
    assert any(isinstance(fault, CrashCoordinator) and fault.unreadable_ms for fault in faults)
    assert {fault.trouble for fault in faults if isinstance(fault, DisturbWrites)} == set(WriteFault)


def test_without_a_java_compiler_no_write_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured_streaming, "has_java_compiler", lambda: False)
    system = StructuredStreaming(job)
    configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), seed=0, trials=30)
    faults = [one.fault for plan in islice(campaign_plans(configuration, system), 30) for one in plan.faults]
    assert faults
    assert not any(isinstance(fault, DisturbWrites) for fault in faults)
    nothing: Any = None
    targets = QueryTargets(nothing, lambda: None, lambda: None, nothing)
    assert DisturbWrites(WriteFault.FULL).inject(targets).outcome == "skipped"


def test_hosts_are_lost_unplugged_and_without_memory_only_where_they_are_containers() -> None:
    system = StructuredStreaming(job)
    of_hosts = {Capability.HOST_LOSS, Capability.PARTITION, Capability.MEMORY_LIMIT}
    assert not of_hosts & system.capabilities
    system.use_cluster(DockerClusterConfig(workers=2))
    assert of_hosts <= system.capabilities


def drawn(system: StructuredStreaming, number: int, **section: Any) -> list[TrialPlan]:
    """Plans of a campaign, each of which the system accepts."""
    settings = SystemSection(f"{__name__}:job", section)
    configuration = CampaignConfiguration(system=settings, trials=number, seed=7)
    plans: list[TrialPlan] = list(islice(campaign_plans(configuration, system), number))
    for plan in plans:
        check_plan(plan, system)
    return plans


@pytest.mark.long
def test_containers_are_lost_and_unplugged_in_drawn_trials_and_each_of_these_faults_can_be_carried_out() -> (
    None
):
    system = StructuredStreaming(job)
    faults = [one.fault for plan in drawn(system, 60) for one in plan.faults]
    assert not any(isinstance(fault, LoseHost | PartitionExecutor | ExhaustMemory) for fault in faults)
    system.use_cluster(DockerClusterConfig(workers=2))
    faults = [one.fault for plan in drawn(system, 60) for one in plan.faults]
    assert any(isinstance(fault, LoseHost) for fault in faults)
    assert any(isinstance(fault, ExhaustMemory) for fault in faults)
    cut_off = {(one.peers, one.direction) for one in faults if isinstance(one, PartitionExecutor)}
    assert cut_off == {(Peers.EVERYONE, Direction.BOTH)}


@pytest.mark.nightly
def test_drawn_trials_have_no_retries_and_fewer_executors_now_and_then_unless_the_campaign_says_which() -> (
    None
):
    plans = drawn(StructuredStreaming(job), 240)
    settings = [tuple(plan.system.items()) for plan in plans]
    assert {(), (("retries", "none"),), (("executors_again", 1),)} <= set(settings)
    without = sum(plan.system.get("retries") == "none" for plan in plans)
    assert 1 / 5 <= without / len(plans) <= 1 / 2, f"{without} of {len(plans)} have no retries of tasks"
    for plan in plans:
        ends = {one.fault.ends for one in plan.faults}
        assert "executors_again" not in plan.system or Ends.COORDINATOR in ends
    given = drawn(StructuredStreaming(job), 60, retries="stock", executors_again=2)
    assert {tuple(plan.system.items()) for plan in given} == {(("retries", "stock"), ("executors_again", 2))}


def test_files_that_were_read_are_those_of_the_log_up_to_an_offset(tmp_path: Path) -> None:
    for name, lines in {
        "offsets/3": ["v1", "{}", '{"logOffset":2}'],
        "sources/0/1.compact": ["v1", '{"path":"a","batchId":0}', '{"path":"b","batchId":1}'],
        "sources/0/2": ["v1", '{"path":"c","batchId":2}'],
        "sources/0/3": ["v1", '{"path":"d","batchId":3}'],
        "sources/0/1": ["v1", '{"path":"b","batchId":1}'],
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines))
    assert files_read(tmp_path, 3) == ["a", "b", "c"]


@pytest.mark.parametrize("batches", range(1, 13))
def test_micro_batches_are_numbers_and_the_last_is_the_one_that_was_committed_last(
    tmp_path: Path, batches: int
) -> None:
    """As text, 10 comes before 9. One more micro-batch has its offsets, and is not committed."""
    for name in ("offsets", "sources/0", "commits"):
        (tmp_path / name).mkdir(parents=True)
    for batch in range(batches + 1):
        offsets = ["v1", json.dumps({"batchWatermarkMs": 1_000 * batch}), json.dumps({"logOffset": batch})]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(offsets))
        read = ["v1", json.dumps({"path": f"file-{batch}", "batchId": batch})]
        (tmp_path / "sources" / "0" / str(batch)).write_text("\n".join(read))
    assert last_watermark_ms(tmp_path) == 0
    for batch in range(batches):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
        (tmp_path / "commits" / f".{batch + 1}.tmp").touch()
    assert last_watermark_ms(tmp_path) == 1_000 * (batches - 1)
    assert files_read(tmp_path, batches - 1) == [f"file-{batch}" for batch in range(batches)]


def state_judged(comparison: StateComparison | None) -> tuple[Verdict, str]:
    history = History((), End.FINISHED, Reason.FINISHED, "", None, state_query=comparison)
    found = StateInBetween().check(TrialContext(TrialPlan(), history, ()))
    return found.verdict, found.summary


def test_state_is_right_wrong_or_unreadable() -> None:
    right = StateComparison(batches=3, entries=9)
    assert state_judged(right)[0] is Verdict.VALID
    assert state_judged(msgspec.structs.replace(right, missing=1, unexpected=2)) == (
        Verdict.INVALID,
        "1 missing and 2 unexpected of the entries that 3 micro-batches left",
    )
    assert state_judged(StateComparison(problem="no such file"))[0] is Verdict.UNKNOWN
    assert state_judged(None)[0] is Verdict.UNKNOWN


def test_settings_are_checked() -> None:
    system = StructuredStreaming(job)
    system.check_settings({"retries": "none"})
    with pytest.raises(ValueError, match="retries is 'few'"):
        system.check_settings({"retries": "few"})
    with pytest.raises(ValueError, match="did you mean"):
        system.check_settings({"retrys": "none"})
    with pytest.raises(ValueError, match="late_rows is for generated input of a job"):
        system.check_settings({"late_rows": 100})
    system.check_settings({"late_rows": 0})
    with_times = StructuredStreaming(replace(job, output_mode="append", latest_by=(), final_by="until"))
    with_times.check_settings({"late_rows": 100})
    for wrong in (-1, 1_001, True, "1"):
        with pytest.raises(ValueError, match=r"late_rows is .* not a number of a thousand rows"):
            with_times.check_settings({"late_rows": wrong})
    system.check_settings({"executors_again": 1})
    for wrong in (0, 3, True, "1"):
        with pytest.raises(ValueError, match=r"executors_again is .* not from 1 to 2"):
            system.check_settings({"executors_again": wrong})


@pytest.mark.long
def test_twenty_drawn_trials_kill_the_driver_after_the_sinks_write_and_an_executor_after_a_tasks() -> None:
    """That is what a naive append, and a row-writing function, cannot survive: 20 trials catch both."""
    system = StructuredStreaming(job)
    missed = []
    for seed in range(10):
        configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), seed=seed, trials=20)
        plans = list(islice(campaign_plans(configuration, system), 20))
        for plan in plans:
            check_plan(plan, system)
        struck = {
            (type(one.fault), one.trigger.point)
            for plan in plans
            for one in plan.faults
            if isinstance(one.trigger, After)
        }
        of_tasks = {
            (KillExecutor, ProtocolPoint.SNAPSHOT_TAKEN),
            (KillWorker, ProtocolPoint.SNAPSHOT_TAKEN),
        }
        if (CrashCoordinator, ProtocolPoint.ALL_ACKNOWLEDGED) not in struck or not of_tasks & struck:
            missed.append(seed)
    assert len(missed) <= 1, missed


def test_code_in_the_chapter_is_code_of_the_examples() -> None:
    files = [path.read_text() for path in sorted((EXAMPLES / "my_streaming_job").glob("*.py"))]
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "guide" / "streaming-job.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        assert any(block in file for file in files), block
    assert max(len(file.splitlines()) for file in files) <= 25


def judged(comparison: OutputComparison | None, end: End = End.FINISHED) -> tuple[Verdict, str]:
    history = History((), end, Reason.FINISHED, "", None, output_query=comparison)
    finding = CommittedOutput().check(TrialContext(TrialPlan(), history))
    return finding.verdict, finding.summary


RIGHT = OutputCounts(5, 5, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("wrong", ["lost", "duplicated", "unexpected"])
def test_any_difference_is_invalid(wrong: str) -> None:
    counts = msgspec.structs.replace(RIGHT, **{wrong: 2})
    verdict, summary = judged(OutputComparison(counts, ("an example",)))
    assert verdict is Verdict.INVALID
    assert f"2 {wrong}" in summary


LATE = LateInput(
    2, (LateRow("id=5, at=00:00:03", "00004.parquet", 4, 9_000),), missing=1, examples=("window=0:00",)
)


def test_rows_that_are_missing_because_input_was_late_are_counted_and_told() -> None:
    comparison = OutputComparison(
        RIGHT, against=Reference.UNDISTURBED, rows_due=RowsDue(final=6, at_once=0, held_back=3), late=LATE
    )
    history = History((), End.FINISHED, Reason.FINISHED, "", None, output_query=comparison)
    found = CommittedOutput().check(TrialContext(TrialPlan(), history))
    assert found.verdict is Verdict.VALID
    assert found.summary == (
        "the output has the 5 rows that an undisturbed run of the same micro-batches gives, and no other; 2 rows of "
        "the input came late, for instance id=5, at=00:00:03, read by micro-batch 4 at the watermark 1970-01-01 "
        "00:00:09.000 UTC; 1 row of the batch may be missing because of them, for instance window=0:00"
    )
    wanted = {"final": 6, "at_once": 0, "held_back": 3, "late_input": 2, "missing_because_late": 1}
    assert {name: found.counts[name] for name in wanted} == wanted


def watermarks_judged(comparison: WatermarkComparison | None, end: End = End.FINISHED) -> tuple[Verdict, str]:
    output = OutputComparison(RIGHT, watermarks=comparison)
    history = History((), end, Reason.FINISHED, "", None, output_query=output)
    found = BatchWatermarks().check(TrialContext(TrialPlan(), history, ()))
    return found.verdict, found.summary


def test_watermarks_are_right_wrong_or_unknown() -> None:
    right = WatermarkComparison(batches=4, advances=2, exact=True)
    assert watermarks_judged(right) == (
        Verdict.VALID,
        "the watermarks of 4 micro-batches never went back, and are those of an undisturbed run; they went on 2 times",
    )
    assert watermarks_judged(right, End.STUCK)[0] is Verdict.UNKNOWN
    assert watermarks_judged(WatermarkComparison()) == (Verdict.VALID, "the query has no watermark")
    assert watermarks_judged(None)[0] is Verdict.UNKNOWN
    back = compared_watermarks([0, 5_000, 4_000], (), None)
    assert watermarks_judged(back, End.STUCK)[0] is Verdict.INVALID


@pytest.mark.parametrize(
    ("noted", "greatest", "undisturbed", "wrong"),
    [
        ([0, 5, 5, 9], [0, 5, 5, 9], [0, 5, 5, 9], {}),
        ([0, 5, 5, 9], (), None, {}),
        ([0, 3, 5, 9], [0, 5, 5, 9], None, {}),
        ([0, 3, 5, 9], [0, 5, 5, 9], [0, 5, 5, 9], {1: 5}),
        ([0, 5, 4, 9], [0, 5, 5, 9], [0, 5, 4, 9], {2: 5}),
        ([0, 5, 6, 9], [0, 5, 5, 9], [0, 5, 6, 9], {2: 5}),
        ([-1, 5, 5, 9], [0, 5, 5, 9], None, {0: 0}),
    ],
    ids=["right", "nothing known", "may be behind", "behind", "back", "ahead", "before 1970"],
)
def test_each_watermark_is_compared(
    noted: list[int], greatest: Sequence[int], undisturbed: list[int] | None, wrong: dict[int, int]
) -> None:
    found = compared_watermarks(noted, greatest, undisturbed)
    assert {one.micro_batch: one.expected_ms for one in found.differences} == wrong
    assert found.advances == len(set(noted)) - 1 - (noted == [0, 5, 4, 9])


@pytest.mark.parametrize("per_mille", [0, 100, 250, 500, 1_000])
@pytest.mark.parametrize(("step_s", "far_s"), [(1, 10), (2, 50), (150, 3_000)])
def test_late_rows_are_as_many_as_planned_most_are_far_behind_and_no_two_have_the_same_time(
    per_mille: int, step_s: int, far_s: int
) -> None:
    rows = range(60)
    times = [_time_of_row(index, step_s, far_s, per_mille) for index in rows]
    assert len(set(times)) == len(rows)
    in_order = [_time_of_row(index, step_s, far_s, 0) for index in rows]
    assert in_order == sorted(in_order)
    behind_s = [(one - other).total_seconds() for one, other in zip(in_order, times, strict=True)]
    late = [seconds for seconds in behind_s if seconds]
    assert len(late) == len(rows) * per_mille // 1_000
    far = [seconds for seconds in late if seconds > far_s]
    assert len(far) == len(late) - len(late) // 3
    assert all(2 * step_s < seconds < far_s for seconds in late if seconds not in far)


def test_rows_that_were_added_again_are_duplicated_and_neither_lost_nor_unexpected() -> None:
    counts = msgspec.structs.replace(RIGHT, lost=3, unexpected=2)
    comparison = OutputComparison(counts, ("an example",), ran_again=1, added_again=2)
    verdict, summary = judged(comparison)
    assert verdict is Verdict.INVALID
    assert summary == (
        "1 lost and 2 duplicated rows; the output has 5 rows, and the query as a batch over the same input gives 5; to "
        "2 of the duplicated rows something was added more often than once"
    )
    assert judged(comparison, End.STUCK)[0] is Verdict.UNKNOWN


def test_the_fault_before_is_the_one_after_which_the_micro_batch_of_a_wrong_row_ran_again() -> None:
    kill = ScheduledFault(KillWorker("driver"), At(1))
    course: list[ops.Operation] = [
        ops.SinkCalled(0, 1),
        ops.FaultFired(0, "driver 1"),
        ops.SinkCalled(0, 2),
        ops.SinkCalled(1, 2),
        ops.FaultFired(1, "driver 2"),
        ops.SinkCalled(1, 3),
        ops.FaultFired(2, "driver 3"),
    ]
    lines = tuple(ops_at(index, one) for index, one in enumerate(course))
    counts = msgspec.structs.replace(RIGHT, duplicated=1)
    row = WrongRow(kind="duplicated", row="k=1", expected=1, committed=2, micro_batches=(0, 0))

    def after(*wrong: WrongRow, run_again: tuple[int, ...] = (0, 1)) -> str:
        comparison = OutputComparison(counts, ("twice",), ran_again=2, wrong=wrong, run_again=run_again)
        history = History(lines, End.FINISHED, Reason.FINISHED, "", None, output_query=comparison)
        plan = TrialPlan(faults=(kill, kill, kill))
        first = CommittedOutput().check(TrialContext(plan, history)).first
        assert first is not None
        return first.after

    assert "driver 1" in after(row)
    assert "driver 2" in after(msgspec.structs.replace(row, micro_batches=(1, 1)))
    assert "driver 1" in after(msgspec.structs.replace(row, micro_batches=())), "any that ran again"
    assert "driver 2" in after(msgspec.structs.replace(row, micro_batches=(), read_by=(1,)))
    assert "driver 3" in after(row, run_again=()), "it is not known"


def ops_at(index: int, operation: ops.Operation) -> Recorded[ops.Operation]:
    return Recorded(index, float(index), "driver", operation)


def test_copies_that_are_excused_are_told() -> None:
    excused = {"copies of rows of micro-batches that ran again": {"output": 3}}
    assert judged(OutputComparison(RIGHT)) == (
        Verdict.VALID,
        "the output has the 5 rows that the query gives as a batch, and no other",
    )
    verdict, summary = judged(OutputComparison(RIGHT, checks=excused))
    assert verdict is Verdict.VALID
    assert "3 copies" in summary


def test_a_trial_whose_micro_batches_ran_again_is_not_vacuous() -> None:
    history = History((), End.FINISHED, Reason.FINISHED, "", None, output_query=OutputComparison(RIGHT))
    quiet = CommittedOutput().check(TrialContext(TrialPlan(), history))
    again = msgspec.structs.replace(history, output_query=OutputComparison(RIGHT, ran_again=3, replayed=2))
    finding = CommittedOutput().check(TrialContext(TrialPlan(), again))
    assert [quiet.counts[EXERCISED], finding.counts[EXERCISED]] == [0, 2]
    assert (
        "3 of the micro-batches ran more than once, as a whole or in a task, and of 2 the sink"
        in finding.summary
    )


def test_a_table_of_the_newest_rows_that_the_job_does_not_speak_of_is_thought_of_if_rows_are_lost_alone() -> (
    None
):
    lost = msgspec.structs.replace(RIGHT, committed=3, lost=2)
    both = msgspec.structs.replace(lost, duplicated=1)
    nothing = msgspec.structs.replace(lost, committed=0)
    summaries = [judged(OutputComparison(counts))[1] for counts in (lost, both, nothing)]
    assert ["upserts)" in summary.replace("upserts, final_by", "") for summary in summaries] == [
        True,
        False,
        False,
    ]


def test_rows_that_were_lost_where_a_micro_batch_ran_again_make_one_think_of_no_table() -> None:
    counts = msgspec.structs.replace(RIGHT, committed=3, lost=2)

    def summary(*read_by: tuple[int, ...]) -> str:
        rows = tuple(WrongRow(kind="lost", row="x", expected=1, committed=0, read_by=by) for by in read_by)
        return judged(OutputComparison(counts, ran_again=1, run_again=(4,), wrong=rows))[1]

    hint = "keeps only the newest row"
    assert hint not in summary((4,), (4,))
    assert hint in summary((4,), (3,)), "one was lost where nothing ran again"
    assert hint in summary((), ()), "it is not known which micro-batch read it"


def test_a_difference_without_anything_that_ran_again_may_not_be_a_faults() -> None:
    lost = msgspec.structs.replace(RIGHT, lost=2)
    assert "may be wrong without any fault" in judged(OutputComparison(lost))[1]
    assert "may be wrong without any fault" not in judged(OutputComparison(lost, ran_again=1))[1]


def test_what_cannot_be_compared_is_unknown() -> None:
    assert judged(None)[0] is Verdict.UNKNOWN
    assert judged(OutputComparison(None, problem="no such column"))[0] is Verdict.UNKNOWN


def test_a_query_that_did_not_end_may_lack_rows_but_may_not_repeat_them() -> None:
    lost, repeated = (msgspec.structs.replace(RIGHT, **{name: 1}) for name in ("lost", "duplicated"))
    assert judged(OutputComparison(lost), End.STUCK)[0] is Verdict.UNKNOWN
    assert judged(OutputComparison(repeated), End.STUCK)[0] is Verdict.INVALID


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--query", f"{__name__}:same"], "which is a function; let it be a StreamingJob"),
        (["--query", "my_job"], "name your job as package.module:job"),
        (["--query", f"{__name__}:job", "--system", "reference-spark"], "keep one of the two"),
    ],
)
def test_a_query_that_is_none_is_a_mistake_of_the_user(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["campaign", *options]) == 3
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_campaign_of_a_query_bears_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CampaignConfiguration] = []

    def run(configuration: CampaignConfiguration, *rest: object, **named: object) -> None:
        seen.append(configuration)
        raise UsageProblem("that is enough")

    monkeypatch.setattr("barrier_tck.harness.campaign.runner.run_campaign", run)
    monkeypatch.setattr(StructuredStreaming, "prepare", lambda *_: None)
    assert run_command(["campaign", "--query", f"{__name__}:job"]) == 3
    assert [(one.name, one.trials) for one in seen] == [(f"{__name__}.job", 20)]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "plans" / "streaming").iterdir()), ids=lambda path: path.stem
)
def test_plans_that_were_kept_can_be_run_again(path: Path) -> None:
    check_plan(read_plan(path), StructuredStreaming(job))
