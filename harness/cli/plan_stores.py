"""Where the command line's store of plans is, and which of its plans may run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.cli.untrusted_code import UntrustedCode, code_of
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.plan_store.places import Place
    from barrier_tck.harness.campaign.plan_store.store import PlanStore
    from barrier_tck.harness.plan.trial_plan import TrialPlan

VARIABLE = "BARRIER_TCK_STORE"
"""Names the store if no option does; ``none``: there is none."""
NONE = "none"
_BELOW_A_PROJECT = Path(".barrier-tck") / "plans"
_MARKS_OF_A_PROJECT = (".barrier-tck", "pyproject.toml", ".git")

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DIR|s3://BUCKET/PREFIX",
        help="Store of plans: those in it that failed on the system are tried first, and what this campaign finds is "
        "kept there. Default: the environment's BARRIER_TCK_STORE, else .barrier-tck/plans in the project.",
    ),
]
NoStoreOption = Annotated[bool, typer.Option("--no-store", help="Try no stored plans, and store none.")]


def project_directory(here: Path) -> Path:
    """Return the project that a directory belongs to: the nearest one above it that looks like one, or itself."""
    for directory in (here, *here.parents):
        if any((directory / mark).exists() for mark in _MARKS_OF_A_PROJECT):
            return directory
    return here


def opened_store(
    named: str | None, no_store: bool, allowed: Iterable[UntrustedCode], trust: bool
) -> PlanStore | None:
    """Return the store that options, or the environment, name; ``allowed`` is the code that its plans may name.

    Raises UsageProblem if both options are given, or a bucket is named wrongly.
    """
    from barrier_tck.harness.campaign.plan_store.store import PlanStore

    if no_store and named is not None:
        raise UsageProblem("--store and --no-store are both given; keep one of the two")
    location = named or os.environ.get(VARIABLE) or ""
    if no_store or (named is None and location == NONE):
        return None
    known = tuple(allowed)

    def why_not(plan: TrialPlan) -> str:
        return _why_not(plan, known, trust)

    return PlanStore(_place(location), why_not)


def _place(location: str) -> Place:
    from barrier_tck.harness.campaign.plan_store.places import DirectoryPlace
    from barrier_tck.harness.reference.bucket import SCHEME, bucket_at

    if location.startswith(SCHEME):
        from barrier_tck.harness.campaign.plan_store.bucket_place import BucketPlace

        return BucketPlace(bucket_at(location))
    here = Path.cwd()
    default = project_directory(here) / _BELOW_A_PROJECT
    return DirectoryPlace(Path(location) if location else _short(default, here))


def _short(path: Path, here: Path) -> Path:
    return path.relative_to(here) if path.is_relative_to(here) else path


def _why_not(plan: TrialPlan, allowed: tuple[UntrustedCode, ...], trust: bool) -> str:
    """Say why a stored plan may not run in a campaign; empty if it may."""
    if plan.patch is not None:
        return (
            "it carries a patch, which is code; to run it: barrier-tck replay with --patch FILE, or --trust"
        )
    if trust:
        return ""
    if plan.mutant is not None:
        return f"it plants the bug {plan.mutant}; --trust allows it"
    for code in code_of(plan):
        if code not in allowed:
            return f"it names code that would run: name it too, {code.option} {code.named}, or --trust"
    return ""
