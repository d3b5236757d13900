"""Real trials with `--on`: each alone on its host, with nothing of the Spark that sent it, and nothing left of it.

Grain: a system that is quick, in the processes that an executor starts; campaigns of it on `local[2]`; and one of the
reference runtime, whose trials start clusters, on a real cluster of two executors.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from barrier_tck.harness.campaign import executor_trials, host_keeper, process_of_trials, runner, spark_runs
from barrier_tck.harness.campaign.configuration import (
    CampaignConfiguration,
    ClusterSection,
    configuration_from,
)
from barrier_tck.harness.campaign.executor_trials import HostAttendant, environment_of_trials
from barrier_tck.harness.campaign.process_of_trials import TrialProcess, answered
from barrier_tck.harness.campaign.repeated_trials import Effort
from barrier_tck.harness.campaign.runner import Spread, run_campaign
from barrier_tck.harness.campaign.spark_runs import SparkRuns
from barrier_tck.harness.campaign.started_systems import choose_cluster
from barrier_tck.harness.campaign.trial_messages import (
    OpenSystem,
    PrepareSystem,
    RunTrial,
    SystemPrepared,
    TrialLost,
    TrialRan,
    line_of,
    request_of,
)
from barrier_tck.harness.campaign.tried_plans import PlannedTrial
from barrier_tck.harness.cli.spreading import start_where_trials_run
from barrier_tck.harness.cluster.cluster_config import ClusterConfig, ClusterKind
from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.process_identity import MARKER, marked_processes
from barrier_tck.harness.cluster.session_elsewhere import session_on
from barrier_tck.harness.cluster.settings import LIGHT_JAVA
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import (
    ClusterDidNotStart,
    EnvironmentProblem,
    HarnessError,
    OperatingError,
    PortInUse,
    UsageProblem,
)
from barrier_tck.harness.support.host_lock import host_lock, opened_lock, wait_for_lock
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.campaign.real_time_system import (
    BUGGY,
    DIES,
    LACKING,
    NOTES,
    PLAIN,
    REAL,
    SLEEPS,
    Note,
    RealTime,
    notes_in,
)
from tests.waiting import PATIENCE_S, eventually

ENDS_WITHIN_S = 900.0
"""The limit of trials that end in a second."""
ANSWERS_S = 60.0
"""The limit of a process that answers at once, however busy the machine is."""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the notes of a system that is started by this process or by executors."""
    directory = tmp_path / "notes"
    directory.mkdir()
    monkeypatch.setenv(NOTES, str(directory))
    return directory


def attendant(system: str = REAL) -> HostAttendant:
    return HostAttendant(OpenSystem(system, tuple(entry for entry in sys.path if entry), alone=True))


def asked(seed: int) -> bytes:
    trial = PlannedTrial(0, filled(TrialPlan(seed=seed)), Path("not here"), drawn=False)
    return line_of(RunTrial(trial, elsewhere=True))


def assert_nothing_is_left(notes: Path) -> None:
    """Neither a process nor a file of a trial that has ended."""
    for note in notes_in(notes, "started"):
        assert not psutil.pid_exists(note.beside)
        assert not psutil.pid_exists(note.process)
        assert not list(Path(tempfile.gettempdir()).glob(f"barrier-tck-work-*-{note.process}-*"))


def is_alone(notes: Path) -> bool:
    """Whether no trial began before the one that began before it had ended."""
    sequence = [note for note in notes_in(notes) if note.what in ("started", "stops")]
    return all(
        (one.what, other.what, other.process) == ("started", "stops", one.process)
        for one, other in zip(sequence[::2], sequence[1::2], strict=True)
    )


# --- what is given to a trial, and how many run ---------------------------------------------------------------------


def test_a_trial_gets_nothing_of_the_spark_that_runs_its_worker() -> None:
    of_spark = {
        "SPARK_HOME": "/spark",
        "SPARK_CONF_DIR": "/spark/conf",
        "SPARK_LOCAL_DIRS": "/scratch",
        "PYSPARK_GATEWAY_PORT": "1234",
        "PYSPARK_GATEWAY_SECRET": "secret",
        "PYSPARK_PYTHON": "/python",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": "/there",
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
        "PYTHON_WORKER_FACTORY_PORT": "1235",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        MARKER: "cluster:1:2.0",
    }
    mine = {"JAVA_HOME": "/java", "TOXIPROXY_URL": "http://proxies", "PYTHONHASHSEED": "0"}
    given = environment_of_trials(of_spark | mine | {"JDK_JAVA_OPTIONS": LIGHT_JAVA})
    assert given == mine | {"PYTHONPATH": given["PYTHONPATH"]}
    assert environment_of_trials({"JDK_JAVA_OPTIONS": f"{LIGHT_JAVA} -Xmine"})["JDK_JAVA_OPTIONS"] == "-Xmine"


