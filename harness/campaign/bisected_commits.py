"""The commits between two, and how a plan is run on each of them: with its code, checked out beside the repository."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.campaign.bisection import Outcome, PlanRuns, Tries, run_elsewhere
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.work_directories import temporary_work_directory


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the repository."""

    identifier: str
    """The full hash."""
    subject: str

    @property
    def kind(self) -> str:
        """What it is, as a noun."""
        return "commit"

    def __str__(self) -> str:
        """Return the short hash and the subject."""
        return f"{self.identifier[:10]} {self.subject}"


def commits_between(repository: Path, good: str, bad: str) -> tuple[Commit, ...]:
    """Return the commits from a good one to a bad one, oldest first; raises UsageProblem if there is no way between."""
    first, last = (_commit(repository, name) for name in (good, bad))
    between = _git(repository, "rev-list", "--reverse", "--ancestry-path", f"{first}..{last}").split()
    if not between:
        raise UsageProblem(f"{good} is no ancestor of {bad}: name the older commit first")
    return tuple(
        Commit(identifier, _git(repository, "show", "-s", "--format=%s", identifier).strip())
        for identifier in (first, *between)
    )


def _commit(repository: Path, name: str) -> str:
    try:
        return _git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        ).strip()
    except EnvironmentProblem as error:
        raise UsageProblem(
            f"{name} is no commit of the repository {repository}; if it is a released version, add --releases"
        ) from error


@contextlib.contextmanager
def trying_commits(repository: Path, wanted: PlanRuns) -> Iterator[Tries[Commit]]:
    """Give what runs a plan on a commit; the checkout is removed at the end."""
    with temporary_work_directory("bisect") as directory:
        checkout = Path(directory) / "checkout"

        def tries(commit: Commit) -> Outcome:
            if checkout.exists():
                _git(checkout, "checkout", "--quiet", "--force", "--detach", commit.identifier)
            else:
                _git(repository, "worktree", "add", "--quiet", "--detach", str(checkout), commit.identifier)
            return run_elsewhere(sys.executable, {**os.environ, "PYTHONPATH": str(checkout / "src")}, wanted)

        try:
            yield tries
        finally:
            if checkout.exists():
                _git(repository, "worktree", "remove", "--force", str(checkout))


def _git(repository: Path, *arguments: str) -> str:
    """Return what git prints; raises EnvironmentProblem with its own words."""
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError as error:
        raise EnvironmentProblem("git is not installed; install it to run a plan on older commits") from error
    except subprocess.CalledProcessError as error:
        raise EnvironmentProblem(f"git {arguments[0]} in {repository}: {error.stderr.strip()}") from error
