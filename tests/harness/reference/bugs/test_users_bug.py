"""A bug of somebody's own: its plans carry it, its names are checked, and nothing else than its text identifies it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import OF_WORLD
from barrier_tck.harness.draw.search import search
from barrier_tck.harness.draw.search.search import Uniform
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs import users_bug as module
from barrier_tck.harness.reference.bugs.catalogue import broken, bugs_of_runtime, controls, digest_of
from barrier_tck.harness.reference.bugs.patched_copy import sources_with
from barrier_tck.harness.reference.bugs.users_bug import UsersBug, read_patch, users_bug
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from tests.harness.reference.bugs.test_diff import DIFF

FILE = """\
id = "MY-01"
clause = "SNK-1"
description = "The first transaction is not committed again."

[[change]]
at = "operators/sinks.py::TransactionalFileSink._recover_and_commit"
before = "self.commit(transactions)"
after = "self.commit(transactions[1:])"
"""


def read(tmp_path: Path, text: str, seed: int = 0) -> UsersBug:
    path = tmp_path / "mine.txt"
    path.write_text(text)
    return users_bug(read_patch(path), path, ReferenceSimulated(), 5, Uniform(seed))


@pytest.mark.long
@pytest.mark.parametrize("text", [FILE, DIFF], ids=["file", "diff"])
def test_every_plan_carries_the_patch_and_so_the_bug(text: str, tmp_path: Path) -> None:
    bug = read(tmp_path, text)
    plans = [bug.planted_in(plan) for plan in bug.plans("simulated") if not isinstance(plan, NotDrawn)]
    assert len(plans) == 5
    for plan in plans:
        assert plan.patch is not None
        (file,) = sources_with(plan.patch, "a plan").items()
        assert file[0] == "operators/sinks.py"
        assert "transactions[1:]" in file[1]


@pytest.mark.long
def test_plans_are_drawn_from_the_seed_that_is_given(tmp_path: Path) -> None:
    first, again, other = (list(read(tmp_path, FILE, seed).plans("simulated")) for seed in (1, 1, 100))
    assert first == again != other


def test_on_spark_plans_of_profiles_for_spark_are_tried(tmp_path: Path) -> None:
    bug = read(tmp_path, FILE)
    assert list(islice(bug.plans("spark"), 3)) != list(islice(bug.plans("simulated"), 3))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("MY-01", "../evil", "id"),
        ("MY-01", "a/b", "id"),
        ("MY-01", "..", "id"),
        ("SNK-1", "NOPE-9", "no checker covers clause 'NOPE-9'"),
        ("SNK-1", "SNK-l", "did you mean"),
        ('clause = "SNK-1"', 'clause = "SNK-1"\ncheckers = ["nosuch"]', "no checker 'nosuch'"),
        (FILE, "  \n", "is empty"),
    ],
)
def test_what_could_never_be_caught_or_saved_is_refused(
    old: str, new: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageProblem, match=problem):
        read(tmp_path, FILE.replace(old, new))


def test_a_checker_speaks_for_the_clause_of_every_planted_bug_that_campaigns_find(tmp_path: Path) -> None:
    for bug in bugs_of_runtime().values():
        read(tmp_path, FILE.replace("SNK-1", bug.clause))


def test_patches_that_differ_anywhere_have_different_digests() -> None:
    assert digest_of(FILE) != digest_of(FILE + "#")
    assert digest_of("#" + FILE) != digest_of(FILE)
    middle = len(FILE) // 2
    assert digest_of(FILE) != digest_of(FILE[:middle] + "#" + FILE[middle:])


def test_a_control_takes_the_place_of_no_bug() -> None:
    for how, control in controls().items():
        made = broken(TrialPlan(), how)
        assert made is not None
        assert made.mutant == control.id
        assert broken(TrialPlan(patch=DIFF), how) is None
        assert broken(TrialPlan(mutant="SI-02"), how) is None


def test_a_plan_that_cannot_be_drawn_does_not_end_the_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sometimes(seed: int, profile: Profile, *_: object) -> TrialPlan:
        if seed % 3 == 0:
            raise AssertionError(f"seed {seed}")
        return TrialPlan(seed=seed, note=profile.name)

    monkeypatch.setattr(search, "draw_plan", sometimes)
    plans = list(read(tmp_path, DIFF, 7).plans("simulated"))
    assert [str(plan.error) if isinstance(plan, NotDrawn) else plan.seed for plan in plans] == [
        7,
        8,
        "seed 9",
        10,
        11,
    ]


def test_profiles_that_do_not_run_the_patched_lines_have_their_turn_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        search, "draw_plan", lambda seed, profile, *_: TrialPlan(seed=seed, note=profile.name)
    )
    drawn: list[TrialPlan] = []
    monkeypatch.setattr(module, "ran_since_asked", lambda: drawn[-1].note == "incremental")
    path = tmp_path / "mine.txt"
    bug = users_bug(FILE, path, ReferenceSimulated(), 200, Uniform(7))
    for plan in bug.plans("simulated"):
        assert not isinstance(plan, NotDrawn)
        drawn.append(plan)
        bug.ran_since_asked()
    profiles = OF_WORLD["simulated"]
    counts = [sum(plan.note == name for plan in drawn) for name in profiles]
    assert [plan.note for plan in drawn[: len(profiles)]] == list(profiles)
    assert counts[profiles.index("incremental")] > 6 * max(
        number for number, name in zip(counts, profiles, strict=True) if name != "incremental"
    )
    assert min(counts) > 5
    assert [plan.seed for plan in drawn] == list(range(7, 207))


def test_profiles_have_their_turn_the_oftener_the_more_of_their_plans_ran_the_patched_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        search, "draw_plan", lambda seed, profile, *_: TrialPlan(seed=seed, note=profile.name)
    )
    monkeypatch.setitem(OF_WORLD, "simulated", ("standard", "graphs", "modes"))
    drawn: list[TrialPlan] = []

    def every_fourth_of_graphs() -> bool:
        of_graphs = [plan for plan in drawn if plan.note == "graphs"]
        return drawn[-1].note == "modes" or (drawn[-1].note == "graphs" and len(of_graphs) % 4 == 0)

    monkeypatch.setattr(module, "ran_since_asked", every_fourth_of_graphs)
    bug = users_bug(FILE, tmp_path / "mine.txt", ReferenceSimulated(), 220, Uniform(7))
    for plan in bug.plans("simulated"):
        assert not isinstance(plan, NotDrawn)
        drawn.append(plan)
        bug.ran_since_asked()
    never, seldom, always = (
        sum(plan.note == name for plan in drawn) for name in ("standard", "graphs", "modes")
    )
    assert 15 <= never <= 25
    assert 30 <= seldom <= 50
    assert always == 220 - never - seldom