def test_a_trial_uses_the_installed_pyspark_and_the_modules_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("spark/python/extra", "modules"):
        (tmp_path / name).mkdir(parents=True)
    theirs = [
        str(tmp_path / "spark/python/extra"),
        "/spark/python/lib/pyspark.zip",
        "/x/py4j-0.10.9.9-src.zip",
    ]
    monkeypatch.setattr(sys, "path", [*theirs, str(tmp_path / "modules"), *sys.path])
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    path = environment_of_trials(os.environ)["PYTHONPATH"].split(os.pathsep)
    assert str(tmp_path / "modules") in path
    assert not set(theirs) & set(path)
    opening = OpenSystem(REAL, (), alone=True)
    opened = executor_trials._opened_here(line_of(opening))
    assert str(tmp_path / "modules") in opened.path
    assert not set(theirs) & set(opened.path)


def test_the_lock_is_the_same_in_every_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "one"))
    one = host_lock()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "two"))
    assert host_lock() == one
    assert str(os.getuid()) in one.name


def test_what_somebody_else_put_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        opened_lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_another_user_owns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that all may open, so that its owner could hold it for ever."""
    os.close(opened_lock(tmp_path / "lock"))
    (tmp_path / "lock").chmod(0o666)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(OSError, match="it belongs to another user"):
        opened_lock(tmp_path / "lock")


def test_a_chunk_of_real_trials_has_one_for_each_host() -> None:
    chunks = spark_runs._Chunks(iter([spark_runs._Asked(0, b"", None)] * 10), grow=False)
    chunks.places = 3
    lost = line_of(TrialLost("", datetime.now(), 0.0))
    sizes = []
    for chunk in chunks:
        sizes.append(len(chunk))
        next(chunks.counted(spark_runs._Chunk(chunk, [lost] * len(chunk), 0.1, 2)))
    assert sizes == [3, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("addresses", "hosts"),
    [
        (["driver:1"], 1),
        (["driver:1", "a:1", "a:2", "b:1"], 2),
        (["driver:1", "driver:2", "driver:3"], 1),
        (["driver:1", "driver:2", "a:1"], 2),
    ],
)
def test_hosts_are_counted_and_not_executors(addresses: list[str], hosts: int) -> None:
    left = list(addresses)
    shown = SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))
    status = SimpleNamespace(keysIterator=lambda: shown)
    context: Any = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: status)),
        getConf=lambda: {"spark.driver.host": "driver"},
    )
    assert spark_runs._hosts(context) == hosts


def test_a_trial_whose_worker_dies_twice_is_lost_and_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace())
    monkeypatch.setattr(spark_runs, "_hosts", lambda _: 1)
    runs = SparkRuns(open_system(REAL), session)
    jobs: list[int] = []

    def job(asked: Any) -> list[bytes]:
        jobs.append(len(asked))
        raise OSError("Job aborted\nTask 0 failed 2 times: ExecutorLostFailure (executor 3 exited)")

    monkeypatch.setattr(runs, "_job", job)
    trial = PlannedTrial(7, filled(TrialPlan()), tmp_path, drawn=False)
    [tried] = runs.run([trial])
    assert jobs == [1]
    assert tried.result.record.verdict is Verdict.UNKNOWN
    [finding] = tried.result.record.findings
    assert finding.summary == (
        "Spark's worker that ran it died, each time that it ran: Task 0 failed 2 times: ExecutorLostFailure "
        "(executor 3 exited)"
    )


def test_hosts_that_come_while_others_are_asked_are_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark chooses the hosts, so each is asked again with those that are new."""
    hosts = iter([1, 1, 1, 3, 3, 3, 3, 3, 3, 3])
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelAllJobs=lambda: None))
    monkeypatch.setattr(spark_runs, "_hosts", lambda _: next(hosts))
    runs = SparkRuns(open_system(REAL), session)
    jobs: list[int] = []

    def job(asked: Any) -> list[bytes]:
        jobs.append(len(asked))
        return [line_of(SystemPrepared(f"host-{number}")) for number in range(len(asked))]

    monkeypatch.setattr(runs, "_job", job)
    runs.prepare()
    assert jobs == [1, 3]


