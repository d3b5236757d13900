"""A certification that was interrupted is gone on with; grain: commands, with nothing behind them that takes time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from barrier_tck.harness.certify.backend import chaos, suite, wire
from barrier_tck.harness.certify.backend import planted_bugs as planted
from barrier_tck.harness.certify.backend.pool import Candidate, CandidateDied, Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import BackendProperty
from barrier_tck.harness.certify.engine.certificate import Certificate, PropertyOutcome
from barrier_tck.harness.certify.engine.certification import INTERRUPTED
from barrier_tck.harness.certify.engine.planted_bugs import PlantedBug
from barrier_tck.harness.certify.spark_store import suite as spark_suite
from barrier_tck.harness.certify.spark_store.properties import PROPERTIES as SPARK_PROPERTIES
from barrier_tck.harness.certify.storage import stage as storage_stage
from barrier_tck.harness.certify.storage.properties import PROPERTIES as STORAGE_PROPERTIES
from barrier_tck.harness.certify.storage.wire import Checked, Loaded
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.record.run_directory import held

CONTRACT = [one.name for one in PROPERTIES if one.level == "contract"]
CRASH = [one.name for one in PROPERTIES if one.level == "crash"]
BEGIN = ("certify", "heap", "--no-strength", "--seed", "7", "--out", "runs")


def ctrl_c() -> None:
    raise KeyboardInterrupt


@dataclass
class Backends:
    """Stands for whatever checks properties of a backend."""

    end: Callable[[], None] = ctrl_c
    """How the certification ends in the property ``at``."""
    at: str = ""
    statuses: dict[str, str] = field(default_factory=dict)
    """Property -> what becomes of it, if it does not pass."""
    capabilities: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    """The properties that were checked."""

    def check(self, one: BackendProperty, *_: object, **__: object) -> tuple[PropertyOutcome, None]:
        if one.name == self.at:
            self.end()
        self.checked.append(one.name)
        status = self.statuses.get(one.name, "passed")
        reason, violated = ("wrong", one.clauses[0]) if status == "failed" else ("", "")
        found = PropertyOutcome(
            *(one.name, one.level, one.clauses, one.text, status, reason),
            examples=3,
            shown=dict.fromkeys(one.clauses, 1),
            violated=violated,
            sequence=("store0.open()",) if violated else (),
        )
        return found, None


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Backends:
    pretended = Backends()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suite, "_loaded", lambda pool: {"name": "b", "capabilities": pretended.capabilities})
    monkeypatch.setattr(suite, "check", pretended.check)
    return pretended


@pytest.fixture
def interrupted(backends: Backends, capsys: pytest.CaptureFixture[str]) -> Path:
    """The run directory of a certificate that Ctrl-C ended in the last property; what it printed is dropped."""
    backends.at = CRASH[-1]
    assert run(BEGIN) == 130
    capsys.readouterr()
    backends.at = ""
    backends.checked.clear()
    return the_run()


def the_run() -> Path:
    (directory,) = Path("runs").iterdir()
    return directory


def certificate_in(directory: Path) -> Certificate:
    return msgspec.json.decode((directory / "certificate.json").read_bytes(), type=Certificate)


def store(directory: Path, certificate: Certificate) -> bytes:
    content = msgspec.json.encode(certificate)
    (directory / "certificate.json").write_bytes(content)
    return content


def words(text: str) -> str:
    return " ".join(text.split())


def test_what_has_ended_is_not_run_again_and_the_certificate_says_when_it_went_on(
    interrupted: Path, backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    before = certificate_in(interrupted)
    assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted)]) == 0
    told = words(capsys.readouterr().out)
    assert backends.checked == [CRASH[-1]]
    ended = len(CONTRACT) + len(CRASH)  # all but one, and that the backend can be made
    assert f"resuming {interrupted}: {ended} properties have ended and are not run again" in told
    assert f"✓ contract {CONTRACT[0]}" not in told
    after = certificate_in(interrupted)
    assert (after.verdict, after.interrupted, after.level, after.seed) == ("certified", False, "crash", 7)
    assert (after.started_at, len(before.resumed), len(after.resumed)) == (before.started_at, 0, 1)
    assert after.seconds >= before.seconds
    assert after.outcomes[:-3] == before.outcomes[:-3]
    assert [one.name for one in after.outcomes] == [one.name for one in before.outcomes]
    page = (interrupted / "certificate.html").read_text()
    assert "went on after an interruption" in page
    assert run(["verify-certificate", str(interrupted)]) == 0


def test_the_command_that_ctrl_c_prints_goes_on(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    backends.at = CONTRACT[3]
    assert run(["certify", "heap", "--level", "contract", "--no-strength", "--out=runs"]) == 130
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to go on: ")]
    backends.at = ""
    backends.checked.clear()
    assert run(shlex.split(line.removeprefix("to go on: "))[1:]) == 0
    assert backends.checked == CONTRACT[3:]
    assert certificate_in(the_run()).level == "contract"


def test_sigterm_is_an_interruption_like_ctrl_c(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    backends.at, backends.end = CRASH[0], lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert run(BEGIN) == 130
    assert "to go on: barrier-tck certify heap" in words(capsys.readouterr().out)
    assert signal.getsignal(signal.SIGTERM) == before
    backends.at = ""
    backends.checked.clear()
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 0
    assert backends.checked == CRASH


def test_a_process_that_is_killed_loses_only_the_property_that_it_checks(backends: Backends) -> None:
    backends.at, backends.end = CRASH[0], lambda: os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if child == 0:
        run(BEGIN)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert certificate_in(the_run()).interrupted
    backends.at = ""
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 0
    assert backends.checked == CRASH
    assert not certificate_in(the_run()).interrupted


def test_a_second_interruption_loses_nothing_of_the_first(interrupted: Path, backends: Backends) -> None:
    before = certificate_in(interrupted)
    backends.at = CRASH[-1]
    assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted)]) == 130
    twice = certificate_in(interrupted)
    assert (twice.interrupted, twice.outcomes) == (True, before.outcomes)
    backends.at = ""
    assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted)]) == 0
    assert len(certificate_in(interrupted).resumed) == 2


def test_a_failure_stays_one_and_what_is_unknown_is_tried_again(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, unknown = CONTRACT[1], CONTRACT[2]
    backends.statuses = {failed: "failed", unknown: "unknown"}
    backends.at = CONTRACT[-1]
    assert run(BEGIN) == 130
    capsys.readouterr()
    backends.at, backends.statuses = "", {}
    backends.checked.clear()
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 1
    assert backends.checked == [unknown, CONTRACT[-1]]
    assert f"✗ contract {failed}" in words(capsys.readouterr().out)
    assert certificate_in(the_run()).verdict == "failed"


def changed_file(certificate: Certificate) -> Certificate:
    name = next(iter(certificate.files))
    return msgspec.structs.replace(certificate, files=certificate.files | {name: "0" * 64})


def with_environment(certificate: Certificate, name: str) -> Certificate:
    return msgspec.structs.replace(certificate, environment=certificate.environment | {name: "0"})


@pytest.mark.parametrize(
    ("make", "options", "told"),
    [
        (lambda one: one, ("--seed", "8"), "it is about 7, and this is 8 (seed)"),
        (lambda one: one, ("--level", "contract"), "it is about crash, and this is contract (level)"),
        (lambda one: one, ("--only", "all-at-once"), "and this is all-at-once (--only)"),
        (changed_file, (), "1 file changed: "),
        (lambda one: msgspec.structs.replace(one, suite_version="0.0.1"), (), "it is about 0.0.1"),
        (lambda one: msgspec.structs.replace(one, target="rocksdb"), (), "it is about rocksdb"),
        (lambda one: msgspec.structs.replace(one, files={}), (), "it names no files"),
        (lambda one: with_environment(one, "python"), (), "it was begun with python 0"),
        (lambda one: with_environment(one, "hypothesis"), (), "it was begun with hypothesis 0"),
        (lambda one: msgspec.structs.replace(one, capabilities=("x",)), (), "the candidate declared x"),
    ],
    ids=[
        *("seed", "level", "only", "file", "suite", "target", "no files", "python", "hypothesis"),
        "capabilities",
    ],
)
def test_nothing_is_mixed_with_what_has_changed(
    make: Callable[[Certificate], Certificate],
    options: tuple[str, ...],
    told: str,
    interrupted: Path,
    backends: Backends,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = store(interrupted, make(certificate_in(interrupted)))
    assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted), *options]) == 3
    assert told in words(capsys.readouterr().err)
    assert backends.checked == []
    assert (interrupted / "certificate.json").read_bytes() == kept


def test_a_machine_with_other_facts_may_go_on(interrupted: Path) -> None:
    store(interrupted, with_environment(certificate_in(interrupted), "hash_seed"))
    assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted)]) == 0


def test_a_backend_that_was_changed_meanwhile_is_refused(
    backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("changing_backend.py").write_text("# before\n")
    target = "changing_backend:Backend"
    backends.at = CRASH[0]
    assert run(["certify", target, "--no-strength", "--out", "runs"]) == 130
    backends.at = ""
    resumed = ["certify", target, "--no-strength", "--resume", str(the_run())]
    Path("changing_backend.py").write_text("# after\n")
    assert run(resumed) == 3
    assert "1 file changed: changing_backend.py" in words(capsys.readouterr().err)
    Path("changing_backend.py").write_text("# before\n")
    assert run(resumed) == 0


def test_a_directory_that_another_command_writes_is_left_alone(
    interrupted: Path, backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(interrupted):
        assert run(["certify", "heap", "--no-strength", "--resume", str(interrupted)]) == 3
    assert "belongs to a command that still runs" in words(capsys.readouterr().err)
    assert backends.checked == []


def test_what_is_complete_or_no_certificate_is_not_gone_on_with(
    interrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = ["certify", "heap", "--no-strength", "--resume"]
    assert run([*resumed, str(interrupted)]) == 0
    assert run([*resumed, str(interrupted)]) == 3
    assert "is complete, nothing is left to run: certified" in words(capsys.readouterr().err)
    assert run([*resumed, "runs"]) == 3
    assert "runs has no certificate.json" in words(capsys.readouterr().err)


def test_who_begins_anew_is_told_of_an_interrupted_one(
    interrupted: Path, backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(BEGIN) == 0
    assert f"--resume {interrupted} would go on with it instead" in words(capsys.readouterr().out)
    assert backends.checked[0] == CONTRACT[0]
    assert run(BEGIN) == 0
    assert "--resume" not in capsys.readouterr().out, "the last one was not interrupted"


def test_planted_bugs_that_were_run_are_not_run_again(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hunted: list[str] = []
    last = planted.PLANTED_BUGS[-1].id

    def hunt(bug: PlantedBug, seed: int) -> PropertyOutcome:
        if bug.id == last and not hunted.count(last):
            hunted.append(last)
            raise KeyboardInterrupt
        hunted.append(bug.id)
        status = {planted.PLANTED_BUGS[0].id: "passed", planted.PLANTED_BUGS[1].id: "unknown"}
        return PropertyOutcome("", "contract", (), "", status.get(bug.id, "failed"))

    monkeypatch.setattr(planted, "hunt_planted", hunt)
    assert run(["certify", "heap", "--out", "runs"]) == 130
    kept = certificate_in(the_run())
    assert (kept.verdict, kept.interrupted, kept.strength.measured) == ("certified", False, False)
    assert len(kept.strength.caught) == len(planted.PLANTED_BUGS) - 3
    backends.checked.clear()
    hunted.clear()
    hunted.append(last)
    capsys.readouterr()
    assert run(["certify", "heap", "--resume", str(the_run())]) == 0
    assert f", nor are {len(planted.PLANTED_BUGS) - 2} planted bugs" in words(capsys.readouterr().out)
    assert backends.checked == []
    assert hunted[1:] == [planted.PLANTED_BUGS[1].id, last]
    strength = certificate_in(the_run()).strength
    assert (strength.measured, strength.missed[0]) == (True, planted.PLANTED_BUGS[0].id)
    assert len(strength.caught) + len(strength.missed) == len(planted.PLANTED_BUGS)


class Trials:
    """Stands for candidates' processes in which trials are run, all of them valid."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        """The system of each trial that was run."""
        self.end_at = -1
        """Ctrl-C comes in the trial with this number, counted from 0."""
        self.verdicts: dict[int, str] = {}
        """Number of a trial, of all that were run -> its verdict, if it is not valid."""
        self.killed = 0
        self.asked_to_close = 0

    def call(self, request: wire.AnyRequest) -> object:
        self.asked_to_close += isinstance(request, wire.CloseSystemsRequest)
        if not isinstance(request, wire.TrialRequest):
            return None
        number = len(self.ran)
        if number == self.end_at:
            raise KeyboardInterrupt
        self.ran.append(request.system)
        fired = 1 + len(request.plan) % 3
        judged = wire.Judged(self.verdicts.get(number, "valid"), fired, 0, shown=("SNK-1", "ALN-2"))
        return msgspec.to_builtins(judged)

    def kill(self) -> None:
        self.killed += 1


