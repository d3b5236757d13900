"""Tests one property: plays drawn or listed steps, makes a failing sequence smaller, and says what was shown."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.errors import HypothesisException

from barrier_tck.harness.certify.certificate import PropertyOutcome
from barrier_tck.harness.certify.hunting import NOT_DRAWN, NOT_SHOWN, seeds_of_rounds
from barrier_tck.harness.certify.spark_stores import store_steps as steps
from barrier_tck.harness.certify.spark_stores.layouts import LAYOUTS, StoreLayout
from barrier_tck.harness.certify.spark_stores.session import StoreSession
from barrier_tck.harness.certify.spark_stores.store_processes import StoreProcesses
from barrier_tck.harness.certify.spark_stores.store_properties import StoreProperty
from barrier_tck.harness.certify.store_models import Violation

_PLAIN_KEY = (0, "a")
SHRINK_S_MAX = 15.0
"""For how many seconds, at most, a failing sequence is made smaller."""
_KNOWN_SHARE = 0.2
"""A sequence that breaks a promise that another property broke before is made smaller for this share of the time."""


class StoreFailure(msgspec.Struct, frozen=True):
    """A failing sequence on a state store; the content of a replay file."""

    target: str
    property: str
    layout: str
    violation: str
    steps: tuple[steps.AnyStep, ...]
    version: int = 1


@dataclass(slots=True)
class _Hunt:
    """What all examples of one property share."""

    processes: StoreProcesses
    layout: StoreLayout
    shrink_s: float
    broken: frozenset[str]
    examples: int = 0
    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    shown: Counter[str] = field(default_factory=Counter)
    smallest: tuple[steps.Steps, Violation] | None = None
    gives_up_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is played."""
        if self.processes.remaining_s < 0:
            return True
        return self.gives_up_at is not None and time.monotonic() > self.gives_up_at

    def play(self, sequence: steps.Steps) -> None:
        """Play one example and remember the smallest one that fails; raises its Violation."""
        if self.over:
            return
        session = session_for(sequence, self.processes, self.layout)
        try:
            play(session, sequence)
        except Violation as violation:
            if self.smallest is None:
                known = violation.clause in self.broken
                self.gives_up_at = time.monotonic() + self.shrink_s * (_KNOWN_SHARE if known else 1.0)
                self.smallest = tuple(session.played), violation
            elif violation.clause == self.smallest[1].clause and len(session.played) <= len(self.smallest[0]):
                self.smallest = tuple(session.played), violation
            if violation.hung:
                self.gives_up_at = 0.0
            raise
        finally:
            self.examples += 1
            self.calls += session.calls
            self.kinds.update(str(type(step).__struct_config__.tag) for step in session.played)
            self.shown.update(session.shown)


def session_for(sequence: steps.Steps, processes: StoreProcesses, layout: StoreLayout) -> StoreSession:
    """Return a session in which these steps can be played."""
    disturbed = any(isinstance(step, steps.TroubleWrites) for step in sequence)
    return StoreSession(processes, layout, processes.new_checkpoints(), disturbed)


def play(
    session: StoreSession,
    sequence: steps.Steps,
    tell: Callable[[int, steps.AnyStep], None] = lambda number, step: None,
) -> None:
    """Play steps; raises Violation, and leaves the JVM so that the next example can use it, or another one."""
    try:
        for number, step in enumerate(sequence, 1):
            tell(number, step)
            session.apply(step)
        session.close()
    except Violation as violation:
        if violation.fatal:
            session.processes.replace()
        else:
            session.abandon()
        raise


