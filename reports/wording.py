"""The words that every report uses: verdicts, units, command lines, and untrusted text made printable."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from barrier_tck.faults.catalogue import BY_TAG
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import FindingGroup
from barrier_tck.harness.record.verdict import Verdict

MEANING = {
    Verdict.VALID: "Every property that was checked holds.",
    Verdict.UNKNOWN: (
        "No verdict is possible. A planned fault did not fire, a checker could not decide or crashed, or nothing was"
        " checked. It is not a pass."
    ),
    Verdict.INVALID: "At least one property is violated; an example is shown.",
}
"""What a verdict says, in a sentence."""

SYMBOL = {Verdict.VALID: "✓", Verdict.UNKNOWN: "?", Verdict.INVALID: "✗"}
"""A sign for each verdict, so that colour is never the only difference."""


def printable(text: str) -> str:
    """Return the text with control characters spelled out.

    Plans, notes and reasons are untrusted: an escape sequence must not reach a terminal, nor can XML hold it.
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else _spelled(character)
        for character in text
    )


def known(number: int | None) -> str:
    """Return a count, or that the system did not report it."""
    return "not reported" if number is None else f"{number:,}"


def one_line(text: str) -> str:
    """Return printable text without line breaks."""
    return " ".join(printable(text).split())


def way_name(plan: TrialPlan) -> str:
    """Return how checkpoints are taken: the mode of the barriers, or Chandy and Lamport's way."""
    return "Chandy-Lamport" if plan.checkpoints.records_all else plan.checkpoints.mode.replace("_", " ")


def control_name(plan: TrialPlan) -> str:
    """Return what passes the channels for a checkpoint: Chandy and Lamport's marker, or a barrier."""
    return "marker" if plan.checkpoints.records_all else "barrier"


def fault_name(tag: str) -> str:
    """Return the name of a kind of fault, or its tag if this version does not know it."""
    known = BY_TAG.get(tag)
    return tag.replace("_", " ") if known is None else known.label


def fault_colour(tag: str) -> str:
    """Return the colour of a kind of fault, or none if this version does not know it."""
    known = BY_TAG.get(tag)
    return "transparent" if known is None else known.colour


def _spelled(character: str) -> str:
    """Spell out one character that cannot be printed."""
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def duration(milliseconds: float | None) -> str:
    """Return a length of time with a fitting unit, or a dash for none."""
    if milliseconds is None or not math.isfinite(milliseconds):
        return "–"
    if milliseconds < 1:
        return f"{milliseconds:.2f} ms"
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.2f} s"
    return f"{milliseconds / 60_000:.1f} min"


def moment(text: str) -> str:
    """Return a time in ISO 8601 as people write it, to the minute and in its own zone; other text stays as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = "" if when.tzinfo is None else f" {when.tzname()}"
    return f"{when.day} {when:%B %Y, %H:%M}{zone}"


def size(count: float) -> str:
    """Return a number of bytes with a fitting unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_024
    raise AssertionError("the loop returns at its last unit")


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Return a count with its noun: ``1 trial``, ``1,204 trials``; ``several`` is a plural without the plain ``s``."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def measurement(name: str, value: float) -> str:
    """Format a measurement by the unit at the end of its name."""
    if name.endswith("_ms"):
        return duration(value)
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith(("_s", "_seconds")):
        return f"{value:,.2f} s"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile; ``share`` is between 0 and 1. Raises ValueError if there are none."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median; raises ValueError on no values."""
    return float(statistics.median(values))


def in_how_many_trials(group: FindingGroup) -> str:
    """Say how many trials one finding stands for, and what it needs."""
    presumed = f" ({group.presumed} of them presumed)" if group.presumed else ""
    often = f", which failed in {group.failed_runs} of {group.runs} runs" if group.runs > 1 else ""
    return (
        f"in {plural(group.trials, 'trial')}{presumed}; the smallest plan{often} has {plural(group.faults, 'fault')} "
        f"and needs: {one_line(group.shape)}"
    )


def replay_command(
    plan: Path | None, system: str, used: TrialPlan | None = None, patch: Path | None = None
) -> str | None:
    """Return the exact command line that replays a plan on a system, or None if no plan was kept.

    Code from elsewhere that the plan uses is named, too: it would not run without that. ``patch`` is the file of the
    patch that the plan carries, if it is known.
    """
    if plan is None:
        return None
    words = ["barrier-tck", "replay", str(plan), "--system", system]
    if used is not None:
        named = {
            "--state-backend": used.state_backend,
            "--checkpoint-storage": used.checkpoints.storage,
            "--workload": used.workload.name,
        }
        words += [word for option, name in named.items() if ":" in name for word in (option, name)]
        if used.patch is not None:
            words += ["--trust"] if patch is None else ["--patch", str(patch)]
    return shlex.join(words)
