"""Numbers keep their unit and text keeps its meaning, whatever it contains."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import FindingGroup
from barrier_tck.reports import wording


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0.00 ms"),
        (9.94, "9.9 ms"),
        (340, "340 ms"),
        (1_500, "1.50 s"),
        (180_000, "3.0 min"),
    ],
)
def test_durations_have_a_fitting_unit(milliseconds: float | None, text: str) -> None:
    assert wording.duration(milliseconds) == text


@pytest.mark.parametrize(
    ("at_ms", "text", "short"),
    [
        (None, "–", "–"),
        (-1_250, "-1,250 ms", "-1,250"),
        (99_999_999_999, "99,999,999,999 ms", "99,999,999,999"),
        (1_357_034_400_250, "2013-01-01 10:00:00.250 UTC", "01-01 10:00"),
        (-(1 << 62), "none yet", "none yet"),
        ((1 << 62) - 1, "the end of time", "the end of time"),
    ],
)
def test_event_times_are_numbers_or_dates(at_ms: int | None, text: str, short: str) -> None:
    assert (wording.event_time(at_ms), wording.event_time(at_ms, short=True)) == (text, short)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (5 * 2**40, "5120.0 GiB")]
)
def test_sizes_have_a_fitting_unit(count: int, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("kill_to_first_record_ms", 2_180.0, "2.18 s"),
        ("snapshot_bytes", 2_048.0, "2.0 KiB"),
        ("catch_up_s", 1.5, "1.50 s"),
        ("records_read", 336_776.0, "336,776"),
        ("ratio", 0.25, "0.25"),
    ],
)
def test_measurements_are_read_by_the_unit_in_their_name(name: str, value: float, text: str) -> None:
    assert wording.measurement(name, value) == text


@given(st.text())
def test_printable_text_is_fit_for_xml_and_terminals(text: str) -> None:
    shown = wording.printable(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    element = ElementTree.Element("a")
    element.text = shown
    assert ElementTree.fromstring(ElementTree.tostring(element)).text == (shown or None)


@given(st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1))
def test_a_replay_line_names_exactly_its_plan(name: str) -> None:
    plan = Path("runs") / name
    command = wording.replay_command(plan, "package.module:System")
    assert command is not None
    assert shlex.split(command) == ["barrier-tck", "replay", str(plan), "--system", "package.module:System"]


def test_a_replay_line_names_the_patch_that_the_plan_carries() -> None:
    plan, carries = Path("a plan.json"), TrialPlan(patch="--- a\n")
    of_file = wording.replay_command(plan, "reference-simulated", carries, Path("my bug.diff"))
    assert of_file == ("barrier-tck replay 'a plan.json' --system reference-simulated --patch 'my bug.diff'")
    unknown = wording.replay_command(plan, "reference-simulated", carries)
    assert unknown == "barrier-tck replay 'a plan.json' --system reference-simulated --trust"
    plain = wording.replay_command(plan, "reference-simulated", TrialPlan(), Path("my bug.diff"))
    assert plain == "barrier-tck replay 'a plan.json' --system reference-simulated"


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[float], share: float) -> None:
    found = wording.percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_a_kind_of_fault_that_this_version_does_not_know_is_shown_by_its_tag() -> None:
    assert (wording.fault_name("kill_worker"), wording.fault_colour("kill_worker")) == (
        "kill worker",
        "#d9730d",
    )
    assert wording.fault_name("fill_disk_of_tomorrow") == "fill disk of tomorrow"
    assert wording.fault_colour("fill_disk_of_tomorrow") == "transparent"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-28T14:31:25.448126+00:00", "28 November 2026, 14:31 UTC"),
        ("2026-03-01T09:05:00", "1 March 2026, 09:05"),
        ("yesterday", "yesterday"),
    ],
)
def test_a_time_is_shown_as_people_write_it(text: str, shown: str) -> None:
    assert wording.moment(text) == shown


LIKE_THIS = "5 trials fail like this (4 not made smaller, assumed the same)."


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (
            {"trials": 5, "presumed": 4, "shape": "nothing special", "runs": 3, "failed_runs": 3},
            f"{LIKE_THIS} Smallest plan: no faults; failed 3 of 3 times.",
        ),
        (
            {"trials": 1, "shape": "savepoints, an attempt fails", "faults": 1},
            "1 trial fails like this. Smallest plan: 1 fault; needs: savepoints, an attempt fails.",
        ),
        (
            {"trials": 2, "shape": "not made smaller", "faults": 3},
            "2 trials fail like this. Their plans were not made smaller; the first has 3 faults.",
        ),
    ],
)
def test_a_finding_says_how_many_trials_fail_like_it_and_what_its_smallest_plan_has(
    group: dict[str, Any], text: str
) -> None:
    known: dict[str, Any] = {"clause": "SNK-1", "checker": "x", "numbers": (0,), "smallest_trial": 0}
    assert wording.in_how_many_trials(FindingGroup(**known, **group)) == text


def test_what_was_measured_is_named_for_people() -> None:
    assert wording.measured_name("alignment_ms") == "alignment of a snapshot"
    assert wording.measured_name("virtual_ms") == "simulated time of a trial"
    assert wording.measured_name("steps") == "steps of the simulator in a trial"
    assert wording.measured_name("spilled_bytes") == "spilled", "of a system that this project does not know"
