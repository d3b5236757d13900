"""A user's own bug, from a file that the command line names: which checkers catch it, and how soon?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

import msgspec

from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.draw.profiles import OF_WORLD
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.bug_file import BugFile, read_bug
from barrier_tck.harness.reference.bugs.diff import files_of, is_diff
from barrier_tck.harness.reference.bugs.drawn_plans import DrawnPlans
from barrier_tck.harness.reference.bugs.patched_copy import ran_since_asked
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest, read_text
from barrier_tck.harness.system.system_under_test import SystemUnderTest


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
    search: Search
    system: SystemUnderTest
    ran: bool | None = None
    """Whether the lines ran in the trial of the plan that was yielded last; None: not known."""
    _drawn: DrawnPlans | None = field(default=None, init=False)

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
        return tuple(OF_WORLD)

    def planted_in(self, plan: TrialPlan) -> TrialPlan:
        return msgspec.structs.replace(plan, patch=self.text)

    def ran_since_asked(self) -> bool | None:
        """Return whether its lines ran, in any process; None: not known."""
        self.ran = ran_since_asked()
        return self.ran

    def plans(self, world: str) -> Iterator[TrialPlan | NotDrawn]:
        """Yield the plans to try, at most ``trials``."""
        if self.fixed:
            return islice(self.fixed, self.trials)
        named = self.file.profiles if self.file is not None and self.file.profiles else OF_WORLD[world]
        self._drawn = DrawnPlans(named, self.system, self.search)
        return islice(self._drawn.plans(self.ran for _ in count()), self.trials)

    @property
    def learns(self) -> bool:
        """Whether its plans follow from what trials reached."""
        return self.search.learns and not self.fixed

    def learn(self, reached: tuple[str, ...], promising: bool) -> None:
        if self._drawn is not None:
            self._drawn.learn(reached, promising)


def read_patch(path: Path) -> str:
    """Read the file of a patch; raises UsageProblem if there is nothing in it."""
    text = read_text(path)
    if not text.strip():
        raise UsageProblem(
            f"{path} is empty: give a unified diff, or a file like those in harness/reference/bugs"
        )
    return text


def users_bug(text: str, path: Path, system: SystemUnderTest, trials: int, search: Search) -> UsersBug:
    """Return the bug in a file; raises UsageProblem for a planted bug's file that nothing could catch."""
    if is_diff(text):
        return UsersBug(path.stem, text, None, (), trials, search, system)
    bug = read_bug(text, str(path))
    _require_known(bug.file, path)
    fixed = tuple(msgspec.structs.replace(plan, mutant=None) for plan in bug.plans(system.world))
    return UsersBug(bug.id, text, bug.file, fixed, trials, search, system)


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
