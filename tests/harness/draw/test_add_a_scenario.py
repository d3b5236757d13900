"""CONTRIBUTING's "Add a scenario" is followed to the letter: one file in the folder, and plans are drawn for it."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barrier_tck.harness.draw import scenarios
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import PROFILES, profile_named
from barrier_tck.harness.draw.scenario import Part, Scenario, pick, shares_of
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import Capability
from tests.test_maps import CONTRIBUTING

SECTION = CONTRIBUTING.partition("## Add a scenario\n")[2].partition("\n## ")[0]
STANDARD = profile_named("standard")


@pytest.fixture(name="name")
def _name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put the file of the section into the folder of the scenarios, and return its name."""
    (path,) = re.findall(r"`harness/draw/scenarios/(\w+)\.py`:\n", SECTION)
    (text,) = re.findall(r"^ *```python\n(.*?)^ *```$", SECTION, re.DOTALL | re.MULTILINE)
    (tmp_path / f"{path}.py").write_text(textwrap.dedent(text))
    monkeypatch.setattr(scenarios, "__path__", [*scenarios.__path__, str(tmp_path)])
    known_scenarios.cache_clear()
    yield str(path)
    known_scenarios.cache_clear()
    sys.modules.pop(f"{scenarios.__name__}.{path}", None)


def executors(plans: Sequence[TrialPlan]) -> int:
    return sum(plan.deployment.executors == 1 for plan in plans)


@pytest.mark.long
def test_a_scenario_is_added_with_one_file_and_then_drawn_by_profiles_that_do_not_name_it(name: str) -> None:
    """Where it is possible; plans of which it is no part stay as they were."""
    # Those that settle the executors themselves have the last word.
    never = STANDARD.with_shares(**{name: 0})
    always = STANDARD.with_shares(**{name: 1_000, "fallbacks": 0, "merged_increments": 0})
    unable = Constraints(capabilities=frozenset(Capability) - {Capability.EXECUTOR_KILL})
    before, after = (draw_plans(3, 200, profile) for profile in (never, STANDARD))
    assert executors(before) + 6 < executors(after) < 150
    assert 0 < sum(one != other for one, other in zip(before, after, strict=True)) < 60
    assert executors(draw_plans(13, 60, always)) == 60
    assert executors(draw_plans(3, 60, always, unable)) < 40


def test_a_profile_that_names_no_scenario_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageProblem, match="'windoes', which does not exist; did you mean 'windows'"):
        draw_plans(3, 1, STANDARD.with_shares(windoes=10))


QUICK = ("chains", "chandy-lamport", "graphs", "modes", "rescale", "savepoints", "spark-explore")
"""Profiles that are looked at before every merge: together they have every scenario."""


def test_the_profiles_that_are_looked_at_quickly_have_every_scenario() -> None:
    known = known_scenarios()
    quick = [
        shares_of(profile, frozenset(Capability), known) for profile in PROFILES if profile.name in QUICK
    ]
    everywhere = [shares_of(profile, frozenset(Capability), known) for profile in PROFILES]
    drawn = {name for shares in everywhere for name, share in shares.items() if share}
    assert sorted(drawn - {name for shares in quick for name, share in shares.items() if share}) == []
    assert drawn == set(known), "a scenario that no profile draws is dead"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(profile, id=profile.name, marks=() if profile.name in QUICK else pytest.mark.long)
        for profile in PROFILES
    ],
)
def test_each_scenario_has_its_share_of_all_plans(profile: Profile) -> None:
    known = known_scenarios()
    shares = shares_of(profile, frozenset(Capability), known)
    counts = dict.fromkeys(shares, 0)
    for number in range(1, 2_001):
        picked = pick(lambda _, number=number: number.to_bytes(8), shares, known, frozenset())  # type: ignore[arg-type]
        for name in shares:
            counts[name] += any(scenario is known[name] for scenario in picked)
        parts = [part for scenario in picked for part in scenario.settles]
        assert len(parts) == len(set(parts)), "two of them settle the same part"
    with_own_savepoints = (
        *(
            "backlog",
            "chain",
            "failed_deployments",
            "failing_savepoints",
            "failing_stops",
            "from_savepoint",
            "held_timers",
            "losses",
            "merged_increments",
        ),
        *("stops_at_the_end",),
    )
    others = sum(shares.get(name, 0) for name in with_own_savepoints)
    for name, count in counts.items():
        most = 1_000 - others if name == "savepoints" else 1_000
        assert count / 2 == pytest.approx(min(shares[name], most), abs=45), name


def test_a_campaign_that_gives_all_faults_picks_no_scenario_that_draws_any() -> None:
    known = {"one": Scenario(settles=frozenset({Part.FAULTS}), per_mille=1_000)}
    assert pick(lambda _: b"12345678", {"one": 1_000}, known, frozenset({Part.FAULTS})) == ()  # type: ignore[arg-type]
