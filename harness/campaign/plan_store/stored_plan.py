"""One file of the store: a plan, why it was kept, and what it showed on which version.

A store may come from somebody else. So its files are strict JSON, and a plan in it is read as any plan is: nothing is
imported or run because of it.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, parse_json

STORE_VERSION = 1
_NAME_DIGITS = 24


class KeptBecause(StrEnum):
    """Why a plan is in the store; also the name of the folder that it is in."""

    FAILED = "failed"
    """A trial of it was INVALID, and none has been VALID since."""
    NEW = "new"
    """A trial of it reached what no plan in the store had reached."""
    PASSED = "passed"
    """It failed once, and passed when it was tried again."""


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the trials of a plan that failed showed; plans that showed the same are one finding."""

    clause: str
    """The clause that was broken first; empty if the checker names none."""
    checker: str
    shape: str
    """What the smallest plan that shows it needs (``harness.campaign.plan_shape``)."""


class StoredPlan(Bounded, frozen=True, forbid_unknown_fields=True):
    """A plan in the store."""

    version: Annotated[int, msgspec.Meta(ge=1, le=STORE_VERSION)]
    because: KeptBecause
    system: str
    """The name by which ``--system`` opens the system on which it ran."""
    on_version: str
    """The version of barrier-tck that ran it last."""
    plan: dict[str, Any]
    shown: Shown | None = None
    """Of a plan that failed: what it showed."""
    reached: tuple[str, ...] = ()
    """Of a plan that reached something new: what that was."""
    failed_runs: Annotated[int, msgspec.Meta(ge=0)] = 0
    """In how many runs it failed when it was run several times."""
    runs: Annotated[int, msgspec.Meta(ge=0)] = 0
    passed_in_a_row: Annotated[int, msgspec.Meta(ge=0)] = 0
    """In how many campaigns it has passed since it failed last; where runs differ, one says little."""

    @property
    def name(self) -> str:
        """The name of its file: the same plan on the same system has the same."""
        text = json.dumps([self.system, self.plan], sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]}.json"

    def trial_plan(self, source: str) -> TrialPlan:
        """Return the plan; raises UsageProblem if it is none that this version can read."""
        return plan_from(self.plan, source, "plan")

    def encoded(self) -> bytes:
        """Return the content of its file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def failed_plan(
    plan: TrialPlan, system: str, shown: Shown, failed_runs: int = 1, runs: int = 1
) -> StoredPlan:
    """Return what is stored of a plan that failed here."""
    return StoredPlan(
        version=STORE_VERSION,
        because=KeptBecause.FAILED,
        system=system,
        on_version=environment()["barrier-tck"],
        plan=json.loads(to_json(plan)),
        shown=shown,
        failed_runs=failed_runs,
        runs=runs,
    )


def new_plan(plan: TrialPlan, system: str, reached: tuple[str, ...]) -> StoredPlan:
    """Return what is stored of a plan that reached something new here."""
    return StoredPlan(
        version=STORE_VERSION,
        because=KeptBecause.NEW,
        system=system,
        on_version=environment()["barrier-tck"],
        plan=json.loads(to_json(plan)),
        reached=reached,
    )


def stored_plan_of(content: bytes, source: str) -> StoredPlan:
    """Read a file of the store; raises UsageProblem if it is none, or a newer one. The plan itself is not read yet."""
    try:
        value = parse_json(content.decode("utf-8"), source)
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{source} is not a text in UTF-8: see its byte {error.start}") from error
    if not isinstance(value, dict):
        raise UsageProblem(f"{source}: a stored plan is an object with keys, not {type(value).__name__}")
    if isinstance(version := value.get("version"), int) and version > STORE_VERSION:
        raise UsageProblem(
            f"{source}: the stored plan has version {version}, but this program knows only versions up to "
            f"{STORE_VERSION}; use the newer barrier-tck that wrote it"
        )
    return convert(value, StoredPlan, source)