@pytest.mark.parametrize(
    ("answers", "jobs"),
    [
        (["abc"], 1),
        (["aab", "abc"], 2),
        (["aab", "aac"], 2),
        (["aaa", "aab", "bbb", "abc"], 3),
    ],
)
def test_hosts_that_spark_missed_are_asked_again_a_few_times(
    answers: list[str], jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelAllJobs=lambda: None))
    monkeypatch.setattr(spark_runs, "_hosts", lambda _: 3)
    runs = SparkRuns(open_system(REAL), session)
    left = iter(answers)
    monkeypatch.setattr(runs, "_job", lambda _: [line_of(SystemPrepared(host)) for host in next(left)])
    runs.prepare()
    assert len(answers) - len(list(left)) == jobs


def test_a_real_trial_has_several_times_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace())
    monkeypatch.setattr(spark_runs, "_hosts", lambda _: 1)
    runs = SparkRuns(open_system(REAL), session)
    trial = PlannedTrial(0, filled(TrialPlan()), tmp_path, drawn=False)
    limits: list[float] = []

    def job(asked: Any) -> list[bytes]:
        limits.extend(one.within_s for one in asked)
        return [line_of(TrialLost("", datetime.now(), 0.0))] * len(asked)

    monkeypatch.setattr(runs, "_job", job)
    list(runs.run([trial]))
    assert limits == [4 * trial.plan.limits.wall_s + 600]


