"""Whether an interrupted certification may be gone on with: what has ended counts only beside what has not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barrier_tck.harness.certify.engine.certificate import Certificate, PropertyOutcome
from barrier_tck.harness.certify.engine.verification import differences
from barrier_tck.harness.support.errors import UsageProblem

_VERSIONS = ("python", "pyspark", "pyarrow", "hypothesis", "msgspec")
"""On these depends what is drawn, and what candidates do."""
_BEGIN_ANEW = "leave --resume out to begin anew"


def ended(certificate: Certificate) -> dict[str, PropertyOutcome]:
    """Return the outcomes that stay as they are, by the names of the properties: those that passed or failed.

    One that is unknown, for instance because time ran out, is tried again.
    """
    return {one.name: one for one in certificate.outcomes if one.status in ("passed", "failed")}


def is_complete(certificate: Certificate, strength: bool) -> bool:
    """Tell whether nothing is left to do; ``strength``: that of the suite is to be measured too."""
    unknown = any(one.status == "unknown" for one in certificate.outcomes)
    return not (certificate.interrupted or unknown or (strength and not certificate.strength.measured))


def require_same(earlier: Certificate, now: Certificate) -> None:
    """Raise UsageProblem if ``now``, which nothing was run for yet, is not about the same as an earlier certificate."""
    problems = [
        f"it is about {was or 'nothing'}, and this is {here or 'nothing'} ({what})"
        for what, was, here in (
            ("target", earlier.target + earlier.arguments, now.target + now.arguments),
            ("kind", earlier.kind, now.kind),
            ("level", earlier.asked_level, now.asked_level),
            ("seed", earlier.seed, now.seed),
            ("--only", _listed(earlier.only), _listed(now.only)),
            ("suite version", earlier.suite_version, now.suite_version),
            ("distribution", earlier.distribution, now.distribution),
        )
        if was != here
    ]
    problems += [
        f"it was begun with {name} {earlier.environment[name]}, and here is {now.environment.get(name, 'none')}"
        for name in _settings(earlier, now)
        if earlier.environment[name] != now.environment.get(name)
    ]
    if not earlier.files:
        problems.append("it names no files, so nobody can tell whether what it is about has changed")
    problems += differences(earlier.files, now.files)
    if problems:
        raise UsageProblem(
            f"the interrupted certificate cannot be gone on with: {'; '.join(problems)}; {_BEGIN_ANEW}"
        )


def require_same_capabilities(earlier: Sequence[str], now: Sequence[str]) -> None:
    """Raise UsageProblem if a candidate declares other capabilities than before, although its files are the same."""
    if tuple(earlier) != tuple(now):
        raise UsageProblem(
            f"the interrupted certificate cannot be gone on with: the candidate declared {_listed(earlier)}, and now "
            f"it declares {_listed(now)}; {_BEGIN_ANEW}"
        )


def _settings(earlier: Certificate, now: Certificate) -> list[str]:
    """Return what of an environment decides about outcomes: versions, and the settings of a candidate."""
    facts: Mapping[str, str] = earlier.environment
    machine = ("barrier-tck", "platform", "processors", "hash_seed", "executable")
    return [name for name in facts if name in _VERSIONS or (name not in machine and name in now.environment)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
