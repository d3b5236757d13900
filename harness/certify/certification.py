"""A certification while it runs: which properties are run, and the certificate that their outcomes make so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from barrier_tck.harness.certify.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    PropertyOutcome,
    Strength,
    achieved,
    clause_results,
    verdict_of,
)
from barrier_tck.harness.certify.properties import LEVELS
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem

INTERRUPTED = "the certification was interrupted before it was run"

Progress = Callable[[PropertyOutcome], None]
"""Called with the outcome of every property as soon as it is known."""
Keep = Callable[[Certificate], None]
"""Called after every property with what has been shown so far, as a certificate that says it was interrupted."""


def drop_certificate(certificate: Certificate) -> None:
    """Keep nothing until the end: a ``Keep`` for those who have no place for it."""


class HasLevel(Protocol):
    """A property of whatever is certified."""

    @property
    def level(self) -> str:
        """The level that it belongs to."""


PropertyT = TypeVar("PropertyT", bound=HasLevel)
FailureT = TypeVar("FailureT", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is certified, as far as it is known; the fields are those of ``Certificate``."""

    kind: str
    target: str
    backend: str = ""
    capabilities: tuple[str, ...] = ()
    seed: int = 0
    log: str = ""
    arguments: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """What the environment has besides versions and facts of the machine."""
    asks: dict[str, str] = field(default_factory=dict)


class Certification:
    """The outcomes of one certification, in the order in which they come. Each is told, and all so far are kept."""

    def __init__(
        self,
        asked_level: str,
        planned: Sequence[PropertyOutcome],
        subject: Callable[[], Subject],
        starts: str = "",
        progress: Progress = lambda outcome: None,
        keep: Keep = drop_certificate,
    ) -> None:
        """Begin.

        ``planned`` says of each property that it was not run. ``starts`` names the outcome, none of the planned ones,
        which tells whether the candidate can be used at all: if it failed, nothing is run.
        """
        self.asked_level = asked_level
        self.outcomes: list[PropertyOutcome] = []
        self._planned = planned
        self._subject = subject
        self._starts = starts
        self._progress = progress
        self._keep = keep
        self._began, self._started_at = time.monotonic(), datetime.now(UTC)

    def add(self, outcome: PropertyOutcome) -> None:
        """Take the next outcome."""
        self.outcomes.append(outcome)
        self._progress(outcome)
        run = {one.name for one in self.outcomes}
        left_out = [one for one in self._planned if one.name not in run]
        self._keep(self._certificate((*self.outcomes, *left_out), interrupted=True))

    def run(
        self,
        properties: Iterable[PropertyT],
        leave_out: Callable[[PropertyT, str], PropertyOutcome],
        check: Callable[[PropertyT, frozenset[str]], PropertyOutcome],
        why_not: Callable[[PropertyT], PropertyOutcome | None] = lambda one: None,
    ) -> None:
        """Check properties one after the other, except for those of a level that is not begun.

        ``check`` is told which clauses are broken already. ``why_not`` may leave out a property for another reason.
        """
        for one in properties:
            reason = self.why_not(one.level)
            left_out = leave_out(one, reason) if reason else why_not(one)
            if left_out is None:
                left_out = check(one, frozenset(outcome.violated for outcome in self.outcomes))
            self.add(left_out)

    def why_not(self, level: str) -> str:
        """Return why a level is not run, or an empty text.

        It was not asked for, or a level below it failed, or the candidate cannot be used.
        """
        if LEVELS.index(level) > LEVELS.index(self.asked_level):
            return f"the level {level} was not asked for"
        failed = [outcome for outcome in self.outcomes if outcome.status == "failed"]
        below = [outcome.name for outcome in failed if outcome.name == self._starts or outcome.level != level]
        return f"{below[0]} failed" if below else ""

    def certificate(self) -> Certificate:
        """Return what all outcomes make."""
        return self._certificate(tuple(self.outcomes))

    def _certificate(self, outcomes: tuple[PropertyOutcome, ...], interrupted: bool = False) -> Certificate:
        subject, facts = self._subject(), environment()
        return Certificate(
            version=CERTIFICATE_VERSION,
            suite_version=facts["barrier-tck"],
            target=subject.target,
            backend=subject.backend,
            capabilities=subject.capabilities,
            asked_level=self.asked_level,
            level=achieved(outcomes),
            verdict=verdict_of(outcomes, self.asked_level),
            outcomes=outcomes,
            clauses=clause_results(outcomes, self.asked_level),
            seed=subject.seed,
            seconds=round(time.monotonic() - self._began, 2),
            started_at=self._started_at.isoformat(timespec="seconds"),
            environment=facts | subject.settings,
            strength=Strength(measured=False, note="not measured in this run"),
            log=subject.log,
            kind=subject.kind,
            arguments=subject.arguments,
            interrupted=interrupted,
            asks=subject.asks,
        )


def saved(
    outcome: PropertyOutcome, failure: msgspec.Struct | None, directory: Path | None
) -> PropertyOutcome:
    """Write the replay file of a failure, if there is one and a place for it; return the outcome that names it."""
    if failure is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(failure), indent=2) + b"\n")
    return msgspec.structs.replace(outcome, replay=path.name)


def read_replay(path: Path, kind: type[FailureT], of: str) -> FailureT:
    """Read a replay file; raises UsageProblem if it is none ``of`` what is meant."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}; name a replay file") from error
    except msgspec.DecodeError as error:
        raise UsageProblem(f"{path} is not a replay file of {of}: {error}") from error
