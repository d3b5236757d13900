"""What a campaign's control trials showed, and how many of its trials could have failed."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.verdict import Verdict


class ControlRecord(msgspec.Struct, frozen=True):
    """One control: a trial of the campaign, run again with recovery broken on purpose."""

    broken: str
    """What was broken: a ``harness.system.broken_recovery.BrokenRecovery``."""
    trial: int
    """The trial whose plan it is."""
    plan: str
    """Path of the control's own plan, relative to the run directory."""
    verdict: Verdict
    """INVALID, as it should be, or what it was instead."""
    checker: str = ""
    """The first checker that said INVALID; empty if none did."""
    reason: str = ""
    """Why it is not INVALID, as far as its history tells; empty if it is."""
    counts: bool = True
    """Whether it was to be INVALID. False: it had no chance, for it took another course than the trial."""


class BreakRecord(msgspec.Struct, frozen=True):
    """One way to break recovery, over all trials of a campaign."""

    broken: str
    told: str
    """What is broken, as a clause of a sentence."""
    clauses: tuple[str, ...]
    """The clauses that it breaks."""
    could: int
    """Trials that would have shown it: whoever is broken in this way fails them."""
    no_chance: dict[str, int] = {}
    """Why the others would not have, in words -> trials."""


class ControlsRecord(msgspec.Struct, frozen=True):
    """All controls of a campaign, and which of its trials could have failed."""

    trials: int = 0
    """Trials that were looked at."""
    recovered: int = 0
    """Trials in which an attempt after the first came to run."""
    breaks: tuple[BreakRecord, ...] = ()
    could_have_failed: dict[str, int] = {}
    """Clause -> trials that would have shown at least one of the breaks of that clause."""
    ran: tuple[ControlRecord, ...] = ()
    """In the order in which they ran."""
    note: str = ""
    """Why there are no controls, or not as many as asked for; empty if there are."""
