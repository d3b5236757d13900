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
from barrier_tck.harness.draw.scenario import Part, Scenario, fitted_shares, pick, shares_of
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
    always = STANDARD.with_shares(**{name: 1_000, "fallbacks": 0, "merged_increments": 0, "torn_commits": 0})
    unable = Constraints(capabilities=frozenset(Capability) - {Capability.EXECUTOR_KILL})
    before, after = (draw_plans(3, 200, profile) for profile in (never, STANDARD))
    assert executors(before) + 6 < executors(after) < 150
    assert 0 < sum(one != other for one, other in zip(before, after, strict=True)) < 60
    assert executors(draw_plans(13, 60, always)) == 60
    assert executors(draw_plans(3, 60, always, unable)) < 40


def test_a_profile_that_names_no_scenario_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageProblem, match="'windoes', which does not exist; did you mean 'windows'"):
        draw_plans(3, 1, STANDARD.with_shares(windoes=10))


def test_each_scenario_is_drawn_by_some_profile() -> None:
    known = known_scenarios()
    drawn = {name for profile in PROFILES for name in shares_of(profile, frozenset(Capability), known)}
    assert drawn == set(known), "a scenario that no profile draws is dead"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_each_scenario_has_its_share_of_all_plans(profile: Profile) -> None:
    known = known_scenarios()
    shares = shares_of(profile, frozenset(Capability), known)
    counts = _times_picked(shares, known)
    everything = [known[name] for name, share in shares.items() if share == 1_000]
    for name, share in fitted_shares(shares, known, frozenset()).items():
        if any(known[name].excludes(other) for other in everything):
            # What takes every plan that is left leaves none to those after it, and loses those that went before.
            assert counts[name] / 2 < share + 45, name
        else:
            assert counts[name] / 2 == pytest.approx(share, abs=30), name


def test_scenarios_that_ask_for_too_much_together_are_lowered_in_proportion() -> None:
    known = {
        "many parts": Scenario(settles=frozenset({Part.FAULTS, Part.PACE})),
        "the faults": Scenario(settles=frozenset({Part.FAULTS})),
        "the pace": Scenario(settles=frozenset({Part.PACE})),
        "neither": Scenario(settles=frozenset({Part.INPUT})),
    }
    shares = {"many parts": 600, "the faults": 900, "the pace": 300, "neither": 900}
    counts = _times_picked(shares, known)
    assert [round(count / 2) for count in counts.values()] == pytest.approx([400, 600, 300, 900], abs=30)


def test_scenarios_that_may_be_combined_leave_its_share_to_one_that_neither_allows() -> None:
    """The plans of the two overlap, so that they leave more than all plans without the sum of their shares."""
    known = {
        "the faults": Scenario(settles=frozenset({Part.FAULTS, Part.INPUT})),
        "the pace": Scenario(settles=frozenset({Part.PACE, Part.OPERATORS})),
        "both": Scenario(settles=frozenset({Part.FAULTS, Part.PACE})),
    }
    counts = _times_picked({"the faults": 500, "the pace": 500, "both": 200}, known)
    assert [round(count / 2) for count in counts.values()] == pytest.approx([500, 500, 200], abs=30)


def _times_picked(shares: dict[str, int], known: dict[str, Scenario]) -> dict[str, int]:
    """Return of how many of 2,000 plans each scenario is part."""
    counts = dict.fromkeys(shares, 0)
    for number in range(1, 2_001):
        picked = pick(lambda _, number=number: number.to_bytes(8), shares, known, frozenset())  # type: ignore[arg-type]
        for name in shares:
            counts[name] += any(scenario is known[name] for scenario in picked)
        parts = [part for scenario in picked for part in scenario.settles]
        assert len(parts) == len(set(parts)), "two of them settle the same part"
    return counts


def test_a_campaign_that_gives_all_faults_picks_no_scenario_that_draws_any() -> None:
    known = {"one": Scenario(settles=frozenset({Part.FAULTS}), per_mille=1_000)}
    assert pick(lambda _: b"12345678", {"one": 1_000}, known, frozenset({Part.FAULTS})) == ()  # type: ignore[arg-type]
