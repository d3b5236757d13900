"""The format of the file of a planted bug. It is read strictly: every mistake is reported with its key.

A file of the catalogue is named after its bug (``SI-02.toml``). Users may write such a file, or a unified diff, for a
bug of their own, and run it with ``barrier-tck mutants --patch FILE``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec

from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.patch import Change, change_at
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, parse_toml
from barrier_tck.harness.system.broken_recovery import BrokenRecovery

SEEDS: Mapping[str, int] = {"simulated": 40, "spark": 8}
"""World -> the most seeds with which a bug's plan is tried until the bug is caught."""


class ChangeText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change as a file gives it: see ``patch.Change``."""

    at: str
    """For instance ``operators/sinks.py::FileSink.commit``. To add ``after`` to a class or a file, omit ``before``."""
    before: str = ""
    after: str = ""


class DetectionBound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many plans of a profile were drawn until one caught the bug, as measured with several seeds."""

    profile: str
    median: int
    most: int


class BugFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A planted bug."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    """A plain file name, because plans that show the bug are saved under this name."""
    clause: str
    """The clause that it mainly breaks."""
    description: str
    """One sentence."""
    origin: str = "planted here, no public report"
    """The real bug that it reproduces."""
    change: tuple[ChangeText, ...] = ()
    checkers: tuple[str, ...] = ()
    """The checkers that may be the first to report the bug; for the stored smallest plan it is the first of them."""
    read_as: dict[str, str] = {}
    """Another clause that a finding may name first -> why that is right, too, or why a trial cannot tell them apart."""
    plan: dict[str, Any] | None = None
    """A simulated plan in which the bug can show; its seed is replaced. Fields that are left out get their defaults."""
    spark_plan: dict[str, Any] | None = None
    """A plan for Spark, if the bug is also looked for there."""
    profiles: tuple[str, ...] = ()
    """Profiles whose drawn plans are tried if there is no plan."""
    breaks: BrokenRecovery | None = None
    """The way in which the bug breaks recovery, if control trials use it for that."""
    drawn: DetectionBound | None = None
    shown_by: str | None = None
    """For a bug that makes no result wrong, so that no campaign finds it: the conformance test that fails."""
    conformance_test: str | None = None
    """The conformance test to try first, if that is not one of the tests of ``clause``."""
    not_in_conformance: str | None = None
    """Why fixed plans of the conformance suite do not show it."""

    def __post_init__(self) -> None:
        if not self.change:
            raise ValueError("a planted bug has at least one [[change]]")
        if not self.description.endswith("."):
            raise ValueError("description is one sentence, which ends with a full stop")
        if self.shown_by is not None and (self.plan is not None or self.spark_plan is not None):
            raise ValueError("a bug that one conformance test shows (shown_by) has no plan")


@dataclass(frozen=True)
class PlantedBug:
    """A planted bug, and its plans."""

    file: BugFile
    source: str

    @property
    def id(self) -> str:
        return self.file.id

    @property
    def clause(self) -> str:
        return self.file.clause

    @property
    def description(self) -> str:
        return self.file.description

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Return what it changes in the reference implementation."""
        return tuple(change_at(change.at, change.before, change.after) for change in self.file.change)

    @cached_property
    def plan(self) -> TrialPlan | None:
        """Return its simulated plan."""
        return self._plan(self.file.plan, "plan")

    @cached_property
    def spark_plan(self) -> TrialPlan | None:
        return self._plan(self.file.spark_plan, "spark_plan")

    @property
    def worlds(self) -> tuple[str, ...]:
        """Return the worlds in which it is looked for."""
        plans = {"simulated": self.file.plan, "spark": self.file.spark_plan}
        return tuple(world for world, plan in plans.items() if plan is not None)

    def ran_since_asked(self) -> None:
        """Return None, for not known. It need not be known: a bug of the catalogue is caught, so its lines run."""

    learns = False

    def learn(self, reached: tuple[str, ...], promising: bool) -> None:
        """Do nothing: its plans are in its file."""

    def planted_in(self, plan: TrialPlan) -> TrialPlan:
        return msgspec.structs.replace(plan, mutant=self.id)

    def plans(self, world: str) -> Iterator[TrialPlan]:
        """Yield the plan for a world once for each seed to try; nothing if the bug is not looked for in that world."""
        base = self.plan if world == "simulated" else self.spark_plan
        if base is None:
            return
        for seed in range(SEEDS[world]):
            yield self.planted_in(msgspec.structs.replace(base, seed=seed))

    def _plan(self, value: dict[str, Any] | None, key: str) -> TrialPlan | None:
        return plan_from(value, self.source, key) if value is not None else None


def read_bug(text: str, source: str) -> PlantedBug:
    """Read the text of a file; raises UsageProblem with the key path of what is wrong."""
    bug = PlantedBug(convert(parse_toml(text, source), BugFile, source), source)
    for plan in (bug.plan, bug.spark_plan):
        if plan is not None and plan.mutant is not None:
            raise UsageProblem(f"{source}: the plan of a planted bug must not name a planted bug (mutant)")
    return bug
