"""Finds the commit since which a plan fails: runs it on commits between one that passes and one that fails."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.work_directories import temporary_work_directory

_COMMAND = "barrier_tck.harness.cli.main"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the repository."""

    identifier: str
    """The full hash."""
    subject: str

    def __str__(self) -> str:
        """Return the short hash and the subject."""
        return f"{self.identifier[:10]} {self.subject}"


@dataclass(frozen=True, slots=True)
class Bisected:
    """What was found."""

    suspects: tuple[Commit, ...]
    """The first commit at which the plan fails; several if those between could not be tried."""
    tried: tuple[tuple[Commit, Verdict], ...]
    """The commits on which it ran, in that order; UNKNOWN: it could not be run or judged there."""


Tries = Callable[[Commit], Verdict]


def bisect(commits: Sequence[Commit], tries: Tries) -> Bisected:
    """Find the first failing one of some commits, oldest first, of which the first passes and the last fails.

    Each is tried once at most. If one cannot be tried, its nearest neighbour is. Raises UsageProblem if the first does
    not pass or the last does not fail.
    """
    tried: dict[int, Verdict] = {}

    def verdict_at(index: int) -> Verdict:
        if index not in tried:
            tried[index] = tries(commits[index])
        return tried[index]

    good, bad = 0, len(commits) - 1
    for index, wanted, name in ((good, Verdict.VALID, "good"), (bad, Verdict.INVALID, "bad")):
        if (found := verdict_at(index)) is not wanted:
            raise UsageProblem(
                f"the {name} commit is to be {wanted.value}, but the plan is {found.value} at {commits[index]}"
            )
    while (middle := _next(good, bad, tried)) is not None:
        match verdict_at(middle):
            case Verdict.VALID:
                good = middle
            case Verdict.INVALID:
                bad = middle
    return Bisected(
        tuple(commits[good + 1 : bad + 1]),
        tuple((commits[index], verdict) for index, verdict in tried.items()),
    )


def _next(good: int, bad: int, tried: dict[int, Verdict]) -> int | None:
    """Return which commit to try next: the one nearest to the middle that was not tried; None if there is none."""
    middle = (good + bad) // 2
    return min(
        (index for index in range(good + 1, bad) if index not in tried),
        key=lambda index: (abs(index - middle), index),
        default=None,
    )


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
        raise UsageProblem(f"{name} is no commit of the repository {repository}") from error


@contextlib.contextmanager
def trying(repository: Path, plan: Path, system: str | None, runs: int) -> Iterator[Tries]:
    """Give what runs a plan on a commit, checked out beside the repository and removed at the end.

    Where runs differ, the plan fails at a commit if one of ``runs`` is INVALID.
    """
    with temporary_work_directory("bisect") as directory:
        checkout = Path(directory) / "checkout"

        def tries(commit: Commit) -> Verdict:
            if checkout.exists():
                _git(checkout, "checkout", "--quiet", "--force", "--detach", commit.identifier)
            else:
                _git(repository, "worktree", "add", "--quiet", "--detach", str(checkout), commit.identifier)
            verdicts = []
            for _ in range(runs):
                verdicts.append(_verdict_in(checkout, plan, system))
                if verdicts[-1] is Verdict.INVALID:
                    break
            return Verdict.worst(verdicts)

        try:
            yield tries
        finally:
            if checkout.exists():
                _git(repository, "worktree", "remove", "--force", str(checkout))


def _verdict_in(checkout: Path, plan: Path, system: str | None) -> Verdict:
    """Return what the code of a checkout says of the plan; UNKNOWN if it gives no verdict."""
    options = [] if system is None else ["--system", system]
    done = subprocess.run(
        [sys.executable, "-P", "-m", _COMMAND, "replay", str(plan.absolute()), *options, "--json"],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return Verdict(json.loads(done.stdout.splitlines()[-1])["verdict"])
    except (IndexError, KeyError, TypeError, ValueError):
        return Verdict.UNKNOWN


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
