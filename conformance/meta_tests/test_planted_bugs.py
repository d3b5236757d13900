"""A system with a planted bug fails the suite's own tests (CER-2).

A checker catches each bug, and the product passes the same plan: ``tests/harness/reference/test_mutants.py`` shows
both.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.mutants.catalogue_suite import FLOW_BUGS
from barrier_tck.harness.reference.mutants.mutant_catalogue import MUTANTS
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.scale import scale_of
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import (
    Capability,
    NemesisHooks,
    SystemUnderTest,
    TrialOutcome,
)

ParameterSet = type(pytest.param())
SUBJECTS = sorted(path.stem for path in Path(__file__).parents[1].glob("test_*.py"))


class Planted:
    """The simulated product with a planted bug: what a third party with this bug would certify."""

    def __init__(self, product: SystemUnderTest, bug: str) -> None:
        """Plant a bug."""
        self._product = product
        self._bug = bug
        self.name = f"planted-{bug}"
        self.world = product.world
        self.capabilities: frozenset[Capability] = product.capabilities
        self.scale = scale_of(product)

    def job(self, plan: TrialPlan) -> JobView:
        """Return the product's job."""
        return self._product.job(plan)

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run the plan with the bug."""
        return self._product.run(msgspec.structs.replace(plan, mutant=self._bug), nemesis, directory)

    def close(self) -> None:
        """Close the product."""
        self._product.close()


def _is_of_a_system(function: Callable[..., None]) -> bool:
    """Tests of a state backend run no trial; what catches planted backend bugs is in ``tests/harness``."""
    return "trials" in inspect.signature(function).parameters


def _clauses_of(body: Callable[[Trials], None]) -> set[str]:
    function = body.func if isinstance(body, partial) else body
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "clause"]
    return {identifier for mark in marks for identifier in mark.args}


SEEN_TO_FAIL = {
    "AL-05": "test_who_has_stopped_makes_room_for_what_comes_before_the_barriers_of_others",
    "CO-02": "test_a_checkpoint_whose_metadata_cannot_be_written_fails_and_later_ones_complete",
    "CO-12": "test_a_job_is_not_over_before_its_sinks_have_committed_for_the_last_savepoint",
    "CO-13": "test_the_last_checkpoint_waits_for_the_savepoints_in_flight",
    "CO-05": "test_a_job_whose_sink_dies_before_it_commits_for_the_last_savepoint_commits_and_stops_all_the_same",
    "EL-06": "test_what_sinks_that_are_gone_have_prepared_is_deleted",
    "EL-07": "test_the_vertices_of_a_loop_keep_their_parallelism",
    "EL-08": "test_what_waits_for_its_commit_is_committed_though_the_sinks_become_fewer_again_and_again",
    "EL-09": "test_a_job_that_got_its_slots_in_time_waits_for_them_again",
    "GR-07": "test_records_come_by_every_kind_of_edge_to_every_sink",
    "ID-02": "test_if_no_copy_can_be_read_an_older_checkpoint_is_restored_where_configured",
    "IN-10": "test_a_job_deletes_the_savepoint_that_it_started_from_if_it_claimed_it_and_only_then",
    "IN-11": "test_a_savepoint_that_was_claimed_stays_until_a_newer_checkpoint_is_complete",
    "IN-12": "test_a_job_deletes_the_savepoint_that_it_started_from_if_it_claimed_it_and_only_then",
    "IN-13": "test_a_new_coordinator_keeps_the_files_of_every_checkpoint_that_is_retained",
    "IN-14": "test_increments_are_compressed_as_configured",
    "IN-15": "test_increments_that_were_taken_after_a_redistribution_can_be_redistributed_again",
    "LO-03": "test_a_primary_that_cannot_be_written_fails_the_checkpoint_and_processing_goes_on",
    "LO-04": "test_the_abort_of_an_increment_takes_nothing_from_the_copies_of_others",
    "LO-06": "test_a_copy_found_damaged_is_not_believed_by_the_next_restore",
    "LO-07": "test_a_restore_that_was_interrupted_is_repeated_in_full",
    "LO-12": "test_a_copy_that_served_one_restore_serves_the_next_one_too",
    "LO-13": "test_a_full_local_disk_fails_no_checkpoint",
    "LO-14": "test_a_copy_in_another_format_serves_if_it_is_intact_and_only_then",
    "LP-01": "test_a_restore_neither_makes_money_nor_loses_any",
    "RK-04": "test_a_delay_grows_with_failures_in_a_row_and_begins_anew_after_a_long_run",
    "RS-04": "test_full_channels_between_vertices_with_and_without_state_are_redistributed",
    "RS-12": "test_redistributed_records_come_before_newer_ones_in_the_restore_of_a_later_checkpoint_too",
    "SI-01": "test_the_length_of_the_asynchronous_part_is_measured",
    "SI-05": "test_an_ended_channel_counts_as_having_delivered_barriers_that_hold_nothing_back",
    "SI-08": "test_a_checkpoint_whose_metadata_cannot_be_written_fails_and_later_ones_complete",
    "SV-04": "test_a_job_whose_sink_dies_before_it_commits_for_the_last_savepoint_commits_and_stops_all_the_same",
    "SV-06": "test_who_has_stopped_is_not_released_when_the_abort_of_an_earlier_checkpoint_comes_again",
    "SV-10": "test_a_job_goes_on_as_before_after_each_stop_that_expires",
    "SV-11": "test_a_job_goes_on_as_before_after_each_stop_that_expires",
    "SV-12": "test_what_the_next_job_hears_again_about_an_older_checkpoint_takes_nothing_from_it",
    "SV-09": "test_a_stop_that_waits_is_not_forgotten_when_a_savepoint_fails",
    "UC-04": "test_what_is_left_of_restored_records_is_in_a_checkpoint_whose_last_barrier_comes_behind_a_broadcast",
    "UC-15": "test_if_barriers_of_several_checkpoints_wait_in_one_buffer_each_has_recorded_what_it_overtakes",
}
"""For planted bugs that tests of other clauses show, or one of many: the one to try first. Others take minutes."""


NOT_SHOWN = {
    **dict.fromkeys(
        ("HD-01", "HD-02", "HD-03", "HD-04", "HD-05", "HD-06"),
        "fixed plans keep their checkpoints in files; trials that keep them in HDFS show it",
    ),
    **dict.fromkeys(
        ("EL-10", "ID-03", "TF-04", "TF-05"),
        "no fixed plan was seen to show it within minutes; its stored plan does",
    ),
}
"""Planted bugs that fixed plans of the suite do not show, and why."""


def _distance(identifier: str, body: Callable[[Trials], None]) -> int:
    """Rank a test by its clauses: one that speaks for the broken clause, or a related one, should fail first.

    All others take long, and most of them pass.
    """
    if _name_of(body) == SEEN_TO_FAIL.get(identifier):
        return -1
    broken, clauses = MUTANTS[identifier].clause, _clauses_of(body)
    family = broken.partition("-")[0]
    return 0 if broken in clauses else 1 if any(one.startswith(f"{family}-") for one in clauses) else 2


def _bodies() -> Iterator[Callable[[Trials], None]]:
    """Yield the body of every test of the suite that has a fixed plan, once for each of its parameters."""
    for subject in SUBJECTS:
        for name, function in vars(importlib.import_module(f"conformance.{subject}")).items():
            if (
                name.startswith("test_")
                and not name.startswith("test_generated")
                and _is_of_a_system(function)
            ):
                yield from _with_parameters(function)


def _with_parameters(function: Callable[..., None]) -> Iterator[Callable[[Trials], None]]:
    """Yield the function with every combination of the values that its ``parametrize`` marks give."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(mark.args[1] for mark in marks)):
        given: dict[str, Any] = {}
        for mark, value in zip(marks, values, strict=True):
            names = mark.args[0]
            if isinstance(names, str):
                given[names] = _plain(value)
            else:
                given.update(
                    zip(names, value.values if isinstance(value, ParameterSet) else value, strict=True)
                )
        yield partial(function, **given) if given else function