SIMULATED = 6
"""How many trials are run in the simulator here: to draw more takes seconds."""
CHAOS = ("certify", "heap", "--level", "chaos", "--no-strength", "--seed", "7", "--out", "runs")


@pytest.fixture
def trials(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> Trials:
    pretended = Trials()
    monkeypatch.setattr(chaos, "SIMULATED_TRIALS", SIMULATED)
    monkeypatch.setattr(chaos, "require_spark", lambda: SimpleNamespace(version="17.0.1"))
    monkeypatch.setattr(Pool, "take", lambda pool: pretended)
    monkeypatch.setattr(Pool, "give_back", lambda pool, candidate: None)
    return pretended


def but_for_times(certificate: Certificate) -> Certificate:
    outcomes = [
        msgspec.structs.replace(one, seconds=0.0, processor_seconds=0.0) for one in certificate.outcomes
    ]
    return msgspec.structs.replace(
        certificate, outcomes=tuple(outcomes), seconds=0.0, started_at="", resumed=(), log=""
    )


@pytest.mark.parametrize("end_at", [0, 3, SIMULATED + 1])
def test_trials_of_chaos_that_were_valid_are_not_run_again_and_the_certificate_is_the_same(
    end_at: int, trials: Trials, backends: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(CHAOS) == 0
    whole, ran = certificate_in(the_run()), len(trials.ran)
    assert ran == SIMULATED + 2 and whole.level == "chaos"
    shutil.rmtree("runs")
    trials.ran.clear()
    trials.end_at = end_at
    assert run(CHAOS) == 130
    assert trials.killed == 1, "the reply of the trial that was under way is not waited for"
    first = the_run()
    kept = sum(len(one.trials) for one in certificate_in(first).outcomes)
    assert kept == end_at % SIMULATED
    capsys.readouterr()
    trials.end_at = -1
    backends.checked.clear()
    assert run(["certify", "heap", "--no-strength", "--resume", str(first)]) == 0
    told = words(capsys.readouterr().out)
    assert (f"nor {'is' if kept == 1 else 'are'} {kept} trial" in told) == (kept > 0)
    assert backends.checked == []
    assert len(trials.ran) == ran, "each was run once"
    after = certificate_in(first)
    assert but_for_times(after) == but_for_times(whole)
    assert not any(one.trials for one in after.outcomes)


def test_an_interruption_before_chaos_goes_on_loses_no_trial(trials: Trials, backends: Backends) -> None:
    """What is unknown is tried again before the trials, and may be interrupted again."""
    backends.statuses = {CONTRACT[2]: "unknown"}
    trials.end_at = 5
    assert run(CHAOS) == 130
    backends.at = CONTRACT[2]
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 130
    assert [len(one.trials) for one in certificate_in(the_run()).outcomes if one.trials] == [5]
    backends.at, backends.statuses, trials.end_at = "", {}, -1
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 0
    assert len(trials.ran) == SIMULATED + 2


def test_a_trial_without_a_verdict_is_tried_again_and_those_before_it_are_not(trials: Trials) -> None:
    trials.verdicts = {4: "unknown"}
    assert run(CHAOS) == 2
    assert len(trials.ran) == 5
    trials.verdicts = {}
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 0
    assert len(trials.ran) == 5 + SIMULATED - 4 + 2


def test_a_candidate_that_another_program_ends_amid_a_trial_is_not_blamed(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(request: wire.AnyRequest) -> object:
        if isinstance(request, wire.TrialRequest):
            raise CandidateDied("trial() ended the process with SIGTERM", from_outside=True)
        return None

    monkeypatch.setattr(trials, "call", ended)
    assert run(CHAOS) == 2
    (outcome,) = [one for one in certificate_in(the_run()).outcomes if one.name == chaos.SIMULATED]
    assert (outcome.status, "SIGTERM" in outcome.reason) == ("unknown", True)


def test_trials_of_other_plans_are_run(trials: Trials) -> None:
    trials.end_at = 5
    assert run(CHAOS) == 130
    kept = certificate_in(the_run())
    others = [
        msgspec.structs.replace(
            one, trials=tuple(msgspec.structs.replace(trial, plan="0" * 64) for trial in one.trials)
        )
        for one in kept.outcomes
    ]
    store(the_run(), msgspec.structs.replace(kept, outcomes=tuple(others)))
    trials.end_at = -1
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 0
    assert len(trials.ran) == 5 + SIMULATED + 2


def test_with_another_java_trials_on_spark_are_not_gone_on_with(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials.end_at = SIMULATED + 1
    assert run(CHAOS) == 130
    monkeypatch.setattr(chaos, "require_spark", lambda: SimpleNamespace(version="21"))
    assert run(["certify", "heap", "--no-strength", "--resume", str(the_run())]) == 3
    assert "it was begun with java 17.0.1, and here is 21" in words(capsys.readouterr().err)


@pytest.mark.long
def test_a_signal_amid_a_trial_of_a_real_backend_loses_that_trial_only(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "SIMULATED_TRIALS", 4)
    asked: list[str] = []
    post = Candidate.post

    def posted(candidate: Candidate, request: wire.AnyRequest) -> None:
        post(candidate, request)
        if isinstance(request, wire.TrialRequest):
            asked.append(request.directory)
            if len(asked) == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Candidate, "post", posted)
    options = ("--level", "chaos", "--no-spark", "--no-strength", "--only", chaos.SIMULATED)
    assert run(["certify", "heap", *options, "--seed", "20260101", "--out", "runs"]) == 130
    first = certificate_in(the_run())
    assert [len(one.trials) for one in first.outcomes if one.trials] == [2]
    assert run(["certify", "heap", *options, "--resume", str(the_run())]) == 0
    assert len(asked) == 3 + 2
    (outcome,) = [one for one in certificate_in(the_run()).outcomes if one.name == chaos.SIMULATED]
    assert (outcome.status, outcome.examples) == ("passed", 4)
    assert outcome.processor_seconds > 0


class SparkStores:
    """Stands for the JVM in which a Spark state store is certified."""

    def __init__(self, target: object, call_s: float, total_s: float) -> None:
        self.log, self.started = "", 1

    def close(self) -> None: ...


STORE = ("certify", "spark:hdfs", "--no-strength", "--seed", "7")


@pytest.fixture
def spark_stores(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> Backends:
    monkeypatch.setattr(spark_suite, "StoreProcesses", SparkStores)
    monkeypatch.setattr(spark_suite, "_require_provider", lambda processes: None)
    monkeypatch.setattr(spark_suite, "lacks", lambda processes, layout: "")
    monkeypatch.setattr(spark_suite, "try_commit_ids", lambda processes: "")
    monkeypatch.setattr(spark_suite, "has_java_compiler", lambda: True)
    monkeypatch.setattr(spark_suite, "find_java", lambda: SimpleNamespace(version="17.0.1"))
    monkeypatch.setattr(spark_suite, "check", backends.check)
    return backends


@pytest.mark.parametrize("after", [1, 5, len(SPARK_PROPERTIES) - 1])
def test_a_spark_state_store_goes_on_after_the_properties_that_have_ended(
    after: int, spark_stores: Backends, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*STORE, "--out", "runs"]) == 0
    whole, order = certificate_in(the_run()), [*spark_stores.checked]
    assert len(order) == len(SPARK_PROPERTIES)
    shutil.rmtree("runs")
    spark_stores.checked.clear()
    spark_stores.at = order[after]
    assert run([*STORE, "--out", "runs"]) == 130
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to go on: ")]
    spark_stores.at = ""
    assert run(shlex.split(line.removeprefix("to go on: "))[1:]) == 0
    assert spark_stores.checked == order, "each was checked once"
    assert but_for_times(certificate_in(the_run())) == but_for_times(whole)
    assert len(certificate_in(the_run()).resumed) == 1


@pytest.mark.parametrize(
    ("options", "java", "told"),
    [
        ((), "21", "it was begun with java 17.0.1, and here is 21"),
        (("--conf", "spark.sql.a=b"), "17.0.1", "and this is spark:hdfs --conf spark.sql.a=b (target)"),
    ],
)
def test_a_spark_state_store_that_is_set_otherwise_is_not_gone_on_with(
    options: tuple[str, ...],
    java: str,
    told: str,
    spark_stores: Backends,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark_stores.at = SPARK_PROPERTIES[3].name
    assert run([*STORE, "--out", "runs"]) == 130
    monkeypatch.setattr(spark_suite, "find_java", lambda: SimpleNamespace(version=java))
    assert run([*STORE, *options, "--resume", str(the_run())]) == 3
    assert told in words(capsys.readouterr().err)


class EndsOnce:
    """Stands for a storage's process, which passes everything, but the first time Ctrl-C comes at the last property."""

    places: list[str]
    checked: list[str]
    ends: bool

    def __init__(self, target: str, location: str) -> None:
        self.places.append(location)
        Path(location).mkdir(parents=True)

    def loaded(self, timeout_s: float) -> Loaded:
        return Loaded("none", outlives_its_process=True)

    def check(self, name: str, timeout_s: float) -> Checked:
        if name == STORAGE_PROPERTIES[-1].name and self.ends:
            raise KeyboardInterrupt
        self.checked.append(name)
        clauses = next(one.clauses for one in STORAGE_PROPERTIES if one.name == name)
        return Checked(name, passed=True, shown=dict.fromkeys(clauses, 1))

    def kill(self) -> str:
        return ""


@pytest.mark.parametrize("at", [(), ("--at", "elsewhere")])
def test_a_storage_goes_on_at_another_place(
    at: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage_stage, "StorageProcess", EndsOnce)
    monkeypatch.setattr(EndsOnce, "places", [], raising=False)
    monkeypatch.setattr(EndsOnce, "checked", [], raising=False)
    monkeypatch.setattr(EndsOnce, "ends", True, raising=False)
    assert run(["certify-storage", "files", "--no-strength", "--out", "runs", *at]) == 130
    before = [*EndsOnce.places]
    assert "to go on: barrier-tck certify-storage files" in words(capsys.readouterr().out)
    assert INTERRUPTED in (the_run() / "certificate.json").read_text()
    monkeypatch.setattr(EndsOnce, "ends", False)
    monkeypatch.setattr(EndsOnce, "checked", [])
    resumed = ["certify-storage", "files", "--no-strength", "--resume", str(the_run()), *at]
    assert run(resumed) == 0
    assert EndsOnce.checked == [STORAGE_PROPERTIES[-1].name]
    assert not set(EndsOnce.places[len(before) :]) & set(before)
    after = certificate_in(the_run())
    assert (after.verdict, after.interrupted) == ("certified", False)
    assert (run(resumed), "is complete" in capsys.readouterr().err) == (3, True)