class _Opened:
    """Stands in for a process with a host for itself, whose system does not always start."""

    overran = ""

    def __init__(self, errors: list[HarnessError]) -> None:
        self._errors = errors

    def open(self, _: OpenSystem) -> None:
        if self._errors:
            raise self._errors.pop(0)

    def ask(self, *_: object) -> SystemPrepared:
        return SystemPrepared()

    def ask_in_lines(self, *_: object) -> bytes:
        return b"the answer\n"

    def close(self, at_once: bool) -> None:
        assert at_once


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ClusterDidNotStart, 2), (PortInUse, 2), (OperatingError, 2), (EnvironmentProblem, 1)],
)
@pytest.mark.parametrize("fails", [1, 2])
def test_what_may_be_chance_when_a_system_starts_is_tried_once_more(
    error: type[HarnessError], tries: int, fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[HarnessError] = [error("it does not start")] * fails
    started: list[_Opened] = []

    def start(*_: object) -> _Opened:
        started.append(_Opened(errors))
        return started[-1]

    monkeypatch.setattr(executor_trials, "TrialProcess", start)
    line = attendant().answer(asked(PLAIN), ENDS_WITHIN_S)
    assert len(started) == tries
    if fails < tries:
        assert line == b"the answer\n"
    else:
        with pytest.raises(error, match="it does not start"):
            answered(line)


class _OnCluster(RealTime):
    """A system whose cluster can be chosen."""

    def use_cluster(self, config: ClusterConfig) -> None:
        self.given = config


def test_a_system_is_given_the_cluster_that_is_asked_for() -> None:
    system = _OnCluster()
    choose_cluster(system, None)
    assert not hasattr(system, "given")
    section = ClusterSection(name=ClusterKind.DOCKER, workers=2)
    choose_cluster(system, section)
    assert system.given == section.config


@pytest.mark.parametrize(
    ("left", "code", "removed"), [([], 0, False), ([7], 0, True), ([], 3, True), ([], -9, True)]
)
def test_a_keeper_removes_what_is_left_after_processes_that_did_not_end_in_order(
    left: list[int], code: int, removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    monkeypatch.setattr(host_keeper, "adopt_orphans", lambda: None)
    monkeypatch.setattr(host_keeper, "_Events", lambda: None)
    monkeypatch.setattr(host_keeper, "_held_host", lambda _: 0)
    monkeypatch.setattr(host_keeper, "_run", lambda *_: code)
    monkeypatch.setattr(host_keeper, "Guard", lambda: SimpleNamespace(sweep=lambda _: left))
    monkeypatch.setattr(host_keeper, "remove_orphaned", lambda: did.append("files"))
    monkeypatch.setattr(host_keeper, "_reap_orphans", lambda docker: did.append(f"docker: {docker}"))
    assert host_keeper.main([host_keeper.DOCKER]) == code
    assert did == (["files", "docker: True"] if removed else [])


def test_a_keeper_that_waits_long_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_keeper, "host_lock", lambda: tmp_path / "lock")
    monkeypatch.setattr(host_keeper, "QUIET_S", 0.01)
    other = opened_lock(tmp_path / "lock")
    wait_for_lock(other)
    woken = threading.Event()
    waits: list[float | None] = []

    def wait(seconds: float | None) -> None:
        waits.append(seconds)
        woken.wait(0.02)
        if len(waits) == 3:
            os.close(other)

    events: Any = SimpleNamespace(unwanted=False, wait=wait, wake=woken.set)
    held = host_keeper._held_host(events)
    assert held is not None
    os.close(held)
    assert waits[1:3] == [None, None], "it says nothing more"
    said = capsys.readouterr().err
    assert said.count("has waited") == 1
    assert f"another process holds {tmp_path / 'lock'}" in said


def test_a_cluster_of_containers_is_kept_as_one() -> None:
    local = HostAttendant(OpenSystem(REAL, (), alone=True, cluster=ClusterSection()))
    docker = HostAttendant(OpenSystem(REAL, (), alone=True, cluster=ClusterSection(name=ClusterKind.DOCKER)))
    assert (local._keeper, docker._keeper) == ([], [host_keeper.DOCKER])


@pytest.mark.parametrize("containers", [True, False])
def test_after_a_death_the_orphans_of_the_kind_of_cluster_are_removed(
    containers: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reaped: list[str] = []

    def reap(kind: str) -> None:
        reaped.append(kind)
        raise OperatingError("the engine is gone")

    monkeypatch.setattr(DockerCluster, "reap_orphans", lambda: reap("docker"))
    monkeypatch.setattr(LocalCluster, "reap_orphans", lambda: reap("local"))
    host_keeper._reap_orphans(containers)
    assert reaped == ["docker" if containers else "local"]
    assert "still there: the engine is gone" in capsys.readouterr().err


# --- on an executor, without Spark ----------------------------------------------------------------------------------


def test_a_trial_is_answered_when_nothing_is_left_of_it_and_its_logs_come_with_it(notes: Path) -> None:
    answer = answered(attendant().answer(asked(BUGGY), ENDS_WITHIN_S))
    assert isinstance(answer, TrialRan)
    assert answer.tried.result.record.verdict is Verdict.INVALID
    [log] = answer.logs
    assert (log.name, log.content) == ("logs/00-beside.log", b"what was said beside the trial\n")
    [runs] = notes_in(notes, "runs")
    assert not [name for name in runs.environment if name.startswith(("SPARK_", "PYSPARK_"))]
    assert_nothing_is_left(notes)


def test_what_a_host_lacks_is_said_with_its_name(notes: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"^on \S+: there is no Java; install one$"):
        answered(attendant(LACKING).answer(line_of(PrepareSystem()), ENDS_WITHIN_S))
    assert isinstance(answered(attendant().answer(line_of(PrepareSystem()), None)), SystemPrepared)
    assert_nothing_is_left(notes)


def test_a_service_that_only_the_driver_names_is_refused(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", "http://127.0.0.1:1")
    runs = SparkRuns(open_system(REAL), SimpleNamespace())  # type: ignore[arg-type]
    opening = request_of(runs._opening)
    assert isinstance(opening, OpenSystem)
    assert (opening.alone, opening.services) == (True, ("TOXIPROXY_URL",))
    monkeypatch.delenv("TOXIPROXY_URL")
    line = HostAttendant(opening).answer(line_of(PrepareSystem()), ENDS_WITHIN_S)
    with pytest.raises(EnvironmentProblem, match=r"^on \S+: TOXIPROXY_URL is not set, .*spark\.executorEnv"):
        answered(line)


def test_a_real_system_is_not_started_where_the_campaign_is(notes: Path) -> None:
    start_where_trials_run("local[2]", open_system(REAL))
    assert not notes_in(notes)
    with pytest.raises(UsageProblem, match="real-time runs on no cluster of its own"):
        start_where_trials_run("local[2]", open_system(REAL), ClusterSection())


def test_a_lock_that_cannot_be_opened_is_said_with_the_host(tmp_path: Path) -> None:
    """In a process of its own, whose lock is a directory."""
    (tmp_path / "lock").mkdir()
    code = (
        "from pathlib import Path; from barrier_tck.harness.campaign import host_keeper as k; "
        f"k.host_lock = lambda: Path({str(tmp_path / 'lock')!r}); k.main([])"
    )
    environment = {**os.environ, "PYTHONPATH": import_path()}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=b"",
        capture_output=True,
        check=True,
        env=environment,
        timeout=PATIENCE_S,
    )
    with pytest.raises(EnvironmentProblem, match=r"lock cannot be opened .*; remove it"):
        answered(ran.stdout)


KEEPER = """
import errno, os
from pathlib import Path
from barrier_tck.harness.campaign import host_keeper

def without_locks(_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

host_keeper.host_lock = lambda: Path("lock")
host_keeper._TRIALS = "slow_to_end"
"""
"""Starts a keeper with a lock and a process of its own, in its working directory."""
SLOW_TO_END = """
import signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: Path("asked").touch())
Path("started").touch()
while not Path("may end").exists():
    time.sleep(0.005)
"""
"""Takes the place of a trial whose cluster ends slowly."""


@contextlib.contextmanager
def keeper_in(directory: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a keeper, whose input stays open."""
    (directory / "slow_to_end.py").write_text(SLOW_TO_END)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([import_path(), str(directory)])}
    command = [sys.executable, "-c", KEEPER + code]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=directory, env=environment, **pipes) as keeper:
        try:
            yield keeper
        finally:
            (directory / "may end").touch()
            keeper.kill()


def test_a_host_without_locks_is_said_and_not_waited_for(tmp_path: Path) -> None:
    with keeper_in(tmp_path, "host_keeper.wait_for_lock = without_locks; host_keeper.main([])") as keeper:
        keeper.wait(ANSWERS_S)
        assert keeper.stdout is not None
        line = keeper.stdout.readline()
    with pytest.raises(
        EnvironmentProblem, match=r"^on \S+: lock cannot be locked \(No locks.*file system with locks"
    ):
        answered(line)


def test_a_keeper_that_is_killed_does_not_free_the_host_while_its_trial_ends(tmp_path: Path) -> None:
    with keeper_in(tmp_path, "host_keeper.main([])") as keeper:
        eventually("the trial runs", (tmp_path / "started").exists)
        keeper.kill()
        keeper.wait()
        eventually("it ends in order", (tmp_path / "asked").exists)
        assert not _can_be_locked(tmp_path / "lock")
    eventually("the host is free", lambda: _can_be_locked(tmp_path / "lock"))


def _can_be_locked(path: Path) -> bool:
    descriptor = opened_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_a_kept_trial_that_waited_for_a_processor_has_longer_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keeper itself waits for none. Each time that it is looked at, its child has waited for as long as is said."""
    process = TrialProcess(environment_of_trials(os.environ), [])
    keeper = process._popen.pid
    waits = iter([0.0, 0.02, 0.02, 0.04, 0.04, 0.041])
    monkeypatch.setattr(
        process_of_trials, "waited_for_a_processor_s", lambda pid: 0.0 if pid == keeper else next(waits)
    )
    try:
        eventually("the trial's process runs", lambda: psutil.Process(keeper).children())
        assert not process._answers_within(0.02), "nothing was asked"
        assert next(waits, None) is None, "it was given up when it waited no longer"
    finally:
        process.close(at_once=True)


@pytest.mark.nightly
def test_trials_on_one_host_run_one_after_the_other_and_waiting_does_not_count(notes: Path) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(3) as threads:
        lines = list(threads.map(lambda _: attendant().answer(asked(PLAIN), ENDS_WITHIN_S), range(3)))
    took = time.monotonic() - began
    answers = [answered(line) for line in lines]
    records = [answer.tried.result.record for answer in answers if isinstance(answer, TrialRan)]
    assert [record.verdict for record in records] == [Verdict.VALID] * 3
    assert is_alone(notes)
    assert len(notes_in(notes, "started")) == 3
    assert max(record.wall_seconds for record in records) < took / 2
    assert_nothing_is_left(notes)


@pytest.mark.nightly
def test_a_trial_that_kills_its_process_twice_is_lost_and_what_it_started_is_ended(notes: Path) -> None:
    answer = answered(attendant().answer(asked(DIES), ENDS_WITHIN_S))
    assert isinstance(answer, TrialLost)
    assert answer.why == "each of the 2 processes that ran it ended: killed by signal 9, killed by signal 9"
    assert len(notes_in(notes, "started")) == 2
    assert not notes_in(notes, "stops")
    assert_nothing_is_left(notes)


@pytest.mark.nightly
def test_a_trial_that_stands_still_is_ended_in_order(notes: Path) -> None:
    answer = answered(attendant().answer(asked(SLEEPS), 2.0))
    assert isinstance(answer, TrialLost)
    assert answer.why == "the process that ran it gave no answer within 2 s and was ended"
    assert [note.what for note in notes_in(notes)] == ["started", "runs", "stops"]
    assert_nothing_is_left(notes)


class _Worker:
    """A process that attends one trial, as Spark's Python worker does."""

    def __init__(self, seed: int) -> None:
        module = "tests.harness.campaign.test_real_trials_on_spark"
        code = f"from {module} import asked, attendant; attendant().answer(asked({seed}), None)"
        environment = {**os.environ, "PYTHONPATH": import_path()}
        self.popen = subprocess.Popen([sys.executable, "-c", code], env=environment)

    def keepers(self) -> list[psutil.Process]:
        return psutil.Process(self.popen.pid).children()  # type: ignore[no-any-return]

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.mark.nightly
@pytest.mark.parametrize("killed", ["worker", "keeper", "trials"])
def test_nothing_outlives_whoever_is_killed_in_the_middle(killed: str, notes: Path) -> None:
    worker = _Worker(SLEEPS)
    try:
        [running] = eventually("a trial runs", lambda: notes_in(notes, "runs"))
        [keeper] = worker.keepers()
        family = [keeper, *keeper.children(recursive=True)]
        assert {running.process, running.beside} <= {process.pid for process in family}
        if killed == "worker":
            worker.kill()
        elif killed == "keeper":
            keeper.kill()
        else:
            os.kill(running.process, signal.SIGKILL)
        # The attendant starts another process when one has ended.
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert not alive
        assert bool(notes_in(notes, "stops")) == (killed != "trials"), "it ends in order if it can"
    finally:
        worker.kill()
    later = eventually("all is ended", lambda: not _running(notes))
    assert later
    eventually("the host is free", _is_free)
    assert_nothing_is_left(notes)


def _running(notes: Path) -> list[Note]:
    return [note for note in notes_in(notes, "started") if psutil.pid_exists(note.process)]


def _is_free() -> bool:
    descriptor = opened_lock(host_lock())
    try:
        wait_for_lock(descriptor)
    finally:
        os.close(descriptor)
    return True


@pytest.mark.nightly
def test_a_worker_that_waits_for_its_host_can_be_killed(notes: Path) -> None:
    descriptor = opened_lock(host_lock())
    wait_for_lock(descriptor)
    worker = _Worker(PLAIN)
    try:
        [keeper] = eventually("it waits", lambda: worker.keepers())
        eventually("it waits for the lock", lambda: keeper.num_threads() > 1)
        worker.kill()
        keeper.wait(PATIENCE_S)
        assert not notes_in(notes)
    finally:
        os.close(descriptor)
        worker.kill()


# --- on local[2] ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the executors of the session write: they inherit the variable when it starts."""
    directory = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NOTES, str(directory))
        yield directory


@pytest.fixture(scope="module")
def spark(shared_notes: Path) -> Iterator[Any]:
    with session_on("local[2]", "test", spark_runs.SETTINGS) as session:
        yield session


@pytest.fixture
def noted(shared_notes: Path) -> Path:
    """The same directory, without the notes of other tests."""
    for file in shared_notes.glob("*.json"):
        file.unlink()
    return shared_notes


def real(first_seed: int, trials: int) -> CampaignConfiguration:
    """Return a campaign whose trials have consecutive seeds."""
    values = {"system": REAL, "seed": first_seed, "controls": 0, "trial": [{"repeat": trials}]}
    return configuration_from(values, "test")


def run_on(spark: Any, wanted: CampaignConfiguration, out: Path) -> list[tuple[int, Verdict]]:
    opened = open_system(wanted.system.name)
    runs = SparkRuns(opened, spark, wanted.cluster)
    run_campaign(wanted, opened, out, spread=Spread(runs, once=runs.once))
    return verdicts(out)


def verdicts(run: Path) -> list[tuple[int, Verdict]]:
    return [(row.trial, row.verdict) for row in open_run(run).rows()]


@pytest.mark.nightly
def test_a_real_campaign_has_the_verdicts_of_one_process_and_its_findings_are_examined_there(
    spark: Any, noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "IN_REAL_TIME", Effort(times=1, trials=2, seconds=PATIENCE_S))
    there = run_on(spark, real(BUGGY, 4), tmp_path / "spark")
    on_executors = notes_in(noted, "runs")
    assert is_alone(noted)
    assert os.getpid() not in {note.process for note in on_executors}
    assert len(on_executors) > 4, "the plan of the invalid trial is made smaller where trials run"
    assert_nothing_is_left(noted)
    run_campaign(real(BUGGY, 4), open_system(REAL), tmp_path / "one")
    assert there == verdicts(tmp_path / "one")
    assert [verdict for _, verdict in there] == [Verdict.INVALID, *[Verdict.VALID] * 3]
    one, other = (open_run(tmp_path / name).campaign for name in ("spark", "one"))
    assert [group.clause for group in one.groups] == [group.clause for group in other.groups] != []
    logs = [sorted((tmp_path / name).glob("trials/00000/logs/*")) for name in ("spark", "one")]
    assert [[log.read_text() for log in found] for found in logs] == [
        ["what was said beside the trial\n"]
    ] * 2


@pytest.mark.nightly
def test_a_worker_that_is_killed_in_the_middle_loses_no_verdict_and_leaves_nothing(
    spark: Any, noted: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        [first, *_] = eventually("a trial runs", lambda: notes_in(noted, "runs"))
        trials = psutil.Process(first.process)
        keeper = trials.parent()
        assert "host_keeper" in " ".join(keeper.cmdline())
        keeper.parent().kill()

    killer = threading.Thread(target=kill)
    killer.start()
    found = run_on(spark, real(PLAIN, 3), tmp_path / "run")
    killer.join()
    assert found == [(number, Verdict.VALID) for number in range(3)]
    assert len(notes_in(noted, "started")) == 4, "one trial ran twice"
    assert is_alone(noted)
    assert_nothing_is_left(noted)


@pytest.mark.nightly
def test_a_real_trial_that_kills_its_process_is_unknown_and_the_campaign_goes_on(
    spark: Any, noted: Path, tmp_path: Path
) -> None:
    found = run_on(spark, real(DIES - 2, 3), tmp_path / "run")
    assert found == [(0, Verdict.VALID), (1, Verdict.VALID), (2, Verdict.UNKNOWN)]
    [finding] = open_run(tmp_path / "run").record(2).findings
    assert (
        finding.summary == "each of the 2 processes that ran it ended: killed by signal 9, killed by signal 9"
    )
    assert_nothing_is_left(noted)


@pytest.mark.nightly
def test_a_campaign_that_is_interrupted_leaves_no_trial_behind(
    spark: Any, noted: Path, tmp_path: Path
) -> None:
    def interrupt() -> None:
        eventually("a trial sleeps", lambda: [n for n in notes_in(noted, "runs") if n.seed == SLEEPS])
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    run_on(spark, real(SLEEPS, 1), tmp_path / "run")
    interrupter.join()
    assert open_run(tmp_path / "run").campaign.interrupted
    eventually("it ended in order", lambda: notes_in(noted, "stops"))
    eventually("its process is gone", lambda: not _running(noted))
    assert_nothing_is_left(noted)


@pytest.mark.nightly
def test_what_every_host_must_have_is_looked_at_before_the_first_trial(spark: Any, noted: Path) -> None:
    SparkRuns(open_system(REAL), spark).prepare()
    assert [note.what for note in notes_in(noted)] == ["started", "stops"]
    broken = SparkRuns(open_system(LACKING), spark)
    with pytest.raises(EnvironmentProblem, match=r"^on \S+: there is no Java; install one$"):
        broken.prepare()


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_command_that_is_ended_in_the_middle_of_a_real_trial(
    number: int, notes: Path, tmp_path: Path
) -> None:
    (tmp_path / "sleeping.toml").write_text(
        f'name = "sleeping"\nsystem = "{REAL}"\nseed = {SLEEPS}\n[[trial]]\n'
    )
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign", "sleeping.toml"]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    campaign = subprocess.Popen(
        [*command, "--on", "local[1]"], cwd=tmp_path, env=environment, start_new_session=True
    )
    try:
        eventually(
            "a trial sleeps", lambda: [note for note in notes_in(notes, "runs") if note.seed == SLEEPS]
        )
        processes = psutil.Process(campaign.pid).children(recursive=True)
        campaign.send_signal(number)
        campaign.wait(PATIENCE_S)
    finally:
        campaign.kill()
        campaign.wait()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive
    assert [note.what for note in notes_in(notes)] == [*["started", "stops"], *["started", "runs", "stops"]]
    assert_nothing_is_left(notes)


# --- on a cluster of two executors, with a cluster for each trial ---------------------------------------------------


LONG_ENOUGH = {
    "workload": {"batches": 60, "batch_records": 50, "records_per_second": 1_000},
    "checkpoints": {"interval_ms": 400, "timeout_ms": 20_000},
    "restart": {"attempts_max": 8, "delay_ms": 50},
}
"""For a fault after two checkpoints."""


class _Watch:
    """Looks at the clusters of trials below this process, besides the one that runs the trials.

    Once it kills the Python worker of a trial that has a cluster.
    """

    def __init__(self, outer: str) -> None:
        self._outer = outer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.at_once: set[int] = set()
        """How many clusters there were at the same time."""
        self.clusters: set[str] = set()
        self.killed = False

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            found: dict[str, psutil.Process] = {}
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    marker = process.environ().get(MARKER, self._outer)
                    found |= {} if marker.startswith(self._outer) else {marker: process}
            self.at_once.add(len(found))
            self.clusters |= found.keys()
            if found and not self.killed:
                self.killed = any(map(_kill_worker_of, found.values()))


def _kill_worker_of(process: psutil.Process) -> bool:
    """Kill the Python worker that attends the trial of a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for ancestor in process.parents():
            if "host_keeper" in " ".join(ancestor.cmdline()):
                ancestor.parent().kill()
                return True
    return False


@pytest.mark.nightly
@pytest.mark.spark
def test_trials_of_the_reference_runtime_have_clusters_of_their_own_one_at_a_time(tmp_path: Path) -> None:
    """Both executors are on this host. One worker is killed in the middle of the first trial, cluster and all."""
    after = {"type": "after", "point": "completion_notified", "subtask": "sink[0]", "nth": 2}
    faults = [{"fault": {"type": "kill_executor", "subtask": "totals[0]"}, "trigger": after}]
    values = {"system": "reference-spark", "seed": 11, "controls": 0, **LONG_ENOUGH}
    wanted = configuration_from(values | {"trial": [{"repeat": 2}, {"faults": faults}]}, "test")
    shape = LocalClusterConfig(workers=2, cores_per_worker=1, memory_per_worker_mb=512, quick_start=True)
    before = {marked.pid for marked, _ in marked_processes()}
    with (
        LocalCluster(shape) as cluster,
        session_on(cluster.master_url, "test", cluster.spark_conf() | spark_runs.SETTINGS) as session,
    ):
        with _Watch(cluster._id) as watch:
            found = run_on(session, wanted, tmp_path / "spark")
        outer = set(cluster.processes())
        assert not {marked.pid for marked, _ in marked_processes()} - before - outer
    assert watch.killed
    assert watch.at_once == {0, 1}
    assert len(watch.clusters) == 4, (
        "one for each trial, and another one for the trial whose worker was killed"
    )
    rows = sorted(open_run(tmp_path / "spark").rows(), key=lambda row: row.started_at)
    for one, other in itertools.pairwise(rows):
        ended = datetime.fromisoformat(one.started_at) + timedelta(seconds=one.wall_seconds)
        assert ended <= datetime.fromisoformat(other.started_at)
    system = open_system("reference-spark")
    try:
        run_campaign(wanted, system, tmp_path / "one")
    finally:
        system.close()
    assert found == verdicts(tmp_path / "one") == [(number, Verdict.VALID) for number in range(3)]
