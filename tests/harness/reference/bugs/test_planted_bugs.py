"""Every planted bug is caught, and the product passes the same plans (CER-2)."""

from __future__ import annotations

import shutil
from importlib.resources import files
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.campaign.mutant_hunt import choose, hunt
from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs import catalogue, page
from barrier_tck.harness.reference.bugs.bug_file import PlantedBug, read_bug
from barrier_tck.harness.reference.bugs.catalogue import bug_of, bugs_of_runtime, controls, planted_bugs
from barrier_tck.harness.reference.bugs.replacement import check
from barrier_tck.harness.reference.planned_components import components_of
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled

PLANS = Path(__file__).parents[3] / "plans" / "planted"
"""Smallest plans that show bugs, as ``barrier-tck mutants`` once saved them."""
SEEDS = 10
"""Seeds to try for a stored plan: another one may give the interleaving that its own gave when it was stored."""
PRODUCT_SEEDS = 20
"""Seeds with which the unmodified product must pass the plan of each bug."""
HUNTED_QUICKLY = ("AL-01", "SV-02")
"""Bugs that are hunted and shrunk for every merge; for the others their plans speak there."""
LONG_TO_SHOW = (
    "DY-01",
    "EL-07",
    "FI-02",
    "FI-06",
    "HD-01",
    "HD-04",
    "HD-05",
    "HD-06",
    "IN-06",
    "LO-07",
    "LO-22",
    "LO-23",
    "LP-02",
    "RC-01",
    "RK-02",
    "RS-08",
    "RS-10",
    "RS-15",
    "SV-01",
    "SV-10",
    "SV-11",
    "SV-17",
    "SV-18",
    "UC-05",
    "UC-07",
    "UC-13",
    "UR-01",
    "UR-02",
    "UR-03",
    "UR-04",
)
"""Bugs whose plans take seconds, or many seeds."""
NEVER_INVALID = ("faults-fired",)
"""Checkers of the harness itself: they never call a system INVALID."""
BUGS = bugs_of_runtime()


@pytest.mark.parametrize("identifier", planted_bugs())
def test_a_planted_bug_fits_the_product_and_says_what_it_breaks(identifier: str) -> None:
    bug = planted_bugs()[identifier]
    check(bug.changes)
    assert bug.clause in CLAUSES
    assert bug.file.origin
    assert bug.file.shown_by is not None or bug.file.checkers
    drawn = bug.file.drawn
    assert {drawn.profile if drawn else "standard", *bug.file.profiles} <= {one.name for one in PROFILES}
    assert [plan.mutant for plan in islice(bug.plans("simulated"), 3)] in ([bug.id] * 3, [])


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(
            bug, id=bug.id, marks=pytest.mark.long if bug.id in HUNTED_QUICKLY else pytest.mark.nightly
        )
        for bug in BUGS.values()
    ],
)
def test_a_planted_bug_is_caught_by_its_clause_and_shrinks_and_the_product_passes(
    bug: PlantedBug, tmp_path: Path
) -> None:
    system = ReferenceSimulated()
    result = hunt(bug, system, tmp_path)
    assert result.caught, f"{bug.id} survived {result.trials} plans"
    assert result.replays
    assert result.checker in bug.file.checkers
    (plan,) = islice(bug.plans("simulated"), result.trials - 1, result.trials)
    product = run_trial(msgspec.structs.replace(plan, mutant=None), system, tmp_path)
    assert product.verdict is Verdict.VALID, product.findings


def _shown(bug: PlantedBug, plan: TrialPlan, directory: Path) -> bool:
    """Return whether one of its checkers says INVALID by its clause; the product must not be INVALID with that plan."""
    system = ReferenceSimulated()
    record = run_trial(bug.planted_in(plan), system, directory)
    if not any(
        finding.verdict is Verdict.INVALID
        and finding.checker in bug.file.checkers
        and bug.clause in finding.clauses
        for finding in record.findings
    ):
        return False
    product = run_trial(msgspec.structs.replace(plan, mutant=None), system, directory)
    # UNKNOWN: a fault may be aimed at what only the bug does.
    assert product.verdict is not Verdict.INVALID, product.findings
    return True


@pytest.mark.parametrize(
    "identifier",
    [pytest.param(name, marks=pytest.mark.long if name in LONG_TO_SHOW else ()) for name in BUGS],
)
def test_the_plan_of_a_planted_bug_shows_it_and_the_product_passes(identifier: str, tmp_path: Path) -> None:
    bug = BUGS[identifier]
    assert any(_shown(bug, plan, tmp_path) for plan in bug.plans("simulated")), f"no seed shows {identifier}"


