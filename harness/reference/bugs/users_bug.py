"""A user's own bug, from a file that the command line names: which checkers catch it, and how soon?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path

import msgspec

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.bug_file import BugFile, read_bug
from barrier_tck.harness.reference.bugs.diff import files_of, is_diff
from barrier_tck.harness.reference.bugs.patched_copy import ran_since_asked
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest, read_text
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.system.taken_settings import takes_settings

PROFILES = {
    "simulated": (
        "standard",
        "graphs",
        "modes",
        "at-least-once",
        "rescale",
        "incremental",
        "savepoints",
        "ends",
        "loops",
        "chandy-lamport",
        "object-store",
        "large-state",
        "heavy",
        "chains",
    ),
    "spark": ("spark-explore", "spark-graphs", "spark-savepoints", "spark-rescale", "spark-loops"),
}
"""World -> the profiles from which plans are drawn in turn, unless the file says otherwise."""


_SELDOM = 8
"""A profile none of whose plans ran the patched lines has its turn so much more seldom than one whose plans all did."""


@dataclass
class _Turns:
    """How often a profile had its turn, and how many of its plans ran the patched lines."""

    profile: Profile
    tried: int = 0
    ran: int = 0

    @property
    def waits(self) -> float:
        """Return by what the profiles are put in order: the one with the smallest number is next."""
        return self.tried / max(self.ran / max(1, self.tried), 1 / _SELDOM)


@dataclass
class UsersBug:
    """A patch from outside, and the plans that are tried with it."""

    id: str
    text: str
    """The file: a unified diff, or like the file of a planted bug. Every plan carries it."""
    file: BugFile | None
    fixed: tuple[TrialPlan, ...]
    """The plans that the file gives; empty: plans are drawn."""
    trials: int
    seed: int
    system: SystemUnderTest
    ran: bool | None = None
    """Whether the lines ran in the trial of the plan that was yielded last; None: not known."""

    @property
    def clause(self) -> str | None:
        """Return the clause that the file says it breaks; None: any."""
        return self.file.clause if self.file is not None else None

    @property
    def description(self) -> str:
        """Return what the file says is wrong."""
        if self.file is not None:
            return self.file.description
        return f"A patch of {', '.join(files_of(self.text))}."

    @property
    def worlds(self) -> tuple[str, ...]:
        return tuple(PROFILES)

    def planted_in(self, plan: TrialPlan) -> TrialPlan:
        return msgspec.structs.replace(plan, patch=self.text)

    def ran_since_asked(self) -> bool | None:
        """Return whether its lines ran, in any process; None: not known."""
        self.ran = ran_since_asked()
        return self.ran

    def plans(self, world: str) -> Iterator[TrialPlan | NotDrawn]:
        """Yield the plans to try, at most ``trials``; one that cannot be drawn counts as one that is tried."""
        return islice(self.fixed or self._drawn(world), self.trials)

    def _drawn(self, world: str) -> Iterator[TrialPlan | NotDrawn]:
        """Yield plans of the profiles in turn, more of those whose plans run the patch; each has its own seed."""
        named = self.file.profiles if self.file is not None and self.file.profiles else PROFILES[world]
        constraints = Constraints(
            self.system.job, self.system.capabilities, takes=partial(takes_settings, self.system)
        )
        turns = [_Turns(profile_named(name)) for name in named]
        for seed in count(self.seed):
            turn = min(turns, key=lambda each: each.waits)
            yield _drawn_plan(seed, turn.profile, constraints)
            turn.tried += 1
            turn.ran += self.ran is not False


def _drawn_plan(seed: int, profile: Profile, constraints: Constraints) -> TrialPlan | NotDrawn:
    try:
        return draw_plan(seed, profile, constraints)
    except Exception as error:  # noqa: BLE001 - it is counted and shown, and the other plans are tried
        return NotDrawn(error)


def read_patch(path: Path) -> str:
    """Read the file of a patch; raises UsageProblem if there is nothing in it."""
    text = read_text(path)
    if not text.strip():
        raise UsageProblem(
            f"{path} is empty: give a unified diff, or a file like those in harness/reference/bugs"
        )
    return text


def users_bug(text: str, path: Path, system: SystemUnderTest, trials: int, seed: int) -> UsersBug:
    """Return the bug in a file; raises UsageProblem for a planted bug's file that nothing could catch."""
    if is_diff(text):
        return UsersBug(path.stem, text, None, (), trials, seed, system)
    bug = read_bug(text, str(path))
    _require_known(bug.file, path)
    fixed = tuple(msgspec.structs.replace(plan, mutant=None) for plan in bug.plans(system.world))
    return UsersBug(bug.id, text, bug.file, fixed, trials, seed, system)


def _require_known(file: BugFile, path: Path) -> None:
    """Raise UsageProblem for a clause or a checker that there is not: nothing could catch such a bug."""
    checkers = standard_checkers()
    clauses = {clause: None for checker in checkers for clause in checker.covers}
    if file.clause not in clauses:
        raise UsageProblem(
            f"{path}: no checker covers clause {file.clause!r}, so no trial could show it (docs/checkers.md "
            f"lists those that one can show){nearest(file.clause, clauses)}"
        )
    names = {checker.name: None for checker in checkers}
    for name in file.checkers:
        if name not in names:
            raise UsageProblem(f"{path}: checkers: there is no checker {name!r}{nearest(name, names)}")
