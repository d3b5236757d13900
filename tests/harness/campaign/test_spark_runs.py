"""Campaigns on Spark: the same rows, plans and order as in one process, whatever dies, and nothing left behind.

Grain: small campaigns on `local[2]`, which has Spark's own workers; one on a real cluster of two executors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from barrier_tck.harness.campaign import spark_runs
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.executor_trials import Attendant
from barrier_tck.harness.campaign.process_of_trials import answered
from barrier_tck.harness.campaign.runner import Spread, resume_campaign, run_campaign
from barrier_tck.harness.campaign.spark_runs import SparkRuns
from barrier_tck.harness.campaign.trial_messages import (
    KeptLog,
    OpenSystem,
    RunTrial,
    TrialLost,
    TrialRan,
    line_of,
)
from barrier_tck.harness.campaign.trial_pool import seconds_for
from barrier_tck.harness.campaign.tried_plans import FailedTrial, PlannedTrial, TriedPlan
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.spreading import copying
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.session_elsewhere import master_of, session_on
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.campaign.dying_system import DIES, REFUSED, SLEEPS
from tests.harness.campaign.test_trial_pool import (
    BUGGY,
    DYING,
    drawn,
    files_of,
    listed,
    without_times,
)
from tests.waiting import PATIENCE_S, eventually

EVEN = "reference-simulated"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session_on("local[2]", "test") as session:
        yield session


def run_on(spark: Any, wanted: CampaignConfiguration, system: str, out: Path) -> None:
    opened = open_system(system)
    run_campaign(wanted, opened, out, spread=Spread(SparkRuns(opened, spark)))


def assert_as_in_one_process(wanted: CampaignConfiguration, system: str, there: Path, one: Path) -> None:
    run_campaign(wanted, open_system(system), one)
    here, spread = open_run(one), open_run(there)
    assert [without_times(trial) for trial in tuple(spread.rows())] == [
        without_times(trial) for trial in tuple(here.rows())
    ]
    assert without_times(spread.campaign) == without_times(here.campaign)
    assert spread.kept == here.kept
    assert files_of(there) == files_of(one) != {}
    for name in here.campaign.shrunk.values():
        assert (there / name).read_bytes() == (one / name).read_bytes()


# --- what is asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "master"),
    [
        ("local", "local[1,2]"),
        ("local[3]", "local[3,2]"),
        ("local[*]", "local[*,2]"),
        ("yarn", "yarn"),
        ("spark://a:7077,b:7077", "spark://a:7077,b:7077"),
        ("k8s://https://host:443", "k8s://https://host:443"),
    ],
)
def test_a_master_is_called_as_spark_calls_it(url: str, master: str) -> None:
    assert master_of(url) == master


@pytest.mark.parametrize(
    "url", ["", "local[0]", "spark://host", "spark://host:0", "spark://host:x", "http://host:1"]
)
def test_any_other_master_is_refused(url: str) -> None:
    with pytest.raises(UsageProblem, match="spark://host:port"):
        master_of(url)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--on", "sparks://host:1"], "--on is 'sparks://host:1'; write spark://host:port"),
        (["--on", "spark://127.0.0.1:1"], "--on spark://127.0.0.1:1: no master can be reached there"),
        (["--on", "local[2]", "--jobs", "2"], "--jobs and --on are both given"),
        (["--rows-to", "s3a://bucket/rows"], "--rows-to is for campaigns on a cluster"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_wrong_usage(
    given: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["campaign", "--trials", "2", "--out", str(tmp_path / "runs"), *given]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert sentence in said
    assert not (tmp_path / "runs").exists()


def test_logs_are_kept_below_the_directory_of_their_trial_only(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "trial"
    names = ["logs/a.log", "../up.log", "logs/../../down.log", str(tmp_path / "absolute.log")]
    spark_runs._keep_logs([KeptLog(name, b"said") for name in names], directory)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [directory / "logs/a.log"]


# --- on an executor, without Spark ----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_trial_that_ends_its_process_twice_is_lost_and_the_next_one_has_a_new_process(
    tmp_path: Path,
) -> None:
    attendant = Attendant(OpenSystem(DYING, tuple(sys.path)))
    try:
        for seed, kind in ((DIES, TrialLost), (1_000, TrialRan)):
            trial = PlannedTrial(0, filled(TrialPlan(seed=seed)), tmp_path / "elsewhere", drawn=False)
            line = attendant.answer(line_of(RunTrial(trial, elsewhere=True)), seconds_for(trial))
            answer = answered(line)
            assert isinstance(answer, kind)
            if isinstance(answer, TrialLost):
                assert answer.why == (
                    "each of the 2 processes that ran it ended: killed by signal 9, killed by signal 9"
                )
    finally:
        attendant.close()
    assert not (tmp_path / "elsewhere").exists()


def test_another_version_is_refused(tmp_path: Path) -> None:
    attendant = Attendant(OpenSystem(EVEN, tuple(sys.path), version="0.0.1"))
    trial = PlannedTrial(0, filled(TrialPlan()), tmp_path, drawn=False)
    with pytest.raises(EnvironmentProblem, match=r"the campaign has barrier-tck 0\.0\.1, but"):
        answered(attendant.answer(line_of(RunTrial(trial)), 60))
    attendant.close()


@pytest.mark.parametrize("taken_by", ["the thread that waits", "another thread"])
def test_ctrl_c_cancels_the_only_job(taken_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = taken_by == "the thread that waits"
    cancelled = threading.Event()
    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, cancelAllJobs=cancelled.set))
    runs = SparkRuns(open_system(EVEN), session)  # type: ignore[arg-type]

    def job(_: Any) -> list[bytes]:
        # This thread has the mask of the one that waits.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(PATIENCE_S)
        raise OSError("cancelled")

    monkeypatch.setattr(runs, "_job", job)
    trial = PlannedTrial(0, filled(TrialPlan()), tmp_path, drawn=False)
    # A shell that starts the tests in the background has switched it off.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK if waits else signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            next(runs.run([trial]))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    assert cancelled.is_set()


def test_ctrl_c_cancels_a_job_that_is_just_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, cancelled = threading.Event(), threading.Event()
    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, cancelAllJobs=cancelled.set))
    runs = SparkRuns(open_system(EVEN), session)  # type: ignore[arg-type]
    ended: list[bool] = []

    def job(_: Any) -> list[bytes]:
        began.set()
        ended.append(cancelled.wait(PATIENCE_S))
        raise OSError("cancelled")

    class Interrupted(ThreadPoolExecutor):
        def submit(self, call: Any, /, *given: Any, **more: Any) -> Any:
            future = super().submit(call, *given, **more)
            if given:
                assert began.wait(PATIENCE_S)
                raise KeyboardInterrupt
            return future

    monkeypatch.setattr(runs, "_job", job)
    monkeypatch.setattr(spark_runs, "ThreadPoolExecutor", Interrupted)
    trial = PlannedTrial(0, filled(TrialPlan()), tmp_path, drawn=False)
    with pytest.raises(KeyboardInterrupt):
        next(runs.run([trial]))
    assert ended == [True]


# --- on local[2] ----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_campaign_on_spark_leaves_what_one_process_leaves(spark: Any, tmp_path: Path) -> None:
    wanted = drawn(trials=24, faults={"per_trial": [1, 3]}, controls=1)
    run_on(spark, wanted, EVEN, tmp_path / "spark")
    assert_as_in_one_process(wanted, EVEN, tmp_path / "spark", tmp_path / "one")
    assert (tmp_path / "spark" / "trials.parquet").is_dir()
    assert not (tmp_path / "spark" / "trials.jsonl").exists()


@pytest.mark.nightly
def test_a_planted_bug_is_found_with_the_same_smallest_plans(spark: Any, tmp_path: Path) -> None:
    wanted = drawn(trials=8)
    run_on(spark, wanted, BUGGY, tmp_path / "spark")
    assert_as_in_one_process(wanted, BUGGY, tmp_path / "spark", tmp_path / "one")
    assert open_run(tmp_path / "spark").campaign.shrunk


@pytest.mark.nightly
def test_a_trial_that_kills_its_process_is_unknown_and_the_campaign_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    run_on(spark, listed(1_000, 1_001, DIES), DYING, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert [trial.verdict for trial in tuple(run.rows())] == [Verdict.VALID, Verdict.VALID, Verdict.UNKNOWN]
    [finding] = run.record(2).findings
    assert (
        finding.summary == "each of the 2 processes that ran it ended: killed by signal 9, killed by signal 9"
    )


@pytest.mark.nightly
def test_a_trial_that_kills_sparks_worker_is_unknown_and_no_other_is_lost(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of trial 2 dies whenever it is given that trial; trial 3 was given to the same one."""
    monkeypatch.setattr(spark_runs, "answers", dying_answers)
    wanted = listed(*range(1_005, 1_013))
    run_on(spark, wanted, EVEN, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.campaign.failing == (2,)
    [finding] = run.record(2).findings
    assert finding.summary.startswith("Spark's worker that ran it died, each time that it ran: ")


def dying_answers(batches: Iterator[Any]) -> Iterator[Any]:
    from barrier_tck.harness.campaign.executor_trials import answers

    for batch in batches:
        for place in range(batch.num_rows):
            one = batch.slice(place, 1)
            if b'"number":2,' in one["request"][0].as_py():
                os.kill(os.getpid(), signal.SIGKILL)
            yield from answers(iter([one]))


@pytest.mark.nightly
def test_answers_that_are_too_large_for_the_driver_come_in_smaller_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    opened = open_system(EVEN)
    runs = SparkRuns(opened, spark)
    jobs: list[int] = []
    job = runs._job

    def limited(asked: Any) -> list[bytes]:
        jobs.append(len(asked))
        if len(asked) > 1:
            raise OSError("results are bigger than spark.driver.maxResultSize")
        return job(asked)

    monkeypatch.setattr(runs, "_job", limited)
    run_campaign(listed(1_000, 1_001, 1_002), opened, tmp_path / "run", spread=Spread(runs))
    assert [trial.trial for trial in tuple(open_run(tmp_path / "run").rows())] == [0, 1, 2]
    assert jobs.count(1) == 3 < len(jobs)


@pytest.mark.long
def test_chunks_grow_until_they_take_long_or_are_large() -> None:
    def sizes(seconds: float, answer: bytes) -> list[int]:
        chunks = spark_runs._Chunks(iter([spark_runs._Asked(0, b"", None)] * 1_000))
        chunks.places = 2
        found = []
        for chunk in chunks:
            found.append(len(chunk))
            done = spark_runs._Chunk(chunk, [answer] * len(chunk), seconds, 2)
            next(chunks.counted(done))
        return found[:7]

    lost = line_of(TrialLost("", datetime.now(UTC), 0.0))
    assert sizes(0.1, lost) == [8, 16, 32, 64, 128, 128, 128]
    assert sizes(5.0, lost) == [8] * 7
    assert sizes(9.0, lost) == [8, 4, 2, 2, 2, 2, 2]
    large = lost[:-2] + b" " * (4 << 20) + lost[-2:]
    assert sizes(0.1, large) == [8] * 7


@pytest.mark.nightly
def test_a_refused_plan_ends_the_campaign_as_it_does_in_one_process(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="this plan is refused"):
        run_on(spark, listed(REFUSED), DYING, tmp_path / "run")
    assert open_run(tmp_path / "run").campaign.interrupted


@pytest.mark.nightly
def test_what_is_interrupted_is_resumed_on_spark_or_elsewhere(spark: Any, tmp_path: Path) -> None:
    """Its rows stay in Parquet, and each is copied for Spark as well."""
    wanted = drawn(trials=20, controls=0)
    opened = open_system(EVEN)
    runs = _InterruptedAfter(5, SparkRuns(opened, spark))
    copied: list[int] = []
    spread = Spread(runs, lambda _, table: copied.append(table.num_rows))
    assert run_campaign(wanted, opened, tmp_path / "run", spread=spread).interrupted
    assert open_run(tmp_path / "run").campaign.trials == 5 == sum(copied)
    assert not resume_campaign(tmp_path / "run", opened, jobs=2).interrupted
    assert_as_in_one_process(wanted, EVEN, tmp_path / "run", tmp_path / "one")


@pytest.mark.nightly
def test_rows_are_copied_by_spark_to_wherever_it_can_write(spark: Any, tmp_path: Path) -> None:
    opened = open_system(EVEN)
    target = (tmp_path / "rows").as_uri()
    spread = Spread(SparkRuns(opened, spark), copying(spark, target))
    run_campaign(drawn(trials=5, controls=0), opened, tmp_path / "run", spread=spread)
    copied = spark.read.parquet(target).orderBy("trial").toArrow()
    trials = tuple(open_run(tmp_path / "run").rows())
    assert copied["summary"].to_pylist() == [msgspec.json.encode(trial).decode() for trial in trials]
    with pytest.raises(UsageProblem, match="--rows-to nowhere://a: Spark cannot write there"):
        copying(spark, "nowhere://a")("part-00000000.parquet", copied)


class _InterruptedAfter:
    """Runs trials as others do, for a user who presses Ctrl-C after some."""

    def __init__(self, trials: int, runs: SparkRuns) -> None:
        self._trials = trials
        self._runs = runs

    def run(self, planned: Iterable[PlannedTrial | None]) -> Generator[TriedPlan, None, None]:
        with contextlib.closing(self._runs.run(planned)) as tried:
            for _ in range(self._trials):
                yield next(tried)
            raise KeyboardInterrupt

    def shrink(self, failing: Iterable[FailedTrial]) -> Generator[TrialPlan | None, None, None]:
        yield from self._runs.shrink(failing)


# --- commands and clusters ------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_command_that_is_ended_in_the_middle(number: int, tmp_path: Path) -> None:
    """All its trials sleep for ever."""
    (tmp_path / "sleeping.toml").write_text(
        f'name = "sleeping"\nsystem = "{DYING}"\nseed = {SLEEPS}\n[[trial]]\n[[trial]]\nrepeat = 1\n'
    )
    command = [
        sys.executable,
        "-m",
        "barrier_tck.harness.cli.main",
        "campaign",
        "sleeping.toml",
        "--on",
        "local[1]",
    ]
    environment = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(tmp_path)}
    campaign = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        eventually("asleep", lambda: list(tmp_path.glob("barrier-tck-work-trial-*/asleep-*")), 180)
        processes = psutil.Process(campaign.pid).children(recursive=True)
        assert len(processes) >= 4, "the command, Spark, its daemon, a worker and the trial"
        if number == signal.SIGINT:
            os.killpg(campaign.pid, number)  # as a terminal does
        else:
            campaign.send_signal(number)
        campaign.wait(60)
    finally:
        campaign.kill()
        campaign.wait()
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive
    [run] = (tmp_path / "runs").glob("sleeping-*")
    assert open_run(run).campaign.interrupted