@pytest.mark.nightly
@pytest.mark.parametrize("identifier", BUGS)
def test_the_product_passes_the_plan_of_a_planted_bug_with_every_seed(
    identifier: str, tmp_path: Path
) -> None:
    """A plan in which nothing can be right, such as a time limit that no checkpoint keeps, blames the product."""
    system, plan = ReferenceSimulated(), BUGS[identifier].plan
    assert plan is not None
    for seed in range(PRODUCT_SEEDS):
        product = run_trial(msgspec.structs.replace(plan, seed=seed), system, tmp_path)
        assert product.verdict is not Verdict.INVALID, (seed, product.findings)


@pytest.mark.nightly
@pytest.mark.parametrize("identifier", sorted(path.stem for path in PLANS.iterdir()))
def test_the_stored_smallest_plan_of_a_planted_bug_still_shows_it(identifier: str, tmp_path: Path) -> None:
    plan = read_plan(PLANS / f"{identifier}.json")
    assert plan.mutant == identifier
    seeds = range(plan.seed, plan.seed + SEEDS)
    assert any(_shown(BUGS[identifier], msgspec.structs.replace(plan, seed=seed), tmp_path) for seed in seeds)


def test_every_checker_has_a_planted_bug_that_it_catches_first() -> None:
    plans = [plan for bug in BUGS.values() for plan in islice(bug.plans("simulated"), 1)]
    system = ReferenceSimulated()
    checkers = {checker.name for plan in plans for checker in checkers_for(filled(plan), system.capabilities)}
    caught_by = {bug.file.checkers[0] for bug in BUGS.values()}
    # No checker: what became of a run that gave no history to judge.
    assert sorted(checkers - set(NEVER_INVALID)) == sorted(caught_by - {"trial-ran"})


def test_planted_bugs_on_spark_are_also_about_joins_chains_sinks_loops_and_all_modes() -> None:
    plans = [bug.spark_plan for bug in BUGS.values() if bug.spark_plan is not None]
    assert len(plans) >= 14
    assert {plan.job.shape for plan in plans} >= {"joined", "chained", "loop", "exchange", "interval"}
    assert {plan.checkpoints.mode for plan in plans} == {"exactly_once", "at_least_once", "unaligned"}
    assert {plan.checkpoints.protocol for plan in plans} == {"barriers", "chandy_lamport"}


def test_every_way_to_break_recovery_is_a_planted_bug() -> None:
    assert set(controls()) == set(BrokenRecovery)


def test_an_unknown_bug_or_backend_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no planted bug 'AL-99'"):
        bug_of(TrialPlan(mutant="AL-99"))
    with pytest.raises(UsageProblem, match="heap"):
        components_of(TrialPlan(state_backend="heep"))


def test_a_plan_chooses_the_state_backend() -> None:
    assert components_of(TrialPlan(state_backend="rocksdb")).state_backend().name == "rocksdb"
    outside = components_of(TrialPlan(state_backend="examples.minimal_backend.backend:SortedDictBackend"))
    assert outside.state_backend().name == "sorted-dict"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("[[change]]\nat = 'ids.py'\nafter = 'x = 1'", "clause"),
        ("clause = 'BAR-1'\ndescription = 'It does.'", "at least one"),
        ("clause = 'BAR-1'\ndescription = 'It does.'\nplam = {}", "plam"),
        (
            "clause = 'BAR-1'\ndescription = 'It does'\n[[change]]\nat = 'ids.py'\nafter = 'x = 1'",
            "full stop",
        ),
        (
            "clause = 'BAR-1'\ndescription = 'It.'\nplan = { workload = { batchez = 3 } }\n[[change]]\nat = 'ids.py'",
            "batchez",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(wrong: str, problem: str) -> None:
    with pytest.raises(UsageProblem, match=problem):
        read_bug(f"id = 'ZZ-01'\n{wrong}", "ZZ-01.toml")


@pytest.mark.long
def test_a_bug_is_added_with_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As CONTRIBUTING says: the catalogue, its page, the command and the trials know it from its file alone."""
    folder = tmp_path / "bugs"
    shutil.copytree(str(files(catalogue.__package__)), folder)
    example = (folder / "SI-02.toml").read_text()
    (folder / "ZZ-01.toml").write_text(example.replace('id = "SI-02"', 'id = "ZZ-01"'))
    monkeypatch.setattr(catalogue, "files", lambda _package: folder)
    planted_bugs.cache_clear()
    try:
        bug = planted_bugs()["ZZ-01"]
        assert "| ZZ-01 | Recovery fails on a transaction" in page.as_markdown()
        assert hunt(
            choose(dict(bugs_of_runtime()), ["ZZ-01"], "simulated")[0], ReferenceSimulated(), tmp_path
        ).caught
        assert bug.worlds == ("simulated", "spark")
    finally:
        planted_bugs.cache_clear()
