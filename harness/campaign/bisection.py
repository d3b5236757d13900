"""Finds since when a plan fails: runs it on commits or releases between one that passes and one that fails."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.child_program import run_program
from barrier_tck.harness.support.errors import UsageProblem

_COMMAND = "barrier_tck.harness.cli.main"


class Candidate(Protocol):
    """What a plan can be run on; as a text, it says which one it is."""

    @property
    def identifier(self) -> str:
        """What tells it from others, for machines."""

    @property
    def kind(self) -> str:
        """What it is, as a noun: ``commit``."""


C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the plan showed on a candidate."""

    verdict: Verdict
    """UNKNOWN: it could not be run or judged there."""
    why: str = ""
    """Why it is UNKNOWN, in one line; empty if it is not."""


Tries = Callable[[C], Outcome]


@dataclass(frozen=True, slots=True)
class Bisected(Generic[C]):
    """What was found."""

    suspects: tuple[C, ...]
    """The first candidate on which the plan fails; several if those between could not be tried."""
    tried: tuple[tuple[C, Outcome], ...]
    """Those on which it ran, in that order."""


@dataclass(frozen=True, slots=True)
class PlanRuns:
    """How the plan is run on each candidate."""

    plan: Path
    system: str | None = None
    """The system under test; None: the default of the candidate's own command."""
    runs: int = 1
    """Where runs differ, the plan fails on a candidate if one of so many runs is INVALID."""
    trusted: bool = False
    """Whether code that the plan names may run."""

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``barrier-tck`` for one run."""
        system = [] if self.system is None else ["--system", self.system]
        trust = ["--trust"] if self.trusted else []
        return ["replay", str(self.plan.absolute()), *system, *trust, "--json"]


def bisect(candidates: Sequence[C], tries: Tries[C]) -> Bisected[C]:
    """Find the first failing one of some candidates, oldest first, of which the first passes and the last fails.

    Each is tried once at most. If one cannot be tried, its nearest neighbour is. Raises UsageProblem if the first does
    not pass or the last does not fail.
    """
    tried: dict[int, Outcome] = {}

    def verdict_at(index: int) -> Verdict:
        if index not in tried:
            tried[index] = tries(candidates[index])
        return tried[index].verdict

    good, bad = 0, len(candidates) - 1
    for index, wanted, name in ((good, Verdict.VALID, "good"), (bad, Verdict.INVALID, "bad")):
        if (found := verdict_at(index)) is not wanted:
            why = f": {tried[index].why}" if tried[index].why else ""
            raise UsageProblem(
                f"the {name} {candidates[index].kind} is to be {wanted.value}, but the plan is {found.value} at "
                f"{candidates[index]}{why}"
            )
    while (middle := _next(good, bad, tried)) is not None:
        match verdict_at(middle):
            case Verdict.VALID:
                good = middle
            case Verdict.INVALID:
                bad = middle
    return Bisected(
        tuple(candidates[good + 1 : bad + 1]),
        tuple((candidates[index], outcome) for index, outcome in tried.items()),
    )


def _next(good: int, bad: int, tried: Mapping[int, Outcome]) -> int | None:
    """Return which candidate to try next: the one nearest to the middle that was not tried; None if there is none."""
    middle = (good + bad) // 2
    return min(
        (index for index in range(good + 1, bad) if index not in tried),
        key=lambda index: (abs(index - middle), index),
        default=None,
    )


def run_elsewhere(python: str, environment: Mapping[str, str], wanted: PlanRuns) -> Outcome:
    """Run a plan with the ``barrier-tck`` that another Python finds, until a run is INVALID; return the worst outcome.

    UNKNOWN if that command gives no verdict, for instance because it cannot read the plan.
    """
    command = [python, "-P", "-m", _COMMAND, *wanted.arguments]
    outcomes = []
    for _ in range(wanted.runs):
        outcomes.append(_outcome(run_program(command, environment)))
        if outcomes[-1].verdict is Verdict.INVALID:
            break
    worst = Verdict.worst([outcome.verdict for outcome in outcomes])
    return next(outcome for outcome in outcomes if outcome.verdict is worst)


def _outcome(done: subprocess.CompletedProcess[str]) -> Outcome:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else f"it ended with exit code {done.returncode} and said nothing"
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if "error" in answer:
            return Outcome(Verdict.UNKNOWN, str(answer["error"]).partition("\n")[0])
        verdict = Verdict(answer["verdict"])
    except (IndexError, KeyError, TypeError, ValueError):
        return Outcome(Verdict.UNKNOWN, said)
    return Outcome(verdict, said if verdict is Verdict.UNKNOWN else "")
