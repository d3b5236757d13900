"""The reference runtime on a real cluster: planted bugs are caught there too, and a time limit ends in STUCK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import PausableTarget, TargetGone
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cluster.cluster_config import ClusterKind, config_for_trials
from barrier_tck.harness.cluster.host_targets import LastingLoss, LostHost
from barrier_tck.harness.cluster.signalled_process import SignalledProcess
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark, slots_needed
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.system_under_test import TrialOutcome
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reports.cut import CheckpointCut, cut_of


@pytest.fixture(scope="module")
def system() -> Iterator[ReferenceSpark]:
    opened = ReferenceSpark()
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.spark
@pytest.mark.nightly
def test_a_planted_bug_is_caught_on_spark(system: ReferenceSpark, tmp_path: Path) -> None:
    """The others take minutes: tox runs them in its environment ``explore``."""
    name = "AL-01"
    for plan in planted_bugs()[name].plans("spark"):
        result = execute(plan, system, tmp_path)
        if result.record.verdict is Verdict.INVALID:
            seen = [sum(channel.early for channel in cut.channels) for cut in cuts(result)]
            assert max(seen) > 0, "the source's late records go backwards across no cut"
            return
    record = result.record
    pytest.fail(f"{name} survived on Spark; the last trial was {record.verdict.value}: {record.findings}")


def cuts(result: TrialResult) -> list[CheckpointCut]:
    """Return the cuts of the checkpoints that completed."""
    completed = [one.checkpoint for one in result.record.checkpoints if one.status == "completed"]
    assert completed
    return [cut_of(result.record, result.trace_events, checkpoint) for checkpoint in completed]


@pytest.mark.nightly
@pytest.mark.spark
def test_a_control_on_spark_shows_that_its_campaign_is_not_vacuous(
    system: ReferenceSpark, tmp_path: Path
) -> None:
    plan = next(planted_bugs()["SO-02"].plans("spark"))
    parts = ("workload", "deployment", "checkpoints", "restart", "limits")
    campaign = {part: msgspec.to_builtins(getattr(plan, part)) for part in parts}
    campaign |= {"system": "reference-spark", "controls": 1}
    campaign["trial"] = [{"faults": msgspec.to_builtins(plan.faults)}]
    record = run_campaign(configuration_from(campaign, "test"), system, tmp_path / "run")
    assert (record.verdict, record.findings) == (Verdict.VALID, ())
    assert record.controls is not None
    assert record.controls.could_be_violated["REC-1"] == record.controls.could_be_violated["SRC-1"] == 1
    (control,) = record.controls.ran
    assert (control.broken, control.verdict) == (BrokenRecovery.READ_AGAIN, Verdict.INVALID)
    assert control.checker in ("snapshot-formula", "exactly-once-output"), "in state, then in the output"


@pytest.mark.nightly
@pytest.mark.spark
def test_a_trial_whose_judge_was_killed_has_no_verdict_and_the_next_has_another_judge(
    system: ReferenceSpark, tmp_path: Path
) -> None:
    # The last flights of each split, in which the whole output is judged.
    workload = WorkloadPlan("flights", start_offset=40_000)
    plan = TrialPlan(workload=workload, checkpoints=CheckpointPlan(interval_ms=500, timeout_ms=20_000))

    class Killer(ReferenceSpark):
        """Kills its own judge when the trial begins."""

        def run(self, *arguments: Any) -> TrialOutcome:
            system._started()
            if system._judge is None:
                assert system._cluster is not None
                system._start_judge(system._cluster)
            assert system._judge is not None
            psutil.Process(system._judge.pid).kill()
            return system.run(*arguments)

    unjudged = run_trial(plan, Killer(), tmp_path)
    assert unjudged.verdict is Verdict.UNKNOWN
    assert "judge of the output process is gone" in unjudged.findings[0].summary
    judged = execute(plan, system, tmp_path)
    assert judged.record.verdict is Verdict.VALID
    assert judged.history is not None and judged.history.output_query is not None
    assert {channel.crossing for cut in cuts(judged) for channel in cut.channels} == {0}


WIDE = filled(TrialPlan(job=JobPlan(widths={"source": 4, "totals": 4, "sink": 3})))


def test_a_job_with_more_subtasks_than_slots_is_refused_where_the_cluster_was_asked_for(
    tmp_path: Path,
) -> None:
    small = ReferenceSpark(config_for_trials(ClusterKind.LOCAL, 2, 5, 512))
    with pytest.raises(UsageProblem, match=r"has 11 subtasks, and the cluster 2 x 5 slots: .* 6 or more"):
        run_trial(WIDE, small, tmp_path)


def test_otherwise_the_cluster_becomes_large_enough() -> None:
    system = ReferenceSpark()
    system._make_room(filled(TrialPlan()))
    assert (system._config.workers, system._config.cores_per_worker) == (3, 3)
    system._make_room(WIDE)
    assert (system._config.workers, system._config.cores_per_worker) == (3, 11)


def test_a_job_that_will_be_wider_needs_the_slots_from_the_beginning() -> None:
    wider = msgspec.structs.replace(
        TrialPlan(), savepoints=(SavepointPlan(stop=True),), rescales=(RescalePlan({"totals": 9}),)
    )
    assert slots_needed(filled(wider)) == slots_needed(filled(TrialPlan())) + 7


def test_committed_output_that_cannot_be_read_is_a_violation(tmp_path: Path) -> None:
    (tmp_path / "part-0").write_bytes(b"no Parquet")
    plan = filled(TrialPlan())
    output, found = ReferenceSpark()._output(KeyedTotals(), plan, tmp_path, tmp_path)
    assert output is None and found is not None
    assert found.counts is None and "not Parquet" in found.problem


@pytest.mark.nightly
@pytest.mark.spark
def test_a_job_that_does_not_end_in_time_is_stuck_and_says_what_it_waits_for(
    system: ReferenceSpark, tmp_path: Path
) -> None:
    plan = next(planted_bugs()["AL-01"].plans("spark"))
    plan = msgspec.structs.replace(
        plan,
        mutant=None,
        workload=msgspec.structs.replace(plan.workload, records_per_second=1),
        checkpoints=CheckpointPlan(interval_ms=600_000),
        limits=msgspec.structs.replace(plan.limits, wall_s=60),
    )
    record = run_trial(plan, system, tmp_path)
    assert record.end == End.STUCK.value
    assert record.verdict is Verdict.INVALID
    assert any("input not consumed" in f.summary for f in record.findings if f.checker == "progress")
    assert {"driver.log", "master.log"} <= {path.name[3:] for path in (tmp_path / "logs").iterdir()}


def test_a_killed_process_is_shown_to_be_dead_and_cannot_be_killed_twice() -> None:
    kills: list[int] = []
    child = psutil.Popen(["sleep", "60"])
    target = SignalledProcess(child.pid, "a sleeper", lambda: kills.append(1))
    assert not target.is_dead()
    target.kill()
    assert target.is_dead()
    assert kills == [1]
    with pytest.raises(TargetGone, match="a sleeper"):
        target.kill()
    child.wait()


def test_killing_an_executor_takes_what_it_started_with_it() -> None:
    parent = psutil.Popen(["sh", "-c", "sleep 60 & wait"])
    while not (children := parent.children()):
        assert parent.is_running()
    SignalledProcess(parent.pid, "an executor", lambda: None, with_children=True).kill()
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    parent.wait()


def test_a_paused_executor_stands_still_with_all_that_it_started_until_it_is_resumed() -> None:
    parent = psutil.Popen(["sh", "-c", "sleep 60 & wait"])
    while not (children := parent.children()):
        assert parent.is_running()
    target = SignalledProcess(parent.pid, "an executor", lambda: None, with_children=True)
    assert isinstance(target, PausableTarget)
    assert not target.is_paused()
    target.pause()
    assert target.is_paused()
    assert {process.status() for process in (parent, *children)} == {psutil.STATUS_STOPPED}
    children[0].resume()
    while children[0].status() == psutil.STATUS_STOPPED:
        assert children[0].is_running()
    assert not target.is_paused(), "the proof is what the system shows, not what was asked of it"
    target.resume()
    target.resume()
    assert not target.is_paused()
    while parent.status() == psutil.STATUS_STOPPED:
        assert parent.is_running()
    target.pause()
    target.kill()
    assert not target.is_paused()
    with pytest.raises(TargetGone, match="an executor"):
        target.pause()
    target.resume()
    parent.wait()


def test_a_process_that_is_paused_twice_goes_on_when_both_pauses_are_over() -> None:
    parent = psutil.Popen(["sh", "-c", "sleep 60 & wait"])
    while not (children := parent.children()):
        assert parent.is_running()
    executor = SignalledProcess(parent.pid, "an executor", lambda: None, with_children=True)
    worker = SignalledProcess(children[0].pid, "its worker", lambda: None)
    for first, second in ((executor, worker), (worker, executor)):
        executor.pause()
        worker.pause()
        first.resume()
        first.resume()
        assert second.is_paused(), "resuming twice ends no pause of another target"
        second.resume()
        while any(process.status() == psutil.STATUS_STOPPED for process in (parent, *children)):
            assert parent.is_running()
    executor.kill()
    parent.wait()


def test_a_lost_host_takes_its_local_files_with_it_and_leaves_the_directories_of_its_worker(
    tmp_path: Path,
) -> None:
    local = tmp_path / "worker-0" / "local"
    (local / "spark-1" / "executor-1" / "blockmgr-1" / "00").mkdir(parents=True)
    (local / "spark-1" / "executor-1" / "blockmgr-1" / "00" / "block").write_bytes(b"x")
    (local / "spark-1" / "executor-1" / "secondary").write_bytes(b"x")
    (local / "elsewhere").write_bytes(b"x")
    child = psutil.Popen(["sleep", "60"])
    host = LostHost(SignalledProcess(child.pid, "executor 0", lambda: None), local, None)
    assert host.description == "executor 0, with the local files in worker-0"
    assert not host.is_dead()
    host.come_back()
    host.kill()
    assert host.is_dead() and host.is_back()
    child.wait()
    assert sorted(path.name for path in local.rglob("*")) == ["executor-1", "spark-1"]
    (local / "spark-1" / "executor-1" / "blockmgr-2").mkdir()
    assert host.is_dead(), "what the next executor writes is no part of the lost disk"
    (local / "elsewhere").write_bytes(b"x")
    assert not host.is_dead() and not host.is_back()


class PretendedHost:
    """A host that ends with one process."""

    description = "a host"

    def __init__(self, process: psutil.Popen) -> None:
        self._process = process

    def kill(self) -> None:
        self._process.kill()

    def start(self) -> None: ...


@pytest.mark.parametrize("whole", [False, True], ids=["executor", "whole host"])
@pytest.mark.parametrize("journaled", [True, False], ids=["journal", "no journal"])
@pytest.mark.parametrize("lasting", [False, True], ids=["comes back", "for good"])
def test_a_host_that_is_lost_loses_what_it_did_not_sync_wherever_there_is_a_journal_of_it(
    tmp_path: Path, lasting: bool, journaled: bool, whole: bool
) -> None:
    """The fault asks for it nowhere: a machine that is gone has synced nothing since."""
    (tmp_path / "local").mkdir()
    child, worker = psutil.Popen(["sleep", "60"]), psutil.Popen(["sleep", "60"])
    lost: list[Sequence[int]] = []
    executor = SignalledProcess(
        child.pid, "executor 0", lambda: None, lose=lost.append if journaled else None
    )
    host: Any = PretendedHost(child) if whole else None
    target: LostHost | LastingLoss
    if lasting:
        target = LastingLoss(executor, SignalledProcess(worker.pid, "its worker", lambda: None), host)
    else:
        target = LostHost(executor, tmp_path / "local", host)
    try:
        target.kill()
        assert executor.is_dead()
        assert lost == ([[child.pid]] if journaled else [])
    finally:
        for process in (child, worker):
            process.kill()
            process.wait()


@pytest.mark.nightly
@pytest.mark.spark
def test_a_fault_that_would_outlast_its_trial_is_undone_at_the_trials_end(
    system: ReferenceSpark, tmp_path: Path
) -> None:
    hour_ms = 3_600_000
    plan = msgspec.structs.replace(
        next(planted_bugs()["AL-01"].plans("spark")),
        mutant=None,
        faults=(
            ScheduledFault(
                DelayChannel("source[0]", "totals[0]", latency_ms=1, duration_ms=hour_ms),
                After(ProtocolPoint.ATTEMPT_RUNNING),
            ),
            ScheduledFault(PauseWorker("totals[1]", hour_ms), After(ProtocolPoint.CHECKPOINT_COMPLETED)),
        ),
    )
    record = run_trial(plan, system, tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    assert len(record.attempts) == 2, "a paused process is replaced"
    assert all(fault.healed_at_ms is not None for fault in record.faults)
    assert not [process for process in _children() if process.status() == psutil.STATUS_STOPPED]
    client = system._proxies._client
    assert client is not None, "a plan that disturbs connections has a proxy server"
    assert client.names() == ()


def _children() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))
