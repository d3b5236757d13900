"""A certification while it runs: which properties are run, and the certificate that their outcomes make so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic

import msgspec

from barrier_tck.harness.certify.engine.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    PropertyOutcome,
    Strength,
    TrialShown,
    achieved,
    clause_results,
    verdict_of,
)
from barrier_tck.harness.certify.engine.check import outcome_of, skipped
from barrier_tck.harness.certify.engine.continuation import ended, require_same, require_same_capabilities
from barrier_tck.harness.certify.engine.identity import Identity
from barrier_tck.harness.certify.engine.levels import LEVELS
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.notices import notice
from barrier_tck.harness.support.processor_time import processor_seconds
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown

INTERRUPTED = "the certification was interrupted before it was run"
NOT_MEASURED = "not measured in this run"

Progress = Callable[[PropertyOutcome], None]
"""Called with the outcome of every property as soon as it is known."""
Keep = Callable[[Certificate], None]
"""Called after every property with what has been shown so far, as a certificate that says it was interrupted."""


def drop_certificate(certificate: Certificate) -> None:
    """Keep nothing until the end: a ``Keep`` for those who have no place for it."""


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
    identity: Identity = field(default_factory=Identity)


class Certification(Generic[StepT]):
    """The outcomes of one certification, in the order in which they come. Each is reported, and all so far are kept."""

    def __init__(
        self,
        asked_level: str,
        properties: Iterable[Property[StepT]],
        subject: Callable[[], Subject],
        progress: Progress = lambda outcome: None,
        keep: Keep = drop_certificate,
        only: Sequence[str] = (),
        earlier: Certificate | None = None,
    ) -> None:
        """Begin; the properties are run in the order of their levels, only some of them if they are named.

        ``earlier``: an interrupted certificate that is gone on with; what passed or failed there is not run again.

        Raises UsageProblem if there is no property of such a name, or if the earlier certificate is about another
        candidate, level or seed, or by another suite.
        """
        self.asked_level = asked_level
        self.outcomes: list[PropertyOutcome] = []
        self._properties = sorted(properties, key=lambda one: LEVELS.index(one.level))
        self._only = tuple(only)
        names = [one.name for one in self._properties]
        for name in self._only:
            if name not in names:
                raise UsageProblem(f"--only names {shown(name)}, which is no property{nearest(name, names)}")
        self._subject = subject
        self._progress = progress
        self._keep = keep
        self._unusable = ""
        self._began, self._started_at = time.monotonic(), datetime.now(UTC)
        self._earlier: Certificate | None = None
        self._ended: dict[str, PropertyOutcome] = {}
        self._trials: dict[str, tuple[TrialShown, ...]] = {}
        """Property that has not ended -> its trials that were valid so far."""
        if earlier is not None:
            require_same(earlier, self.certificate())
            self._earlier, self._ended = earlier, ended(earlier)
            self._trials = {one.name: one.trials for one in earlier.outcomes if one.trials}

    def add(self, outcome: PropertyOutcome) -> None:
        """Take the next outcome."""
        self.outcomes.append(outcome)
        self._progress(outcome)
        self._keep_so_far()

    def trials_before(self, name: str) -> tuple[TrialShown, ...]:
        """Return the trials of a property that were valid before an interruption, in their order."""
        return self._trials.get(name, ())

    def keep_trials(self, name: str, trials: tuple[TrialShown, ...]) -> None:
        """Keep what trials of a property that has not ended have shown so far."""
        self._trials[name] = trials
        self._keep_so_far()

    def _keep_so_far(self) -> None:
        run = {one.name for one in self.outcomes}
        left_out = [
            self._ended.get(one.name) or self._not_ended(one)
            for one in self._properties
            if one.name not in run
        ]
        self._keep(self._certificate((*self.outcomes, *left_out), interrupted=True))

    def _not_ended(self, one: Property[StepT]) -> PropertyOutcome:
        return msgspec.structs.replace(skipped(one, INTERRUPTED), trials=self.trials_before(one.name))

    def starts(self, one: Property[StepT], problem: str, processes: int = 0) -> None:
        """Add whether the candidate can be used at all; if there is a problem, nothing is run."""
        self._require_same_capabilities()
        self.add(outcome_of(one, "failed" if problem else "passed", problem, processes=processes))
        self._unusable = one.name if problem else ""

    def run(
        self,
        check: Callable[[Property[StepT], frozenset[str]], PropertyOutcome],
        why_not: Callable[[Property[StepT]], PropertyOutcome | None] = lambda one: None,
    ) -> None:
        """Check properties one after the other, except for those of a level that is not begun.

        ``check`` is given the clauses that are broken already. ``why_not`` may leave out a property for another reason.
        """
        self._require_same_capabilities()
        for one in self._properties:
            if one.name in self._ended:
                self._take_over(self._ended[one.name])
                continue
            left_out = "--only leaves it out" if self._only and one.name not in self._only else ""
            reason = left_out or self.why_not(one.level)
            if not reason and one.level == "chaos":
                notice(f"checking {one.name}, which may take minutes")
            outcome = skipped(one, reason) if reason else why_not(one)
            if outcome is None:
                before_s = processor_seconds()
                outcome = check(one, frozenset(earlier.violated for earlier in self.outcomes))
                spent_s = outcome.processor_seconds + processor_seconds() - before_s
                outcome = msgspec.structs.replace(outcome, processor_seconds=round(spent_s, 2))
            self.add(outcome)

    def _require_same_capabilities(self) -> None:
        """Raise UsageProblem if other capabilities were declared before; nothing is kept then."""
        subject = self._subject()
        if self._earlier is not None and self._earlier.backend and subject.backend:
            require_same_capabilities(self._earlier.capabilities, subject.capabilities)

    def _take_over(self, outcome: PropertyOutcome) -> None:
        """Take an outcome of the earlier certificate, in which it is kept; only a failure is told once more."""
        self.outcomes.append(outcome)
        if outcome.status == "failed":
            self._progress(outcome)

    def why_not(self, level: str) -> str:
        """Return why a level is not run, or an empty text.

        It was not asked for, or a level below it failed, or the candidate cannot be used.
        """
        if LEVELS.index(level) > LEVELS.index(self.asked_level):
            return f"the level {level} was not asked for"
        if self._unusable:
            return f"{self._unusable} failed"
        below = [one.name for one in self.outcomes if one.status == "failed" and one.level != level]
        return f"{below[0]} failed" if below else ""

    def certificate(self) -> Certificate:
        """Return what all outcomes make."""
        return self._certificate(tuple(self.outcomes))

    def _certificate(self, outcomes: tuple[PropertyOutcome, ...], interrupted: bool = False) -> Certificate:
        subject, facts = self._subject(), environment()
        spent_s, started_at = time.monotonic() - self._began, self._started_at.isoformat(timespec="seconds")
        strength, log, resumed = Strength(measured=False, note=NOT_MEASURED), subject.log, tuple[str, ...]()
        earlier = self._earlier
        if earlier is not None:
            resumed = (*earlier.resumed, started_at)
            spent_s, started_at = spent_s + earlier.seconds, earlier.started_at
            strength, log = earlier.strength, subject.log or earlier.log
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
            seconds=round(spent_s, 2),
            started_at=started_at,
            environment=facts | subject.settings,
            strength=strength,
            log=log,
            kind=subject.kind,
            arguments=subject.arguments,
            interrupted=interrupted,
            distribution=subject.identity.distribution,
            files=subject.identity.files,
            only=self._only,
            resumed=resumed,
            asks=subject.asks,
        )
