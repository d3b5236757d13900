"""The words that every report uses: verdicts, units, command lines, and untrusted text made printable."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from barrier_tck.faults.catalogue import BY_TAG
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import NO_SHAPE, NOT_SMALLER, FindingGroup
from barrier_tck.harness.record.verdict import Verdict

NO_PASS = "It is not a pass."

_DATES_FROM_MS = 100_000_000_000
"""From here on an event time is taken for milliseconds of the epoch: it is one of 1973 or later."""
_NO_TIME_MS = 1 << 61
"""Beyond this lie the watermarks that stand for no time: before the first one, and behind the last record."""

MEANING = {
    Verdict.VALID: "Every property that was checked holds.",
    Verdict.UNKNOWN: (
        "No verdict is possible. A planned fault did not fire, a checker could not decide or crashed, or nothing was"
        f" checked. {NO_PASS}"
    ),
    Verdict.INVALID: "At least one property is violated; an example is shown.",
}
"""What each verdict says, of any run; why one run is UNKNOWN is said by ``reports.headline``."""

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


def event_time(at_ms: int | None, *, short: bool = False) -> str:
    """Return an event time as a number of ms, or as a date if it is one of 1973 or later; a dash for none."""
    if at_ms is None:
        return "–"
    if abs(at_ms) >= _NO_TIME_MS:
        return "the end of time" if at_ms > 0 else "none yet"
    if abs(at_ms) < _DATES_FROM_MS:
        return f"{at_ms:,}" + ("" if short else " ms")
    when = datetime.fromtimestamp(at_ms // 1_000, UTC)
    return f"{when:%m-%d %H:%M}" if short else f"{when:%Y-%m-%d %H:%M:%S}.{at_ms % 1_000:03d} UTC"


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


_MEASURED = {
    "alignment_ms": "alignment of a snapshot",
    "sync_ms": "synchronous part of a snapshot",
    "async_ms": "asynchronous part of a snapshot",
    "recovery_ms": "recovery, until all subtasks run",
    "kill_to_first_record_ms": "kill to first record after it",
    "virtual_ms": "simulated time of a trial",
    "steps": "steps of the simulator in a trial",
}


def measured_name(name: str) -> str:
    """Return what was measured, for people; a system's own measurement by its name, without the unit at its end."""
    if name in _MEASURED:
        return _MEASURED[name]
    for unit in ("_ms", "_bytes", "_seconds", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


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
    """Say how many trials one finding stands for, and what its smallest plan has."""
    fails = "1 trial fails" if group.trials == 1 else f"{group.trials:,} trials fail"
    presumed = f" ({group.presumed:,} not made smaller, assumed the same)" if group.presumed else ""
    has = plural(group.faults, "fault") if group.faults else "no faults"
    needs = f"; needs: {one_line(group.shape)}" if group.shape != NO_SHAPE else ""
    often = f"; failed {group.failed_runs} of {group.runs} times" if group.runs > 1 else ""
    if group.shape == NOT_SMALLER and group.trials == 1:
        return f"{fails} like this. Its plan was not made smaller; it has {has}{often}."
    if group.shape == NOT_SMALLER:
        return f"{fails} like this{presumed}. Their plans were not made smaller; the first has {has}{often}."
    return f"{fails} like this{presumed}. Smallest plan: {has}{needs}{often}."


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
