"""The commits between two, and how a plan is run on each of them: with its code, checked out beside the repository."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.campaign.bisection import Outcome, PlanRuns, Tries, run_elsewhere
from barrier_tck.harness.support.child_program import run_program
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
    """Return the commits from a good one to a bad one, oldest first.

    Raises UsageProblem if there is no way between or no such repository, and EnvironmentProblem if there is no git.
    """
    # Without git, or outside a repository, no name is one of a commit.
    looked = _ran(repository, "rev-parse", "--git-dir")
    if looked.returncode != 0:
        raise UsageProblem(
            f"git finds no repository in {repository} ({looked.stderr.strip()}); --repository names a checkout of "
            "barrier-tck, and --releases says that they are released versions"
        )
    first, last = (_commit(repository, name) for name in (good, bad))
    if first == last:
        raise UsageProblem(
            f"{good} and {bad} are the same commit, {first[:10]}; name one that passes, and a later one that fails"
        )
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
    """Give what runs a plan on a commit; the checkout is removed at the end, also if it is only half made."""
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
        except BaseException:
            # What git says of a half-made checkout would hide the interrupt.
            with contextlib.suppress(EnvironmentProblem):
                _remove(repository, checkout)
            raise
        if checkout.exists():
            _remove(repository, checkout)


def _remove(repository: Path, checkout: Path) -> None:
    """Remove a checkout, and what the repository knows of it; ``worktree prune`` would also forget those of others."""
    shutil.rmtree(checkout, ignore_errors=True)
    # By force twice: a half-made one is locked.
    _git(repository, "worktree", "remove", "--force", "--force", str(checkout))


def _git(repository: Path, *arguments: str) -> str:
    """Return what git prints; raises EnvironmentProblem with its own words."""
    done = _ran(repository, *arguments)
    if done.returncode != 0:
        raise EnvironmentProblem(f"git {arguments[0]} in {repository}: {done.stderr.strip()}")
    return done.stdout


def _ran(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git to its end; if interrupted, it tidies up by itself, and no program that it runs goes on writing."""
    try:
        return run_program(["git", "-C", str(repository), *arguments], os.environ)
    except FileNotFoundError as error:
        raise EnvironmentProblem("git is not installed; install it to run a plan on older commits") from error
