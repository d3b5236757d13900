"""A system that is not ours gets the right verdicts, whatever its names and words are: scripts and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.trial_plan import LimitsPlan, RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.operations import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.fake_system import CrashingChecker
from tests.harness.oracle.foreign_system import SALT, WORDINGS, ForeignSystem, Stage, Wording

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
OUTPUT, LATEST, PROGRESS, ORDER = "exactly-once-output", "restored-latest", "progress", "channel-order"

MICRO_BATCHES = frozenset({Capability.WORKER_KILL, Capability.FIFO_CHANNELS, Capability.CHECKPOINTS})
NO_CHECKPOINTS = frozenset({Capability.WORKER_KILL, Capability.FIFO_CHANNELS})
PROGRESS_MS = 100
AGAIN, ONCE = RestartPlan(), RestartPlan("none", attempts_max=0)


@dataclass(frozen=True)
class Scenario:
    """A script, and the verdict that it must get."""

    script: Callable[[Stage], None]
    verdict: Verdict
    checker: str
    """The checker that gives the verdict."""
    clause: str
    """One of the clauses that its finding names."""
    kills_ms: tuple[int, ...] = ()
    """When the only worker is killed, in milliseconds after the first attempt ran."""
    capabilities: frozenset[Capability] = MICRO_BATCHES
    batches: int = 4
    restart: RestartPlan = AGAIN
    own_checker: bool = False
    """Whether one more checker, which crashes, is asked."""


# --- the scripts --------------------------------------------------------------------------------------------


def good(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(4):
        stage.batch(number)
    stage.finishes()


def lossy(stage: Stage) -> None:
    good(stage)
    del stage.output[7]


def duplicating(stage: Stage) -> None:
    good(stage)
    stage.output += stage.rows(1)


def reordering(stage: Stage) -> None:
    """Two records of one reader and one key change places; counts and sums are right for that order."""
    good(stage)
    identifier, key, _, count, total = stage.words.columns
    mine = [row for row in stage.output if row[key] == "k0" and row[identifier] < 100]
    first, second = mine[0], mine[1]
    between = [
        row for row in stage.output if row[key] == "k0" and first[count] <= row[count] <= second[count]
    ]
    between.sort(key=lambda row: int(row[count]))
    weights = [
        now[total] - before for now, before in zip(between, [0, *(r[total] for r in between)], strict=False)
    ]
    weights[0], weights[-1] = weights[-1], weights[0]
    first[identifier], second[identifier] = second[identifier], first[identifier]
    running = 0
    for row, weight in zip(between, weights, strict=True):
        running += weight
        row[total] = running


def stuck(stage: Stage) -> None:
    stage.attempt(1)
    stage.batch(0)
    stage.wait(1_000)
    stage.is_cut_off()


def slow_but_committing(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(3):
        stage.batch(number)
        stage.wait(400)
    stage.batch(3, complete=False)
    stage.output = stage.output[: 3 * 6]
    stage.is_cut_off()


def slow_without_checkpoints(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(3):
        stage.shows(number)
        stage.commits(None)
        stage.wait(30)
    stage.is_cut_off()


def good_without_checkpoints(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(4):
        stage.shows(number)
        stage.commits(None)
    stage.finishes()


def taciturn(stage: Stage) -> None:
    """Says only that it begins and that everything is done."""
    stage.attempt(1)
    for number in range(4):
        stage.shows(number)
    stage.finishes()


def killed_without_checkpoints(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(4):
        stage.shows(number)
        stage.commits(None)
        if number == 1:
            stage.strike()
    stage.finishes()


def in_circles(stage: Stage) -> None:
    """Commits the same batch again after each restart."""
    stage.attempt(1)
    stage.batch(0)
    for number in range(2, 20):
        stage.wait(50)
        stage.commits(0)
        stage.fails(number - 1)
        stage.attempt(number, restored=0)
    stage.is_cut_off()


def empty(stage: Stage) -> None:
    stage.attempt(1)
    stage.finishes()


def dead_after_the_last_commit(stage: Stage) -> None:
    """The driver dies when everything is committed; its successor finds nothing to do."""
    stage.attempt(1)
    for number in range(4):
        stage.batch(number)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=3)
    stage.finishes()


def dead_before_the_last_commit_was_noted(stage: Stage) -> None:
    """The last batch is committed but not noted as complete; it is committed again, which shows nothing new."""
    stage.attempt(1)
    for number in range(3):
        stage.batch(number)
    stage.batch(3, complete=False)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=2)
    stage.commits(3)
    stage.tell(CheckpointCompleted(3))
    stage.finishes()


def gives_up_silently(stage: Stage) -> None:
    """The driver dies in the middle; its successor reads nothing more and says that everything is done."""
    stage.attempt(1)
    for number in range(2):
        stage.batch(number)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=1)
    stage.finishes()


def survived_within_an_attempt(stage: Stage) -> None:
    """A worker is replaced, and the attempt goes on."""
    stage.attempt(1)
    for number in range(2):
        stage.batch(number)
    stage.strike()
    for number in range(2, 4):
        stage.batch(number)
    stage.finishes()


def lossy_within_an_attempt(stage: Stage) -> None:
    survived_within_an_attempt(stage)
    del stage.output[15]


def killed_when_all_was_done(stage: Stage) -> None:
    stage.attempt(1)
    for number in range(4):
        stage.batch(number)
    stage.strike()
    stage.finishes()


def restored_from_an_older_checkpoint(stage: Stage) -> None:
    """Batch 1 was complete; its rows are not shown twice, because the writers know them."""
    stage.attempt(1)
    for number in range(2):
        stage.batch(number)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=0)
    for number in range(2, 4):
        stage.batch(number)
    stage.finishes()


def restored_from_the_first(stage: Stage) -> None:
    """Batches are numbered from 0, and a restore from 0 is not a restore from nothing."""
    stage.attempt(1)
    stage.batch(0)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=0)
    for number in range(1, 4):
        stage.batch(number)
    stage.finishes()


def forgets_the_first(stage: Stage) -> None:
    stage.attempt(1)
    stage.batch(0)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=None)
    for number in range(1, 4):
        stage.batch(number)
    stage.finishes()


def gives_up_as_it_should(stage: Stage) -> None:
    stage.attempt(1)
    stage.batch(0)
    stage.strike()
    stage.fails(1)
    stage.gives_up(Reason.RESTARTS_USED_UP)


def gives_up_for_nothing(stage: Stage) -> None:
    stage.attempt(1)
    stage.batch(0)
    stage.fails(1)
    stage.gives_up(Reason.RESTARTS_USED_UP)


def cannot_read_what_nobody_damaged(stage: Stage) -> None:
    stage.attempt(1)
    stage.batch(0)
    stage.strike()
    stage.fails(1)
    stage.attempt(2, restored=0)
    stage.fails(2)
    stage.gives_up(Reason.CHECKPOINT_UNREADABLE)


def ids_of(*triggered: int, aborted: tuple[int, ...] = ()) -> Callable[[Stage], None]:
    """Return what triggers checkpoints under these ids, of which the second attempt triggers the last one."""

    def script(stage: Stage) -> None:
        stage.attempt(1)
        for number, given in enumerate(triggered[:-1]):
            stage.tell(CheckpointTriggered(given, 1))
            if number < 3:
                stage.batch(number)
        for given in aborted:
            stage.tell(CheckpointAborted(given, 1, Reason.PROCESS_LOST))
        stage.strike()
        stage.fails(1)
        stage.attempt(2, restored=min(2, len(triggered) - 2))
        stage.tell(CheckpointTriggered(triggered[-1], 2))
        for number in range(min(3, len(triggered) - 1), 4):
            stage.batch(number)
        stage.finishes()

    return script


SCENARIOS = {
    "one that was left open goes on under its id": Scenario(
        ids_of(0, 1, 2, 3, 3), VALID, LATEST, "COO-4", kills_ms=(30,)
    ),
    "the next one has the next id": Scenario(
        ids_of(0, 1, 2, 3, 4, aborted=(3,)), VALID, LATEST, "COO-4", kills_ms=(30,)
    ),
    "one that was aborted goes on under its id": Scenario(
        ids_of(0, 1, 2, 3, 3, aborted=(3,)), VALID, LATEST, "COO-4", kills_ms=(30,)
    ),
    "a completed one has its id again": Scenario(
        ids_of(0, 1, 2, 2), INVALID, LATEST, "COO-4", kills_ms=(30,)
    ),
    "an id is below another one": Scenario(
        ids_of(10, 11, 12, 13, 4), INVALID, LATEST, "COO-4", kills_ms=(30,)
    ),
    "good": Scenario(good, VALID, OUTPUT, "SNK-1"),
    "lossy": Scenario(lossy, INVALID, OUTPUT, "SNK-1"),
    "duplicating": Scenario(duplicating, INVALID, OUTPUT, "SNK-1"),
    "reordering": Scenario(reordering, INVALID, ORDER, "BAR-2"),
    "stuck": Scenario(stuck, INVALID, PROGRESS, "REC-6"),
    "slow but committing": Scenario(slow_but_committing, UNKNOWN, PROGRESS, "REC-6"),
    "in circles": Scenario(in_circles, INVALID, PROGRESS, "REC-6"),
    "empty input": Scenario(empty, VALID, PROGRESS, "REC-6", batches=0),
    "dead after the last commit": Scenario(
        dead_after_the_last_commit, VALID, PROGRESS, "REC-6", kills_ms=(30,)
    ),
    "dead before the last commit was noted": Scenario(
        dead_before_the_last_commit_was_noted, VALID, LATEST, "REC-1", kills_ms=(30,)
    ),
    "gives up silently": Scenario(gives_up_silently, INVALID, PROGRESS, "REC-6", kills_ms=(30,)),
    "killed and survived within an attempt": Scenario(
        survived_within_an_attempt, VALID, OUTPUT, "SRC-1", kills_ms=(30,)
    ),
    "killed and lossy within an attempt": Scenario(
        lossy_within_an_attempt, INVALID, OUTPUT, "REC-1", kills_ms=(30,)
    ),
    "restored from an older checkpoint": Scenario(
        restored_from_an_older_checkpoint, INVALID, LATEST, "REC-1", kills_ms=(30,)
    ),
    "restored from the first": Scenario(restored_from_the_first, VALID, LATEST, "REC-1", kills_ms=(30,)),
    "forgets the first": Scenario(forgets_the_first, INVALID, LATEST, "REC-1", kills_ms=(30,)),
    "gave up as its restart strategy says": Scenario(
        gives_up_as_it_should, VALID, PROGRESS, "REC-6", kills_ms=(30,), restart=ONCE
    ),
    "gave up for nothing": Scenario(gives_up_for_nothing, INVALID, PROGRESS, "REC-6", restart=ONCE),
    "gave up over what nobody damaged": Scenario(
        cannot_read_what_nobody_damaged, INVALID, PROGRESS, "REC-6", kills_ms=(30,)
    ),
    "a fault that never fired": Scenario(good, UNKNOWN, "faults-fired", "CAM-3", kills_ms=(5_000,)),
    "a checker that crashes": Scenario(good, UNKNOWN, "crashing", "", own_checker=True),
    "without checkpoints, good": Scenario(
        good_without_checkpoints, VALID, PROGRESS, "REC-6", capabilities=NO_CHECKPOINTS
    ),
    "without checkpoints, taciturn": Scenario(
        taciturn, VALID, PROGRESS, "REC-6", capabilities=NO_CHECKPOINTS
    ),
    "without checkpoints, killed and survived": Scenario(
        killed_without_checkpoints, VALID, OUTPUT, "REC-1", kills_ms=(30,), capabilities=NO_CHECKPOINTS
    ),
    "without checkpoints, slow": Scenario(
        slow_without_checkpoints, UNKNOWN, PROGRESS, "REC-6", capabilities=NO_CHECKPOINTS
    ),
    "without checkpoints, empty": Scenario(
        empty, VALID, PROGRESS, "REC-6", capabilities=NO_CHECKPOINTS, batches=0
    ),
}


# --- their verdicts -----------------------------------------------------------------------------------------


def played(scenario: Scenario, words: Wording, directory: Path) -> TrialRecord:
    plan = TrialPlan(
        workload=WorkloadPlan(words.workload, batches=scenario.batches, batch_records=2),
        limits=LimitsPlan(progress_ms=PROGRESS_MS),
        restart=scenario.restart,
        faults=tuple(ScheduledFault(KillWorker(words.victim), At(time)) for time in scenario.kills_ms),
    )
    system = ForeignSystem(scenario.script, words, scenario.capabilities)
    own = (
        (*checkers_for(filled(plan), system.capabilities), CrashingChecker())
        if scenario.own_checker
        else None
    )
    return run_trial(plan, system, directory, own)


def said_by(record: TrialRecord, checker: str) -> Finding:
    return next(finding for finding in record.findings if finding.checker == checker)


def judgement(record: TrialRecord) -> list[tuple[str, tuple[str, ...], Verdict]]:
    return [(finding.checker, finding.clauses, finding.verdict) for finding in record.findings]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_foreign_system_is_judged_right(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    record = played(scenario, SALT, tmp_path)
    told = [(finding.checker, finding.verdict.value, finding.summary) for finding in record.findings]
    assert record.verdict is scenario.verdict, told
    finding = said_by(record, scenario.checker)
    assert finding.verdict is scenario.verdict, told
    assert not scenario.clause or scenario.clause in finding.clauses, finding
    worse = [line for line in told if Verdict(line[1]).severity >= max(1, scenario.verdict.severity)]
    others = [line for line in worse if line[0] != scenario.checker]
    assert not others or name in SEVERAL, others


def test_the_attempt_that_started_from_an_older_checkpoint_is_named(tmp_path: Path) -> None:
    first = said_by(played(SCENARIOS["forgets the first"], SALT, tmp_path), LATEST).first
    assert first is not None and first.operation is not None
    assert (first.clause, first.attempt, first.checkpoint) == ("REC-1", 2, 0)


SEVERAL = {
    "gives up silently": "the output lacks what was never read",
    "stuck": "what is not committed yet may be missing",
    "slow but committing": "likewise",
    "without checkpoints, slow": "likewise",
    "in circles": "likewise",
    "gave up for nothing": "likewise",
    "gave up over what nobody damaged": "likewise",
}
"""Histories to which more than one checker must object."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_names_and_words_change_no_verdict(name: str, tmp_path: Path) -> None:
    said = {}
    for wording, words in WORDINGS.items():
        directory = tmp_path / wording
        directory.mkdir()
        said[wording] = judgement(played(SCENARIOS[name], words, directory))
    assert said["salt"] == said["like ours"] == said["silent"]


def test_no_alignment_is_reported_for_a_system_without_one(tmp_path: Path) -> None:
    for name, scenario in SCENARIOS.items():
        record = played(scenario, SALT, tmp_path)
        spoken = {clause for finding in record.findings for clause in finding.clauses}
        assert not spoken & {"ALN-1", "ALN-2", "ALO-1", "BAR-1"}, name


def test_a_kill_shows_something_only_if_the_system_went_on_after_it(tmp_path: Path) -> None:
    survived = played(Scenario(survived_within_an_attempt, VALID, "", "", (30,)), SALT, tmp_path)
    assert {"REC-1", "SRC-1"} <= set(said_by(survived, OUTPUT).clauses)
    too_late = played(Scenario(killed_when_all_was_done, VALID, "", "", (30,)), SALT, tmp_path)
    assert not {"REC-1", "SRC-1"} & set(said_by(too_late, OUTPUT).clauses)
    calm = played(SCENARIOS["good"], SALT, tmp_path)
    assert not {"REC-1", "SRC-1"} & set(said_by(calm, OUTPUT).clauses)
