"""How soon strategies find planted bugs: hunts, their rows, and the table; and hunts for a user's bug that learn.

Grain: plans that are drawn and not run; two short hunts on the simulated reference runtime; commands in this process.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barrier_tck.harness.campaign import strategy_measurement
from barrier_tck.harness.campaign.names_reached import names_reached
from barrier_tck.harness.campaign.strategy_measurement import ROWS, Hunted, hunt_once, hunts, table
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.draw.search.strategies import STRATEGIES, StrategyName, new_search
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.bugs.drawn_plans import DrawnPlans
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import execute

SYSTEM = ReferenceSimulated()
BUG = planted_bugs()["AL-01"]


@pytest.mark.long
def test_a_hunt_draws_plans_until_a_checker_of_the_bugs_clause_says_so(tmp_path: Path) -> None:
    for strategy in ("swarm", "guided"):
        found = hunt_once(BUG, strategy, 3, 40, SYSTEM, tmp_path)
        assert found.found and 1 <= found.trials < 40
        assert found.processor_seconds > 0
    assert hunt_once(BUG, "uniform", 3, 1, SYSTEM, tmp_path).trials == 1


def test_a_hunt_that_has_a_row_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, StrategyName, int]] = []

    def once(bug: object, strategy: StrategyName, seed: int, trials_max: int, *_: object) -> Hunted:
        ran.append((BUG.id, strategy, seed))
        return Hunted(BUG.id, strategy, seed, trials_max, True, 10 * seed, 1.0)

    monkeypatch.setattr(strategy_measurement, "hunt_once", once)
    first = list(hunts([BUG], ["uniform"], [1], 50, SYSTEM, tmp_path))
    with (tmp_path / ROWS).open("ab") as file:
        file.write(b'{"id":')  # as left by a process that was killed while writing
    assert list(hunts([BUG], ["uniform"], [1], 50, SYSTEM, tmp_path)) == first and len(ran) == 1
    both = list(hunts([BUG], ["uniform", "guided"], [1, 2], 50, SYSTEM, tmp_path))
    assert [(hunted.strategy, hunted.seed) for hunted in both] == [
        ("uniform", 1),
        ("guided", 1),
        ("uniform", 2),
        ("guided", 2),
    ]
    assert len(ran) == 4
    assert next(hunts([BUG], ["uniform"], [1], 60, SYSTEM, tmp_path)).trials_max == 60
    assert len(ran) == 5
    (tmp_path / ROWS).write_bytes(b"{}\n")
    with pytest.raises(UsageProblem, match="cannot be read"):
        list(hunts([BUG], ["uniform"], [1], 50, SYSTEM, tmp_path))


def test_a_miss_counts_as_more_than_any_find() -> None:
    def rows(*trials: int | None) -> list[Hunted]:
        return [
            Hunted("AL-01", "guided", seed, 50, number is not None, number or 50, 2.0)
            for seed, number in enumerate(trials)
        ]

    (most,) = table(rows(3, 50, None))
    assert (most.found, most.seeds, most.trials_median, most.processor_seconds_median) == (2, 3, 50, 2.0)
    (half,) = table(rows(3, 50, None, None))
    assert (half.found, half.trials_median, half.processor_seconds_median) == (2, None, None)


def test_the_command_prints_a_row_for_each_strategy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(bug: object, strategy: StrategyName, seed: int, trials_max: int, *_: object) -> Hunted:
        return Hunted(BUG.id, strategy, seed, trials_max, strategy == "guided", 7, 1.25)

    monkeypatch.setattr(strategy_measurement, "hunt_once", once)
    asked = ["mutants", "--strategies", "--only", "AL-01", "--seeds", "3", "--trials", "9"]
    assert cli.run([*asked, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| AL-01 | guided | 3 of 3 | 7 | 1.2 |" in printed
    assert "| AL-01 | uniform | 0 of 3 | > 9 |  |" in printed
    assert cli.run([*asked, "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["strategy"] for row in said["table"]] == list(STRATEGIES)
    assert len(said["hunts"]) == 3 * len(STRATEGIES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--strategies", "--patch", "mine.diff"], "--strategies is for planted bugs"),
        (["--strategy", "guided"], "--strategy is for --patch"),
        (["--seeds", "3"], "--seeds is for --strategies"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["mutants", *given, "--out", str(tmp_path)]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.nightly
def test_a_guided_hunt_comes_to_try_more_plans_that_run_the_patched_lines() -> None:
    def ran(strategy: StrategyName) -> int:
        drawn = DrawnPlans(("heavy",), SYSTEM, new_search(strategy, 1, 1))
        told: list[bool | None] = []
        for plan in drawn.plans(iter(told.pop, object())):
            assert not isinstance(plan, NotDrawn)
            counted.append(any(type(one.fault).__name__ == "PartitionExecutor" for one in plan.faults))
            told.append(counted[-1])
            drawn.learn(("every trial reaches this",), True)
            if len(counted) == 120:
                break
        return sum(counted)

    counted: list[bool] = []
    uniform = ran("uniform")
    counted.clear()
    assert ran("guided") > 1.5 * uniform > 0


def test_coverage_changes_no_step_of_a_trial_and_tells_trials_apart(tmp_path: Path) -> None:
    names = []
    for number, plan in enumerate(planted_bugs()[bug].plan for bug in ("AL-01", "SO-02")):
        assert plan is not None
        plain = execute(plan, SYSTEM, tmp_path)
        shown = execute(plan, SYSTEM.showing_coverage(), tmp_path)
        assert shown.record.trace_digest == plain.record.trace_digest
        assert plain.reached == () and len(shown.reached) > 20
        assert set(names_reached(plain)) < set(names_reached(shown)), number
        names.append(set(shown.reached))
    assert names[0] - names[1] and names[1] - names[0]
    assert any(name.startswith("CoordinatorMachine running -- TriggerDue -> running") for name in names[0])
