"""Tests one property: plays drawn or listed steps, makes a failing sequence smaller, and says what was shown."""

from __future__ import annotations

import time
from typing import Any

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
from barrier_tck.harness.certify.engine.failure import Failure
from barrier_tck.harness.certify.engine.hunt import Hunt
from barrier_tck.harness.certify.engine.levels import seeds_of_rounds
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.engine.shrinker import smallest
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.certify.engine.violation import Violation

_KNOWN_SHARE = 0.4
"""A sequence that breaks a clause that another property broke before is made smaller with this share of the steps."""
_ASKED_MAX = 5
"""So many times the examples of a property are drawn at most, if they do not show what they should."""
_MORE_SHARE = 0.25
"""This share of them is drawn at once if there were enough that showed something, but a situation was not reached."""
NOT_DRAWN = "the drawn examples had no step of kind"
NOT_SHOWN = "the examples were too few to show"
"""The beginning of the reason if there were too few examples to show anything."""
NOT_REACHED = "the examples were too few to reach"
"""The beginning of the reason if a situation was not reached as often as the property demands."""


def check(
    one: Property[StepT],
    stage: Stage[StepT],
    seed: int,
    scale: float = 1.0,
    shrink: bool = True,
    broken: frozenset[str] = frozenset(),
) -> tuple[PropertyOutcome, Failure[StepT] | None]:
    """Test one property.

    ``scale`` multiplies the number of examples. ``shrink``: a failing sequence is made smaller. ``broken`` has the
    clauses that other properties broke before.
    """
    began, before = time.monotonic(), stage.processes
    hunt = Hunt(stage, one.clauses, name=one.name)
    found = None
    try:
        _play(one, hunt, seed, scale)
        if hunt.breach is not None:
            known = hunt.breach.violation.clause in broken
            found = smallest(stage, hunt.breach, (_KNOWN_SHARE if known else 1.0) * shrink, one.name)
    finally:
        stage.close()
    failure = None
    outside = str(found.violation) if found is not None and found.violation.from_outside else ""
    if outside:
        found = None
    if found is not None:
        failure = Failure(stage.target, one.name, str(found.violation), found.steps, layout=stage.layout)
    if outside:
        status, reason = (
            "unknown",
            f"{outside}: another program ended it, so this says nothing about the candidate",
        )
    else:
        status, reason = ("failed", str(found.violation)) if found else _without_breach(one, hunt, scale)
    return (
        outcome_of(
            one,
            status,
            reason,
            examples=hunt.examples,
            idle=hunt.idle,
            calls=hunt.calls,
            processes=stage.processes - before,
            seconds=round(time.monotonic() - began, 2),
            seed=seed,
            shown={clause: hunt.shown[clause] for clause in one.clauses if hunt.shown[clause]},
            reached=dict(sorted(hunt.reached.items())),
            not_asked=_not_asked(one, hunt) if status == "passed" else {},
            violated=(found.violation.clause or one.clauses[0]) if found else "",
            sequence=tuple(step.description() for step in found.steps) if found else (),
        ),
        failure,
    )


def outcome_of(one: Property[Any], status: str, reason: str = "", **more: Any) -> PropertyOutcome:
    """Return the outcome of a property."""
    return PropertyOutcome(one.name, one.level, one.clauses, one.text, status, reason, **more)


def skipped(one: Property[Any], reason: str, optional: bool = False) -> PropertyOutcome:
    """Return the outcome of a property that is not run."""
    return outcome_of(one, "skipped", reason, optional=optional)


def _play(one: Property[StepT], hunt: Hunt[StepT], seed: int, scale: float) -> None:
    if one.listed is not None:
        try:
            hunt.play(one.listed(scale))
        except Violation:
            assert hunt.breach is not None
        return
    assert one.drawn is not None, f"{one.name} has no steps"
    wanted, asked = _wanted(one, scale), 0
    for seed_of_round in seeds_of_rounds(seed):
        missing = wanted - hunt.examples
        more = missing if missing > 0 else max(1, round(wanted * _MORE_SHARE))
        one.drawn.run(one, hunt, seed_of_round, more)
        asked += more
        if hunt.over or (hunt.examples >= wanted and not _lacking(one, hunt, scale)):
            return
        if asked >= _ASKED_MAX * wanted:
            return


def _wanted(one: Property[StepT], scale: float) -> int:
    return max(1, round(one.examples * scale))


def _without_breach(one: Property[StepT], hunt: Hunt[StepT], scale: float) -> tuple[str, str]:
    """Return the status of a property without a violation, and the reason."""
    if hunt.stage.remaining_s < 0:
        return "unknown", "the total time was used up before all examples had run"
    lacking = _lacking(one, hunt, scale)
    return ("unknown", lacking) if lacking else ("passed", "")


def _not_asked(one: Property[StepT], hunt: Hunt[StepT]) -> dict[str, str]:
    """Return the situations that cannot come about with this candidate, each with the reason."""
    return {
        situation: f"no example had {needed}"
        for situation, needed in one.only_with
        if not hunt.reached[needed]
    }


def _lacking(one: Property[StepT], hunt: Hunt[StepT], scale: float) -> str:
    """Return what the examples have not shown, as a reason; empty if nothing is lacking."""
    missing = [kind for kind in one.needs if not hunt.kinds[kind]]
    if missing or not hunt.kinds:
        return f"{NOT_DRAWN} {', '.join(missing)}"
    unshown = [clause for clause in one.clauses if not hunt.shown[clause]]
    if unshown:
        return f"{NOT_SHOWN} {', '.join(unshown)}"
    if one.drawn is not None and 2 * hunt.examples < _wanted(one, scale):
        return (
            f"{NOT_SHOWN} {', '.join(one.clauses)}: {hunt.examples} examples did, {hunt.idle} showed nothing"
        )
    cannot_be = _not_asked(one, hunt)
    for situation, least in one.reaches:
        if situation in cannot_be:
            continue
        demanded = max(1, round(least * min(1.0, scale)))
        if hunt.reached[situation] < demanded:
            return f"{NOT_REACHED} this {demanded} times: {situation} ({hunt.reached[situation]} times)"
    return ""
