"""Certification of checkpoint storages: what ships passes, every planted bug is refused by the name of its clause."""

from __future__ import annotations

import inspect
import os
import signal
from pathlib import Path

import pytest

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.harness.certify.engine.planted_bugs import PlantedBug
from barrier_tck.harness.certify.storage.candidate.checks import CHECKS
from barrier_tck.harness.certify.storage.planted_bugs import PLANTED_BUGS, hunt_planted
from barrier_tck.harness.certify.storage.properties import PROPERTIES
from barrier_tck.harness.certify.storage.suite import certify
from barrier_tck.harness.reference.mutants import checkpoint_storage_bugs
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage, file_storage
from barrier_tck.reference_impl.storage.memory_files import MemoryFiles

_HERE = "tests.harness.certify.storage.test_storage"


def test_the_certifier_and_the_candidates_process_know_the_same_properties() -> None:
    assert [one.name for one in PROPERTIES] == list(CHECKS)
    named = {clause for one in PROPERTIES for clause in one.clauses}
    assert named == {identifier for identifier in CLAUSES if identifier.startswith("STO-")}


@pytest.mark.nightly
def test_local_files_are_certified_up_to_crash_and_every_clause_is_shown(tmp_path: Path) -> None:
    certificate = certify("files", str(tmp_path))
    problems = {one.name: one.reason for one in certificate.outcomes if one.status != "passed"}
    assert problems == {}
    assert (certificate.verdict, certificate.level) == ("certified", "crash")
    assert {result.clause: result.status for result in certificate.clauses} == {
        f"STO-{number}": "shown" for number in range(1, 8)
    }


@pytest.mark.long
def test_the_drivers_memory_is_certified_as_far_as_it_promises(tmp_path: Path) -> None:
    certificate = certify("memory", str(tmp_path))
    assert (certificate.verdict, certificate.level) == ("unknown", "contract")
    skipped = {one.reason for one in certificate.outcomes if one.level == "crash"}
    assert skipped == {"it says that it does not outlive its process"}


@pytest.mark.long
@pytest.mark.parametrize("mutant", PLANTED_BUGS, ids=lambda mutant: mutant.id)
def test_a_planted_bug_is_refused_by_the_name_of_its_clause(mutant: PlantedBug) -> None:
    outcome = hunt_planted(mutant)
    assert (outcome.status, outcome.violated) == ("failed", mutant.clause), outcome.reason


def test_every_planted_storage_has_an_entry() -> None:
    planted = [
        name
        for name, found in vars(checkpoint_storage_bugs).items()
        if inspect.isclass(found) and found.__module__ == checkpoint_storage_bugs.__name__ and name[0] != "_"
    ]
    assert sorted(planted) == sorted(mutant.name for mutant in PLANTED_BUGS)
    for mutant in PLANTED_BUGS:
        assert vars(checkpoint_storage_bugs)[mutant.name].__doc__.startswith(f"{mutant.id}: ")


def ends_its_process(location: str, job: str) -> FileCheckpointStorage:
    """Make a storage, and die with the second job."""
    if job == "another":
        raise SystemExit(7)
    return file_storage(location, job)


def is_asked_to_end(location: str, job: str) -> FileCheckpointStorage:
    """Make a storage, whose process another program ends at the second job."""
    if job == "another":
        os.kill(os.getpid(), signal.SIGTERM)
    return file_storage(location, job)


def nothing(location: str, job: str) -> object:
    """Make something else."""
    return [location, job]


@pytest.mark.long
def test_a_storage_that_ends_its_process_fails_that_property_and_the_others_go_on(tmp_path: Path) -> None:
    only = ("counters-never-fall", "an-id-is-published-once", "a-discarded-checkpoint-is-gone")
    outcomes = certify(f"{_HERE}:ends_its_process", str(tmp_path), only=only).outcomes
    by_name = {one.name: one for one in outcomes}
    assert by_name["counters-never-fall"].status == "failed"
    assert "exit code 7" in by_name["counters-never-fall"].reason
    assert [one.status for one in outcomes].count("passed") == 2


def test_sigterm_from_outside_is_no_failure_of_the_storage(tmp_path: Path) -> None:
    only = ("counters-never-fall",)
    outcomes = certify(f"{_HERE}:is_asked_to_end", str(tmp_path), only=only).outcomes
    (found,) = [one for one in outcomes if one.name in only]
    assert (found.status, found.violated) == ("unknown", "")
    assert "ended with SIGTERM" in found.reason and "says nothing about the candidate" in found.reason


@pytest.mark.long
def test_what_is_no_storage_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"list, which is no checkpoint storage: it has no .*publish"):
        certify(f"{_HERE}:nothing", str(tmp_path))
    with pytest.raises(UsageProblem, match="did you mean 'file_storage'"):
        certify("barrier_tck.reference_impl.storage.checkpoint_storage:files_storage", str(tmp_path))
    with pytest.raises(UsageProblem, match="did you mean 'files'"):
        certify("file", str(tmp_path))


def test_the_drivers_memory_is_full_with_a_clear_error_and_keeps_what_it_has() -> None:
    files = MemoryFiles(limit_bytes=100)
    files.write("kept", [b"x" * 60])
    with pytest.raises(StorageError, match="41 bytes or more, others have 60, and the limit is 100"):
        files.write("more", [b"x" * 30, b"x" * 11, b"x" * 1000])
    with pytest.raises(StorageError, match="Raise the limit"):
        files.put("more", b"x" * 41)
    assert files.list_files("") == ["kept"] and files.used_bytes == 60
    files.put("kept", b"y" * 100)
    assert files.read("kept") == b"y" * 100
    files.delete("kept")
    assert files.used_bytes == 0
