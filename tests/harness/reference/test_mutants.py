"""Every planted bug is caught, and the product passes the same plans (CER-2)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.campaign.mutant_hunt import hunt
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants.mutant import Mutant
from barrier_tck.harness.reference.mutants.mutant_catalogue import MUTANTS, components_of
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import run_trial

DOCUMENT = Path(__file__).parents[3] / "docs" / "mutants.md"
PLANS = Path(__file__).parents[2] / "plans" / "planted"
"""The smallest plan that shows each bug, as ``barrier-tck mutants`` saved it."""
SEEDS = 10
"""Seeds to try for a stored plan: another one may give the interleaving that its own gave when it was stored."""
HUNTED_QUICKLY = ("AL-01", "UC-03", "CO-01", "SO-01", "BE-01", "LO-05", "CL-03", "UC-13", "SV-02", "FI-02")
"""Bugs that are hunted and shrunk for every merge; for the others their stored plan speaks there."""
NEVER_INVALID = ("faults-fired",)
"""Checkers of the harness itself: they never call a system INVALID."""


def documented() -> dict[str, list[str]]:
    """Return the cells of the document's table by id."""
    lines = (line.strip("| ").split(" | ") for line in DOCUMENT.read_text().splitlines())
    return {cells[0]: cells for cells in lines if cells[0] in MUTANTS}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.id, marks=() if mutant.id in HUNTED_QUICKLY else pytest.mark.nightly)
        for mutant in MUTANTS.values()
    ],
)
def test_a_planted_bug_is_caught_by_its_clause_and_shrinks_and_the_product_passes(
    mutant: Mutant, tmp_path: Path
) -> None:
    system = ReferenceSimulated()
    result = hunt(mutant, system, tmp_path)
    assert result.caught, f"{mutant.id} survived {result.trials} plans"
    assert result.replays
    assert (result.checker, str(result.faults)) == tuple(documented()[mutant.id][5:7])
    (plan,) = islice(mutant.plans("simulated"), result.trials - 1, result.trials)
    product = run_trial(msgspec.structs.replace(plan, mutant=None), system, tmp_path)
    assert product.verdict is Verdict.VALID, product.findings


@pytest.mark.parametrize("identifier", MUTANTS)
def test_the_stored_smallest_plan_of_a_planted_bug_shows_it_and_the_product_passes(
    identifier: str, tmp_path: Path
) -> None:
    stored = PLANS / f"{identifier}.json"
    assert stored.is_file(), f"copy the plan that 'barrier-tck mutants --only {identifier}' saves to {stored}"
    plan, system = read_plan(stored), ReferenceSimulated()
    assert (plan.mutant, str(len(plan.faults))) == (identifier, documented()[identifier][6])
    for seed in range(plan.seed, plan.seed + SEEDS):
        tried = msgspec.structs.replace(plan, seed=seed)
        record = run_trial(tried, system, tmp_path)
        product = run_trial(msgspec.structs.replace(tried, mutant=None), system, tmp_path)
        # UNKNOWN: a fault may be aimed at what only the bug does.
        assert product.verdict is not Verdict.INVALID, product.findings
        invalid = [finding for finding in record.findings if finding.verdict is Verdict.INVALID]
        if documented()[identifier][5] in {
            finding.checker for finding in invalid if MUTANTS[identifier].clause in finding.clauses
        }:
            return
    pytest.fail(f"no seed shows {identifier} any more; save its smallest plan again")


def test_there_is_no_stored_plan_of_a_bug_that_nobody_plants() -> None:
    assert sorted(path.stem for path in PLANS.iterdir()) == sorted(MUTANTS)


def test_every_checker_has_a_planted_bug_that_it_catches_first() -> None:
    plans = [plan for mutant in MUTANTS.values() for plan in islice(mutant.plans("simulated"), 1)]
    system = ReferenceSimulated()
    checkers = {checker.name for plan in plans for checker in checkers_for(plan, system.capabilities)}
    caught_by = {cells[5] for cells in documented().values()}
    # No checker: what became of a run that gave no history to judge.
    assert sorted(checkers - set(NEVER_INVALID)) == sorted(caught_by - {"trial-ran"})


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_a_mutant_says_what_it_breaks(mutant) -> None:  # type: ignore[no-untyped-def]
    assert mutant.clause in CLAUSES
    assert mutant.description.endswith(".")
    assert mutant.source
    assert [plan.mutant for plan in islice(mutant.plans("simulated"), 3)] == [mutant.id] * 3


def test_planted_bugs_on_spark_are_also_about_joins_chains_sinks_loops_and_all_modes() -> None:
    plans = [mutant.spark_plan for mutant in MUTANTS.values() if mutant.spark_plan is not None]
    assert len(plans) >= 14
    assert {plan.job.shape for plan in plans} >= {"joined", "chained", "loop", "exchange"}
    assert {plan.checkpoints.mode for plan in plans} == {"exactly_once", "at_least_once"}
    assert {plan.checkpoints.protocol for plan in plans} == {"barriers", "chandy_lamport"}


def test_an_unknown_mutant_or_backend_is_refused() -> None:
    with pytest.raises(UsageProblem, match="AL-01"):
        components_of(TrialPlan(mutant="AL-99"))
    with pytest.raises(UsageProblem, match="heap"):
        components_of(TrialPlan(state_backend="heep"))
    with pytest.raises(UsageProblem, match="broken heap backend"):
        components_of(TrialPlan(mutant="BE-01", state_backend="rocksdb"))


def test_a_plan_chooses_the_state_backend_also_for_a_mutant() -> None:
    plain = components_of(TrialPlan(state_backend="rocksdb"))
    assert plain.state_backend().name == "rocksdb"
    mutant = components_of(TrialPlan(mutant="AL-01", state_backend="rocksdb"))
    assert mutant.state_backend().name == "rocksdb"
    assert mutant.subtask_driver is MUTANTS["AL-01"].components.subtask_driver
    outside = components_of(TrialPlan(state_backend="examples.minimal_backend.backend:SortedDictBackend"))
    assert outside.state_backend().name == "sorted-dict"
