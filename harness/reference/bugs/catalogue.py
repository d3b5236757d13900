"""The planted bugs by id, each read from its file beside this module.

A plan names its bug (``mutant``), so that a saved plan replays with it; a plan of a user's own bug carries the patch
itself (``patch``), and runs in a process with a copy of the product that has it. The product must pass the same plans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType

import msgspec

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.bug_file import PlantedBug, read_bug
from barrier_tck.harness.reference.bugs.patched_copy import with_patch
from barrier_tck.harness.reference.bugs.replacement import in_force
from barrier_tck.harness.support.errors import InternalError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.broken_recovery import BrokenRecovery


@cache
def planted_bugs() -> Mapping[str, PlantedBug]:
    """Return every planted bug, by id, in the order of ids; reads the files once."""
    return MappingProxyType({name: _read(name, text) for name, text in _texts()})


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the id and the text of every file, in the order of ids."""
    for entry in sorted(files(__package__).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            yield entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8")


def _read(name: str, text: str) -> PlantedBug:
    bug = read_bug(text, f"{name}.toml")
    if bug.id != name:
        raise InternalError(f"{name}.toml holds the planted bug {bug.id}: name the file for it")
    return bug


def bugs_of_runtime() -> Mapping[str, PlantedBug]:
    """Return the bugs that a campaign may find: those with a plan."""
    return {name: bug for name, bug in planted_bugs().items() if bug.file.shown_by is None}


def bugs_of_suite() -> Mapping[str, PlantedBug]:
    """Return the bugs that make no result wrong, each of which one conformance test shows."""
    return {name: bug for name, bug in planted_bugs().items() if bug.file.shown_by is not None}


@cache
def controls() -> Mapping[BrokenRecovery, PlantedBug]:
    """Return the bug with which the reference runtime breaks its recovery in each way, for control trials."""
    # Every campaign has controls, and most of the files are for none: these are not read in full.
    bugs = [_read(name, text) for name, text in _texts() if "\nbreaks = " in text]
    return MappingProxyType({bug.file.breaks: bug for bug in bugs if bug.file.breaks is not None})


def broken(plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
    """Return a plan for the reference runtime with its recovery broken; None if the plan already has a planted bug."""
    if plan.mutant is not None or plan.patch is not None:
        return None
    return msgspec.structs.replace(plan, mutant=controls()[how].id)


def bug_of(plan: TrialPlan) -> Callable[[], AbstractContextManager[None]]:
    """Return what runs a body with the plan's bug in its process; it can be sent to another one.

    Raises UsageProblem for an unknown bug.
    """
    if plan.patch is not None:
        return partial(with_patch, plan.patch)
    if plan.mutant is None:
        return partial(in_force, ())
    bugs = planted_bugs()
    if plan.mutant not in bugs:
        raise UsageProblem(f"there is no planted bug {plan.mutant!r}{nearest(plan.mutant, bugs)}")
    return partial(in_force, bugs[plan.mutant].changes)


def planted(plan: TrialPlan) -> AbstractContextManager[None]:
    """Run a body with the plan's bug in this process; with the product as it is if the plan has none."""
    return bug_of(plan)()


def digest_of(text: str) -> str:
    """Return by what a patch is named where it is not quoted: the beginning of its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