def check_store(
    one: StoreProperty,
    processes: StoreProcesses,
    seed: int,
    scale: float = 1.0,
    shrink_s: float = SHRINK_S_MAX,
    broken: frozenset[str] = frozenset(),
) -> tuple[PropertyOutcome, StoreFailure | None]:
    """Test one property.

    ``scale`` multiplies the number of examples. A failing sequence is made smaller for at most ``shrink_s`` seconds.
    ``broken`` has the promises that other properties broke before.
    """
    began, started = time.monotonic(), processes.started
    hunt = _Hunt(processes, one.layout, shrink_s, broken)
    if one.listed:
        _fails(hunt, one.listed)
    else:
        for seed_of_round in seeds_of_rounds(seed):
            _play_drawn(one, hunt, seed_of_round, max(1, round(one.examples * scale)))
            if hunt.smallest is not None or hunt.over or not _lacking(one, hunt):
                break
    if hunt.smallest is not None:
        _make_smaller(hunt)
    failure, violated = None, ""
    if hunt.smallest is not None:
        sequence, violation = hunt.smallest
        failure = StoreFailure(processes.target.name, one.name, one.layout.name, str(violation), sequence)
        status, reason = "failed", str(violation)
        violated = violation.clause or one.promises[0]
    else:
        status, reason = _undisturbed(one, hunt)
    return (
        PropertyOutcome(
            name=one.name,
            level=one.level,
            clauses=one.promises,
            text=one.text,
            status=status,
            reason=reason,
            examples=hunt.examples,
            calls=hunt.calls,
            processes=processes.started - started,
            seconds=round(time.monotonic() - began, 2),
            seed=seed,
            shown={promise: hunt.shown[promise] for promise in one.promises if hunt.shown[promise]},
            violated=violated,
            sequence=tuple(steps.description_of(step) for step in failure.steps) if failure else (),
        ),
        failure,
    )


def skipped_store(one: StoreProperty, reason: str, optional: bool = False) -> PropertyOutcome:
    """Return the outcome of a property that is not run."""
    return PropertyOutcome(one.name, one.level, one.promises, one.text, "skipped", reason, optional=optional)


def replay_store(
    failure: StoreFailure, processes: StoreProcesses, tell: Callable[[int, steps.AnyStep], None]
) -> Violation | None:
    """Play a saved sequence again in a new JVM; return what is violated, or None."""
    session = session_for(failure.steps, processes, LAYOUTS[failure.layout])
    try:
        play(session, failure.steps, tell)
    except Violation as violation:
        return violation
    return None


def _play_drawn(one: StoreProperty, hunt: _Hunt, seed: int, examples: int) -> None:
    @hypothesis_seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        # Leaving out steps is what makes such sequences smaller, and Hypothesis would begin with the values.
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(one.sequences())
    def run(sequence: list[steps.AnyStep]) -> None:
        hunt.play(tuple(sequence))

    try:
        run()
    except (Violation, HypothesisException):
        if hunt.smallest is None:
            raise


def _make_smaller(hunt: _Hunt) -> None:
    """Leave out what the failure does not need, large pieces before small ones; then write plain keys and values."""
    assert hunt.smallest is not None
    size = max(1, len(hunt.smallest[0]) // 2)
    while size and not hunt.over:
        kept = hunt.smallest[0]
        fewer = (kept[:start] + kept[start + size :] for start in range(0, len(kept), size))
        if not any(_is_smaller(hunt, sequence) for sequence in fewer):
            size //= 2
    for place in range(len(hunt.smallest[0])):
        kept = hunt.smallest[0]
        for plain in _plainer(kept[place]) if place < len(kept) else ():
            _fails(hunt, (*kept[:place], plain, *kept[place + 1 :]))


def _plainer(step: steps.AnyStep) -> Iterator[steps.AnyStep]:
    if isinstance(step, (steps.PutRow, steps.MergeRow)):
        yield msgspec.structs.replace(step, family=0, key=_PLAIN_KEY, value="x")
        yield msgspec.structs.replace(step, value="x")


def _is_smaller(hunt: _Hunt, sequence: steps.Steps) -> bool:
    """Play fewer steps; tell whether they fail for the same reason, and are the smallest now."""
    before = hunt.smallest
    _fails(hunt, sequence)
    return hunt.smallest is not before


def _fails(hunt: _Hunt, sequence: steps.Steps) -> bool:
    try:
        hunt.play(sequence)
    except Violation:
        return True
    return False


def _undisturbed(one: StoreProperty, hunt: _Hunt) -> tuple[str, str]:
    """Return the status of a property without a violation, and the reason."""
    if hunt.processes.remaining_s < 0:
        return "unknown", "the total time is used up"
    lacking = _lacking(one, hunt)
    return ("unknown", lacking) if lacking else ("passed", "")


def _lacking(one: StoreProperty, hunt: _Hunt) -> str:
    """Return the first thing that the examples have not shown, in words; empty if nothing is lacking."""
    for kind in one.needs:
        if not hunt.kinds[kind]:
            return f"{NOT_DRAWN} {kind}"
    for promise in one.promises:
        if not hunt.shown[promise]:
            return f"{NOT_SHOWN} {promise}"
    return ""
