"""The simulated world: virtual time, network, storage and processes; and a plan decides everything."""

from __future__ import annotations

import gc
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan, to_json
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import JobCut
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.coordinator_process import SimulatedCoordinator
from barrier_tck.harness.reference.simulated.environment import Environment
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.network import DataChannel, Disturbance
from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.simulated.subtask_processes import STEP_MS_MAX, SimulatedSubtask
from barrier_tck.harness.reference.simulated.trace import Trace
from barrier_tck.harness.reference.simulated.world import COORDINATOR_RESTART_MS, SimulatedWorld
from barrier_tck.harness.support import work_directories
from barrier_tck.harness.system.system_under_test import TrialOutcome
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.harness.trial.trial_run import digest, execute, run_trial
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.runtime_errors import StorageError

PLANS = Path(__file__).parents[2] / "plans"
KILL = ScheduledFault(KillExecutor("totals[0]"), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]"))
PLAN = TrialPlan(faults=(KILL,))


def run(plan: TrialPlan, directory: Path) -> TrialOutcome:
    return ReferenceSimulated().run(filled(plan), Nemesis(plan.faults), directory)


# --- determinism --------------------------------------------------------------------------------------------


def test_the_same_plan_gives_the_same_trace_and_another_seed_another(tmp_path: Path) -> None:
    first, again = run(PLAN, tmp_path).trace, run(PLAN, tmp_path).trace
    assert first == again
    assert len(first) > 200
    assert run(msgspec.structs.replace(PLAN, seed=1), tmp_path).trace != first


