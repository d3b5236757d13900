"""The messages between a campaign and the processes that run its trials: one JSON object per line, in both directions.

Plans and results are sent in the same JSON form as in plan files and run directories; nothing is pickled.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from barrier_tck.harness.campaign.tried_plans import FailedTrial, PlannedTrial, TriedPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan


class OpenSystem(msgspec.Struct, frozen=True, tag="open"):
    """Open the system on which the trials run; answered by ``SystemOpened``."""

    system: str
    """The name by which ``--system`` opens it."""
    path: tuple[str, ...]
    """The module search path of the campaign's own process."""
    version: str = ""
    """The version of barrier-tck that the process must have; empty: whichever it has."""


class RunTrial(msgspec.Struct, frozen=True, tag="run"):
    """Run a trial; answered by ``TrialRan``."""

    trial: PlannedTrial
    elsewhere: bool = False
    """Whether it runs on another machine, where its directory is not: it has a temporary one instead."""


class ShrinkTrial(msgspec.Struct, frozen=True, tag="shrink"):
    """Shrink a trial's plan; answered by ``TrialShrunk``."""

    failed: FailedTrial
    elsewhere: bool = False
    """The same as in ``RunTrial``."""


class SystemOpened(msgspec.Struct, frozen=True, tag="opened"):
    """Trials may come."""


class TrialRan(msgspec.Struct, frozen=True, tag="ran"):
    """The trial is over and judged."""

    tried: TriedPlan


class TrialShrunk(msgspec.Struct, frozen=True, tag="shrunk"):
    """The smallest plan that fails as the trial did; None if the trial cannot be shrunk."""

    plan: TrialPlan | None


class TrialLost(msgspec.Struct, frozen=True, tag="lost"):
    """The answer of who gave the request to a process that ended: nothing is known of the trial."""

    why: str
    started_at: datetime
    seconds: float


class NotDone(msgspec.Struct, frozen=True, tag="not done"):
    """The request cannot be fulfilled, because of an error of the harness."""

    error: str
    """The name of its class in ``barrier_tck.harness.support.errors``."""
    message: str


Request = OpenSystem | RunTrial | ShrinkTrial
Answer = SystemOpened | TrialRan | TrialShrunk | TrialLost | NotDone


def _plain(value: Any) -> Any:
    """Return the JSON form of values that JSON does not have, such as paths and values of rows, as in files."""
    return str(value)


def line_of(message: Request | Answer) -> bytes:
    """Return a message as a line."""
    return msgspec.json.encode(message, enc_hook=_plain) + b"\n"


def _made(kind: type, value: Any) -> Any:
    return kind(value)


_requests = msgspec.json.Decoder(Request, dec_hook=_made)
_answers = msgspec.json.Decoder(Answer, dec_hook=_made)


def request_of(line: bytes) -> Request:
    """Return the request of a line."""
    request: Request = _requests.decode(line)
    return request


def answer_of(line: bytes) -> Answer:
    """Return the answer of a line."""
    answer: Answer = _answers.decode(line)
    return answer
