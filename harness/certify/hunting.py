"""Tests one property: plays drawn or listed steps, makes a failing sequence smaller, and says what was shown."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import msgspec

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.certificate import PropertyOutcome
from barrier_tck.harness.certify.comparison import Session
from barrier_tck.harness.certify.declared_capabilities import CONCURRENT
from barrier_tck.harness.certify.machine import SHRINK_S_MAX, Hunt
from barrier_tck.harness.certify.machine_hunt import hunt_with_machine
from barrier_tck.harness.certify.pool import CandidateDied, CandidateRaised, Pool
from barrier_tck.harness.certify.properties import Property
from barrier_tck.harness.certify.smaller import make_smaller
from barrier_tck.harness.certify.step_descriptions import description_of
from barrier_tck.harness.certify.store_models import Violation

DELETION_FACTOR = 4.0
"""After Hypothesis, needless steps are removed for this many times as long."""
ROUNDS_MAX = 5
"""Examples are drawn again, with another seed, up to this number of times, if they do not show what they should."""
_KNOWN_SHARE = 0.1
"""A sequence that breaks a clause that another property broke before is made smaller for this share of the time."""
NOT_DRAWN = "the drawn examples had no step of kind"
NOT_SHOWN = "the examples were too few to show"
"""The beginning of the reason if there were too few examples to show anything."""


class Failure(msgspec.Struct, frozen=True):
    """A failing sequence that can be replayed; the content of a replay file."""

    target: str
    property: str
    violation: str
    steps: tuple[steps.AnyStep, ...]
    version: int = 1


def check(
    one: Property,
    pool: Pool,
    seed: int,
    scale: float = 1.0,
    shrink_s: float = SHRINK_S_MAX,
    declared: tuple[str, ...] = (),
    broken: frozenset[str] = frozenset(),
) -> tuple[PropertyOutcome, Failure | None]:
    """Test one property.

    ``scale`` multiplies the number of examples. A failing sequence is made smaller for at most a few times ``shrink_s``
    seconds; not at all if this is 0. ``declared`` has the names of the capabilities that the backend declares; what it
    does not declare is not tested. ``broken`` has the clauses that other properties broke before.
    """
    if one.capability and one.capability not in declared:
        return skipped(one, f"the backend does not declare {one.capability}", optional=True), None
    began = time.monotonic()
    hunt = Hunt(pool, shrink_s=shrink_s)
    if one.fixed is not None:
        _play_fixed(one.fixed(scale), hunt)
    else:
        examples = max(1, round(one.examples * scale))
        for seed_of_round in seeds_of_rounds(seed):
            hunt_with_machine(
                *(hunt, one.moves, seed_of_round, examples, one.steps_max, one.restarts_max, one.finale),
                capability=one.capability,
                concurrent=CONCURRENT in declared,
            )
            if hunt.failure is not None or hunt.give_up or not _lacking(one, hunt):
                break
    failure, violated = None, ""
    if hunt.failure is not None:
        known = hunt.failure[1].clause in broken
        sequence, violation = _smallest(hunt, shrink_s * (_KNOWN_SHARE if known else 1.0))
        failure = Failure(pool.target, one.name, str(violation), sequence)
        status, reason = "failed", str(violation)
        violated = violation.clause or one.clauses[0]
    else:
        status, reason = _undisturbed(one, hunt)
    return (
        PropertyOutcome(
            name=one.name,
            level=one.level,
            clauses=one.clauses,
            text=one.text,
            status=status,
            reason=reason,
            examples=hunt.examples,
            calls=hunt.calls,
            processes=hunt.processes,
            seconds=round(time.monotonic() - began, 2),
            seed=seed,
            shown={clause: hunt.shown[clause] for clause in one.clauses if clause in hunt.shown},
            violated=violated,
            sequence=tuple(description_of(step) for step in failure.steps) if failure else (),
        ),
        failure,
    )


def _undisturbed(one: Property, hunt: Hunt) -> tuple[str, str]:
    """Return the status of a property without a violation, and the reason."""
    if hunt.pool.remaining_s < 0:
        return "unknown", "the total time was used up before all examples had run"
    lacking = _lacking(one, hunt)
    return ("unknown", lacking) if lacking else ("passed", "")


def _lacking(one: Property, hunt: Hunt) -> str:
    """Return what the examples have not shown, in words; empty if nothing is lacking."""
    missing = [kind for kind in one.needs if not hunt.kinds.get(kind)]
    if missing or not hunt.steps_played:
        return f"{NOT_DRAWN} {', '.join(missing)}"
    unshown = [clause for clause in one.clauses if not hunt.shown.get(clause)]
    return f"{NOT_SHOWN} {', '.join(unshown)}" if unshown else ""


def seeds_of_rounds(seed: int) -> tuple[int, ...]:
    """Return the seed of each round of examples: the given one first."""
    return (seed, *(zlib.crc32(f"{seed} round {number}".encode()) for number in range(2, ROUNDS_MAX + 1)))


def skipped(one: Property, reason: str, optional: bool = False) -> PropertyOutcome:
    """Return the outcome of a property that is not run."""
    return PropertyOutcome(one.name, one.level, one.clauses, one.text, "skipped", reason, optional=optional)


def play(
    pool: Pool, sequence: tuple[steps.AnyStep, ...], tell: Callable[[int, steps.AnyStep], None] | None = None
) -> Violation | None:
    """Play steps in a new process; return what is violated, or None. Raises no error of the candidate.

    ``tell`` is told of each step, by its number from 1, before it is played.
    """
    try:
        session = Session(pool)
    except Violation as violation:
        return violation
    except (CandidateDied, CandidateRaised) as error:
        return Violation(f"the backend could not be made: {error}")
    try:
        for number, step in enumerate(sequence, 1):
            if tell is not None:
                tell(number, step)
            session.apply(step)
        session.close()
    except Violation as violation:
        return violation
    finally:
        session.abandon()
    return None


def _smallest(hunt: Hunt, shrink_s: float) -> tuple[tuple[steps.AnyStep, ...], Violation]:
    """Return the smallest failing sequence that also fails in a new process, and what it violates."""
    assert hunt.failure is not None
    found, violation = hunt.failure
    if not shrink_s or hunt.hung or len(found) < 2:
        return found, violation
    smaller, _ = make_smaller(hunt, found, violation, DELETION_FACTOR * shrink_s)
    repeated = play(hunt.pool, smaller)
    return (smaller, repeated) if repeated is not None else (found, violation)


def _play_fixed(sequence: tuple[steps.AnyStep, ...], hunt: Hunt) -> None:
    session = None
    try:
        session = hunt.begin()
        for step in sequence:
            if hunt.pool.remaining_s < 0:
                session.abandon()
                return
            session.apply(step)
        session.close()
        hunt.ended(session)
    except Violation as violation:
        if session is None:
            hunt.failure = (), violation
        else:
            hunt.failed(session, violation)
    finally:
        hunt.close()