@pytest.mark.parametrize("kill", [True, False])
def test_a_backend_on_disk_replays_too_and_leaves_nothing_on_it(
    tmp_path: Path, kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its own temporary directories, because other simulators may run on this machine.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(work_directories, "SHARED_MEMORY", tmp_path / "memory")
    checkpoints = msgspec.structs.replace(PLAN.checkpoints, incremental=True, interval_ms=10)
    plan = msgspec.structs.replace(
        PLAN, state_backend="rocksdb", checkpoints=checkpoints, faults=(KILL,) if kill else ()
    )
    before = _open_and_temporary()
    outcome = run(plan, tmp_path)
    assert outcome.history.end is End.FINISHED
    assert outcome.history.checkpoints and all(view.problem is None for view in outcome.history.checkpoints)
    assert any(view.state_by_operator().get("totals") for view in outcome.history.checkpoints)
    assert run(plan, tmp_path) == outcome
    assert _open_and_temporary() == before


def _open_and_temporary() -> tuple[list[str], list[str]]:
    links = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    names = ("barrier-tck-work-world-*", "barrier-tck-work-views-*")
    places = [parent.glob(name) for parent in work_directories.work_parents() for name in names]
    worlds = [str(path) for place in places for path in place if path.stat().st_uid == os.getuid()]
    return [link for link in links if "barrier-tck-" in link], worlds


def test_the_directory_of_a_killed_trial_is_removed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = (
        "import os, signal, tempfile; from barrier_tck.harness.support.work_directories import work_prefix;"
    )
    killed += "tempfile.mkdtemp(prefix=work_prefix('world')); os.kill(os.getpid(), signal.SIGKILL)"
    ended = subprocess.run(
        [sys.executable, "-c", killed], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    (left,) = tmp_path.glob("barrier-tck-work-world-*")
    assert ended.returncode == -signal.SIGKILL
    work_directories._owner.cache_clear()  # as in a process that has just started
    (tmp_path / "trial").mkdir()
    run(msgspec.structs.replace(PLAN, state_backend="rocksdb"), tmp_path / "trial")
    assert not left.exists()


def test_any_backend_runs_in_the_simulator(tmp_path: Path) -> None:
    target = "examples.minimal_backend.backend:SortedDictBackend"
    plan = msgspec.structs.replace(PLAN, state_backend=target)
    assert run_trial(plan, ReferenceSimulated(), tmp_path).verdict is Verdict.VALID


@pytest.mark.long
@pytest.mark.parametrize(("hash_seed", "backend"), [("0", "heap"), ("4711", "rocksdb")])
def test_trace_and_history_are_the_same_under_any_hash_seed(
    tmp_path: Path, hash_seed: str, backend: str
) -> None:
    plan = msgspec.structs.replace(PLAN, state_backend=backend)
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(to_json(plan))
    program = (
        "import sys; from pathlib import Path; from barrier_tck.harness.plan.reading import read_plan;"
        "from barrier_tck.harness.trial.trial_run import digest, execute;"
        "from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated;"
        "tried = execute(read_plan(Path(sys.argv[1])), ReferenceSimulated(), Path(sys.argv[1]).parent);"
        "print(tried.record.trace_digest, digest([repr(tried.history)]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(plan_file)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tried = execute(plan, ReferenceSimulated(), tmp_path)
    assert found == f"{tried.record.trace_digest} {digest([repr(tried.history)])}"


def test_child_streams_do_not_disturb_each_other() -> None:
    alone = [stream(7, "network").random() for _ in range(3)]
    other = stream(7, "storage")
    other.random()
    assert [stream(7, "network").random() for _ in range(3)] == alone
    assert stream(7, "storage").random() != stream(7, "network").random()


# --- scheduler and network ----------------------------------------------------------------------------------


def test_steps_of_one_time_run_in_the_order_of_scheduling_and_the_past_means_now() -> None:
    scheduler, seen = Scheduler(), []
    scheduler.at(5.0, lambda name: seen.append((scheduler.now, name)), "b")
    scheduler.at(5.0, lambda name: scheduler.at(1.0, seen.append, (scheduler.now, name)), "late")
    scheduler.at(5.0, lambda name: seen.append((scheduler.now, name)), "c")
    assert not scheduler.run(10.0), "nothing stopped it: it ran out of work"
    assert seen == [(5.0, "b"), (5.0, "c"), (5.0, "late")]


def test_a_channel_is_fifo_whatever_the_latencies_and_full_at_its_capacity() -> None:
    scheduler = Scheduler()
    channel = DataChannel("a->b", scheduler, random.Random(3), latency_ms=50.0, capacity=20)
    for number in range(20):
        assert not channel.full
        channel.send(True, number)
    assert channel.full
    arrivals = [arrival for arrival, _, _ in channel.queue]
    assert arrivals == sorted(arrivals) and 0.0 < arrivals[0] < arrivals[-1] <= 50.0
    assert [channel.take()[1] for _ in range(20)] == list(range(20))
    assert not channel.full


class Reader:
    """The driver of a process that only reads, and notes what it read and when."""

    exhausted = True

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.blocked = scheduler, [False, False]
        self.seen: list[tuple[float, Any]] = []

    def on_data(self, channel: int, payload: Any) -> None:
        self.seen.append((self.scheduler.now, payload))


def a_reader_of_two_channels(seed: int) -> tuple[SimulatedSubtask, Reader]:
    """Return a running process with two channels; a message on the first one takes 100 ms to arrive."""
    scheduler = Scheduler()
    nobody: Any = None
    environment = Environment(scheduler, Trace(), 1.0, 1.0, nobody, nobody)
    world: Any = SimpleNamespace(environment=environment, records_watched=False)
    process = SimulatedSubtask(world, SubtaskId("sink", 0), 1, nobody, nobody, random.Random(seed))
    reader = Reader(scheduler)
    process.driver = reader  # type: ignore[assignment]
    process.runs = True
    for name in ("slow", "fast"):
        channel = DataChannel(name, scheduler, random.Random(seed), latency_ms=0.0, capacity=8)
        process.read_from(channel)
    process.inputs[0].disturbance = Disturbance(lambda: 0.5, [Latency(latency_ms=100)])
    return process, reader


def test_a_message_in_transit_is_not_read_and_holds_nothing_back() -> None:
    process, reader = a_reader_of_two_channels(seed=0)
    process.inputs[0].send(True, "late")
    process.inputs[1].send(True, "soon")
    reader.scheduler.run(1_000.0)
    (soon, first), (late, second) = reader.seen
    assert (first, second) == ("soon", "late")
    assert soon <= STEP_MS_MAX and 100.0 <= late <= 100.0 + STEP_MS_MAX


@pytest.mark.parametrize("seed", range(10))
def test_a_step_that_was_superseded_by_an_earlier_one_is_not_taken(seed: int) -> None:
    process, reader = a_reader_of_two_channels(seed)
    for number in range(5):
        process.inputs[0].send(True, [number])
    process.inputs[1].send(True, "soon")
    for taken in range(6):
        reader.scheduler.run(math.nextafter(process.due, 0.0))
        assert len(reader.seen) == taken, "nothing is read before the step that is expected"
        reader.scheduler.run(process.due)
    assert [payload for _, payload in reader.seen] == ["soon", [0], [1], [2], [3], [4]]


# --- storage ------------------------------------------------------------------------------------------------


def test_a_lost_host_loses_unsynced_bytes_and_names_and_nothing_else() -> None:
    disk = SimulatedDisk()
    host, other = disk.host(), disk.host()
    for name, sync_bytes, sync_name in (("all", True, True), ("bytes", True, False), ("name", False, True)):
        file = host.create(f"{name}/file")
        file.write(b"content")
        if sync_bytes:
            file.sync()
        if sync_name:
            host.sync_directory(name)
    host.sync_directory("")
    other.create("other/file").write(b"another host's")
    host.lose_unsynced()
    assert host.read("all/file") == b"content"
    assert not host.exists("bytes/file")
    assert host.read("name/file") == b""
    assert host.read("other/file") == b"another host's"


def test_what_a_dead_process_left_unsynced_is_lost_with_its_host_unless_anyone_synced_the_directory() -> None:
    disk = SimulatedDisk()
    dead, other = disk.host(), disk.host()
    for name in ("kept", "lost"):
        dead.create(f"pending/{name}").sync()
    dead.sync_directory("pending")
    dead.rename("pending/kept", "a/kept")
    other.sync_directory("a")
    other.sync_directory("")
    dead.rename("pending/lost", "a/lost")
    dead.of_next_process().lose_unsynced()
    assert other.list_files("") == ["a/kept", "pending/lost"]


def test_an_unsynced_rename_is_undone_to_what_was_there_before() -> None:
    disk = SimulatedDisk()
    host = disk.host()
    for name, content in (("old", b"1"), ("new", b"2")):
        stream = host.create(f"d/{name}")
        stream.write(content)
        stream.sync()
    host.sync_directory("d")
    host.sync_directory("")
    host.rename("d/new", "d/old")
    assert host.read("d/old") == b"2"
    host.lose_unsynced()
    assert (host.read("d/old"), host.read("d/new")) == (b"1", b"2")


def test_a_synced_rename_survives_and_a_missing_file_is_an_error() -> None:
    host = SimulatedDisk().host()
    host.create("d/a").sync()
    host.sync_directory("d")
    host.rename("d/a", "d/b")
    host.sync_directory("d")
    host.sync_directory("")
    host.lose_unsynced()
    assert host.list_files("d") == ["d/b"]
    for action in (lambda: host.read("d/a"), lambda: host.rename("d/a", "d/c"), lambda: host.size("d/a")):
        with pytest.raises(StorageError, match="d/a"):
            action()


# --- processes and faults -----------------------------------------------------------------------------------


def test_a_killed_process_does_nothing_more(tmp_path: Path) -> None:
    trace = run(PLAN, tmp_path).trace
    killed = next(i for i, line in enumerate(trace) if "totals[0]#1 killed" in line)
    assert not [line for line in trace[killed + 1 :] if " totals[0]#1 " in line]
    assert any(" totals[0]#2 " in line for line in trace[killed:])


def test_an_executor_takes_everything_on_it_down_a_worker_only_itself(tmp_path: Path) -> None:
    executor = run(PLAN, tmp_path).trace
    worker_fault = ScheduledFault(KillWorker("totals[0]"), KILL.trigger)
    worker = run(msgspec.structs.replace(PLAN, faults=(worker_fault,)), tmp_path).trace
    assert sum("#1 killed" in line for line in executor) > 1
    assert sum("#1 killed" in line for line in worker) == 1


@pytest.mark.parametrize(
    "fault",
    [
        ScheduledFault(CrashCoordinator(), At(20)),
        ScheduledFault(CrashCoordinator(lose_unsynced=True), After(ProtocolPoint.ALL_ACKNOWLEDGED)),
        ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED)),
        ScheduledFault(
            KillExecutor("sink[0]", lose_unsynced=True), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]")
        ),
    ],
    ids=["by the clock", "before the metadata", "before anyone is told", "before the commit"],
)
def test_a_crash_is_survived_and_leaves_a_later_attempt(tmp_path: Path, fault: ScheduledFault) -> None:
    record = run_trial(TrialPlan(faults=(fault,)), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    assert record.faults_fired == 1
    assert record.recoveries >= 1


def test_a_coordinator_that_cannot_read_is_started_again_until_it_can_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    outage = CrashCoordinator(unreadable_ms=3 * int(COORDINATOR_RESTART_MS))
    fault = ScheduledFault(outage, After(ProtocolPoint.CHECKPOINT_COMPLETED))
    record = run_trial(TrialPlan(faults=(fault,)), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    assert [attempt.restored_checkpoint for attempt in record.attempts] == [None, 1]
    failed = [line for line in run(TrialPlan(faults=(fault,)), tmp_path).trace if "storage does not" in line]
    assert len(failed) == 3


@pytest.mark.long
def test_a_world_is_gone_with_its_last_reference_without_the_garbage_collector(tmp_path: Path) -> None:
    run(PLAN, tmp_path)  # objects that are only made once
    gc.collect()
    gc.disable()
    try:
        run(PLAN, tmp_path)
        parts = (SimulatedWorld, SimulatedSubtask, SimulatedCoordinator, DataChannel, Scheduler)
        assert not [thing for thing in gc.get_objects() if isinstance(thing, parts)]
    finally:
        gc.enable()


def test_a_job_that_cannot_restart_fails_and_says_why(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, restart=msgspec.structs.replace(PLAN.restart, strategy="none"))
    history = run(plan, tmp_path).history
    assert history.end is End.FAILED
    assert history.reason is Reason.RESTARTS_USED_UP
    assert "restart strategy is none" in history.detail


def test_a_job_without_checkpoints_finishes_and_commits_at_the_end(tmp_path: Path) -> None:
    off = msgspec.structs.replace(TrialPlan().checkpoints, enabled=False)
    record = run_trial(TrialPlan(checkpoints=off), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    assert record.checkpoints_completed == 0


def test_a_bound_that_comes_first_ends_in_stuck_with_what_is_pending(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(TrialPlan().limits, virtual_ms=20)
    history = run(TrialPlan(limits=limits), tmp_path).history
    assert history.end is End.STUCK
    assert (history.reason, history.detail) == (Reason.OUT_OF_TIME, "no end within 20 ms")
    assert [(cut.time_ms, cut.operation.reason) for cut in history.of(JobCut)] == [(20.0, Reason.OUT_OF_TIME)]
    assert any("input not consumed" in line or "not yet running" in line for line in history.pending)


# --- plans that once failed ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(PLANS.glob("*.json")), ids=lambda path: path.stem)
def test_plans_that_once_failed_are_valid_now(path: Path, tmp_path: Path) -> None:
    plan = read_plan(path)
    assert plan.note, "a stored plan says what it once showed"
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.parametrize("first", [8, 98, 2**31 - 3, 2**53 - 10])
def test_ids_start_where_the_plan_says(first: int, tmp_path: Path) -> None:
    calm = TrialPlan(workload=WorkloadPlan(batches=20, records_per_second=600))
    checkpoints = msgspec.structs.replace(calm.checkpoints, first_id=first)
    record = run_trial(msgspec.structs.replace(calm, checkpoints=checkpoints), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    ids = [checkpoint.checkpoint for checkpoint in record.checkpoints]
    assert ids == list(range(first, first + len(ids))) and len(ids) >= 3
