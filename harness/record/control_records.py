"""What a campaign's control trials showed, and in how many of its trials a clause could have been violated."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.verdict import Verdict


class ControlRecord(msgspec.Struct, frozen=True):
    """One control: a trial of the campaign, run again with recovery broken on purpose."""

    broken: str
    """What was broken: a ``harness.system.broken_recovery.BrokenRecovery``."""
    trial: int
    """The trial whose plan the control ran."""
    plan: str
    """Path of the control's own plan, relative to the run directory."""
    verdict: Verdict
    """INVALID, as it should be, or the verdict that it had instead."""
    checker: str = ""
    """The first checker that reported INVALID; empty if none did."""
    reason: str = ""
    """Why it is not INVALID, as far as its history shows; empty if it is."""
    counts: bool = True
    """Whether it had to be INVALID; False if it took another course than the trial, and could not show the break."""


class BreakRecord(msgspec.Struct, frozen=True):
    """One way to break recovery, over all trials of a campaign."""

    broken: str
    description: str = msgspec.field(name="told")
    """What is broken, as a clause of a sentence."""
    clauses: tuple[str, ...]
    """The clauses that it breaks."""
    exercised: int = msgspec.field(name="could")
    """Number of trials that would have shown it: a system that is broken in this way fails them."""
    vacuity: dict[str, int] = msgspec.field(default_factory=dict, name="no_chance")
    """Why the other trials would not have shown it, as a clause of a sentence -> number of trials."""


class ControlsRecord(msgspec.Struct, frozen=True):
    """All controls of a campaign, and in how many of its trials each clause could have been violated."""

    trials: int = 0
    """Number of trials that were looked at."""
    recovered: int = 0
    """Number of trials in which an attempt after the first one reached running."""
    breaks: tuple[BreakRecord, ...] = ()
    could_be_violated: dict[str, int] = msgspec.field(default_factory=dict, name="could_have_failed")
    """Clause -> number of trials that would have shown at least one break of that clause."""
    not_reported: tuple[str, ...] = ()
    """Clauses of which nothing is known, because the system reports too little; they are not in the table above."""
    ran: tuple[ControlRecord, ...] = ()
    """The controls, in the order in which they ran."""
    note: str = ""
    """Why there are no controls, or fewer than asked for; empty otherwise."""
    possible: bool = True
    """Whether the system can be broken on purpose."""