def _plain(value: Any) -> Any:
    """Return a parameter's value without its marks, if it has some."""
    return value.values[0] if isinstance(value, ParameterSet) else value


@pytest.mark.long
@pytest.mark.parametrize("identifier", [identifier for identifier in MUTANTS if identifier not in NOT_SHOWN])
def test_a_system_with_a_planted_bug_fails_the_suite(tmp_path: Path, identifier: str) -> None:
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    passed = 0
    for body in sorted(_bodies(), key=partial(_distance, identifier)):
        try:
            body(trials)
        except AssertionError:
            return
        except UsageProblem:
            continue  # a broken state backend does not stand for the other one, which this test asks for
        passed += 1
    pytest.fail(f"all {passed} tests with fixed plans pass although {MUTANTS[identifier].description}")


def _name_of(body: Callable[[Trials], None]) -> str:
    return (body.func if isinstance(body, partial) else body).__name__


def test_the_tests_to_try_first_exist() -> None:
    assert {*SEEN_TO_FAIL, *NOT_SHOWN} <= set(MUTANTS)
    assert not SEEN_TO_FAIL.keys() & NOT_SHOWN.keys()
    assert set(SEEN_TO_FAIL.values()) <= {_name_of(body) for body in _bodies()}


@pytest.mark.parametrize("identifier", FLOW_BUGS)
def test_a_bug_that_makes_no_result_wrong_fails_the_test_that_is_there_for_it(
    tmp_path: Path, identifier: str
) -> None:
    bug = FLOW_BUGS[identifier]
    trials = Trials(Planted(open_system("reference-simulated"), identifier), tmp_path)
    bodies = [body for body in _bodies() if _name_of(body) == bug.shown_by]
    assert any(bug.clause in _clauses_of(body) for body in bodies)
    failures = [failure for body in bodies if (failure := _failure_of(body, trials)) is not None]
    assert failures, f"{bug.shown_by} passes although {bug.description}"
    assert "verdict invalid" not in str(failures[0]), (
        "a checker of campaigns finds it, so it belongs to the other planted bugs"
    )


def _failure_of(body: Callable[[Trials], None], trials: Trials) -> AssertionError | None:
    try:
        body(trials)
    except AssertionError as failure:
        return failure
    return None
