"""Looks for one bug: rounds with fresh seeds until its processor time is over or something is found that is the bug.

What is found is played with a release that does not have the bug. If it is there too, it is something else, and the
search goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from barrier_tck.harness.yardstick.bugs import KnownBug
from barrier_tck.harness.yardstick.results import Finding, Played, Result, Round, Status


@dataclass(frozen=True, slots=True)
class Looked:
    """What one round showed."""

    round: Round
    problem: str = ""
    """Why it could not be run, or not to its end; empty if nothing was wrong."""


class Search(Protocol):
    """What runs a round, and plays a finding again."""

    def look(self, bug: KnownBug, seed: int, seconds: float) -> Looked:
        """Run a round with the release that has the bug, for so much processor time at most."""

    def play(self, bug: KnownBug, finding: Finding, release: str) -> tuple[Played, str]:
        """Play a finding with a release; return what it shows there, and why if that is not known."""


def look_for(
    bug: KnownBug,
    before: Result | None,
    seconds: float,
    search: Search,
    new_seed: Callable[[], int],
    keep: Callable[[Result], None],
) -> Result:
    """Look for a bug until it is found or ``seconds`` of processor time are used; return what became of it.

    Goes on with ``before``, whose time counts. ``keep`` is given what is known after each round, and at the end.
    """
    result = before or Result(bug.id, bug.pyspark, bug.compared)
    if bug.cannot_run:
        return _kept(result, keep, status=Status.CANNOT_RUN, reason=bug.cannot_run)
    result = msgspec.structs.replace(result, status=Status.UNFINISHED, reason="")
    while result.processor_seconds < seconds:
        looked = search.look(bug, new_seed(), seconds - result.processor_seconds)
        if not looked.round.tried and not looked.round.findings:
            reason = looked.problem or "a round ended without a trial, and did not say why"
            status = _status(result) if result.rounds else Status.CANNOT_RUN
            return _kept(result, keep, status=status, reason=reason)
        findings = tuple(_played(bug, finding, search) for finding in looked.round.findings)
        done = msgspec.structs.replace(looked.round, findings=findings)
        result = _kept(result, keep, rounds=(*result.rounds, done), reason=looked.problem)
        if _status(result) is Status.FOUND:
            break
    return _kept(result, keep, status=_status(result))


def reconsidered(result: Result) -> Result:
    """Return a result as it is now that a person has confirmed or dismissed some of its findings.

    If nothing is left of what ended the search, there is time left for it.
    """
    status = _status(result)
    if result.status is Status.FOUND and status is not Status.FOUND:
        return msgspec.structs.replace(result, status=Status.UNFINISHED)
    if result.status in (Status.ELSEWHERE_TOO, Status.UNCLEAR, Status.NOT_FOUND):
        return msgspec.structs.replace(result, status=status)
    return result


def _kept(result: Result, keep: Callable[[Result], None], **changes: object) -> Result:
    changed = msgspec.structs.replace(result, **changes)
    keep(changed)
    return changed


def _played(bug: KnownBug, finding: Finding, search: Search) -> Finding:
    again, _ = search.play(bug, finding, bug.pyspark)
    compared, why = search.play(bug, finding, bug.compared)
    return msgspec.structs.replace(finding, on_affected=again, on_compared=compared, why=why)


def _status(result: Result) -> Status:
    """Return what the findings say: one that is the bug counts, whatever else was found."""
    shown = {_shown(finding) for finding in result.findings if not finding.dismissed}
    order = (Status.FOUND, Status.UNCLEAR, Status.ELSEWHERE_TOO)
    return next((status for status in order if status in shown), Status.NOT_FOUND)


def _shown(finding: Finding) -> Status:
    """Return what one finding says. That a race does not show elsewhere is no sign if it does not show again here."""
    if finding.confirmed:
        return Status.FOUND
    if finding.on_compared is Played.THERE:
        return Status.ELSEWHERE_TOO
    repeats = finding.on_affected is Played.THERE
    return Status.FOUND if repeats and finding.on_compared is Played.GONE else Status.UNCLEAR