@pytest.mark.nightly
@pytest.mark.spark
def test_an_executor_that_is_killed_in_the_middle_loses_no_verdict(tmp_path: Path) -> None:
    wanted = drawn(trials=120, controls=0)
    opened = open_system(EVEN)
    shape = LocalClusterConfig(workers=2, cores_per_worker=1, memory_per_worker_mb=512, quick_start=True)
    with (
        LocalCluster(shape) as cluster,
        session_on(cluster.master_url, "test", cluster.spark_conf()) as session,
    ):
        runs = SparkRuns(opened, session)
        killed = threading.Thread(target=_kill_an_executor, args=(cluster, tmp_path / "spark"))
        killed.start()
        run_campaign(wanted, opened, tmp_path / "spark", spread=Spread(runs))
        killed.join()
    assert_as_in_one_process(wanted, EVEN, tmp_path / "spark", tmp_path / "one")


def _kill_an_executor(cluster: LocalCluster, run: Path) -> None:
    eventually("a verdict", (run / "trials" / "00000" / "record.json").exists, 180)
    os.kill(cluster.executors()[0].pid, signal.SIGKILL)


def test_rows_are_what_they_were(tmp_path: Path) -> None:
    """What Parquet keeps of a trial is the whole of its summary; its columns repeat a part of it."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    run_campaign(drawn(trials=3), open_system(EVEN), tmp_path / "lines")
    trials = tuple(open_run(tmp_path / "lines").rows())
    from barrier_tck.harness.record.trial_rows import make_rows, parts_of

    rows = make_rows(tmp_path, in_parquet=True)
    for trial in trials:
        rows.append(trial)
    rows.flush()
    [part] = parts_of(tmp_path)
    table = pyarrow.read_table(part)
    assert table["trial"].to_pylist() == [0, 1, 2]
    assert table["trace_digest"].to_pylist() == [trial.trace_digest for trial in trials]
    assert table["summary"].to_pylist() == [msgspec.json.encode(trial).decode() for trial in trials]
