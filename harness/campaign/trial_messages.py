"""The messages between a campaign and the processes that run its trials: one JSON object per line, in both directions.

Plans and results are sent in the same JSON form as in plan files and run directories; nothing is pickled.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from barrier_tck.harness.campaign.configuration import ClusterSection
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
    alone: bool = False
    """Whether its trials start what a host has only once, so that one runs on a host at a time, in its own process."""
    cluster: ClusterSection | None = None
    """The cluster that the campaign asks for; None: the system's own choice."""
    services: tuple[str, ...] = ()
    """Variables that name services of the user's where the campaign was started: they must be set here, too."""


class PrepareSystem(msgspec.Struct, frozen=True, tag="prepare"):
    """Start what the system needs, as a campaign does before its first trial; answered by ``SystemPrepared``."""


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


class SystemPrepared(msgspec.Struct, frozen=True, tag="prepared"):
    """The host can run it."""

    host: str = ""
    """The name of the host."""


class KeptLog(msgspec.Struct, frozen=True):
    """A file that a trial elsewhere left among its logs."""

    name: str
    """Relative to the trial's directory."""
    content: bytes
    """Its end, if it is long."""


class TrialRan(msgspec.Struct, frozen=True, tag="ran"):
    """The trial is over and judged."""

    tried: TriedPlan
    logs: tuple[KeptLog, ...] = ()
    """Of a trial elsewhere whose system keeps logs, if it was not VALID."""


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


Request = OpenSystem | PrepareSystem | RunTrial | ShrinkTrial
Answer = SystemOpened | SystemPrepared | TrialRan | TrialShrunk | TrialLost | NotDone


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
