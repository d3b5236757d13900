"""What a campaign and the processes that run its trials say to each other: one JSON object a line, both ways.

Plans and results cross as the JSON that plans and run directories are made of; nothing is pickled.
"""

from __future__ import annotations

from typing import Any

import msgspec

from barrier_tck.harness.campaign.tried_plans import PlannedTrial, TriedPlan


class OpenSystem(msgspec.Struct, frozen=True, tag="open"):
    """Open the system that the trials run on; answered by ``SystemOpened``."""

    system: str
    """What ``--system`` opens it by."""
    path: tuple[str, ...]
    """Where modules are looked for, as in the campaign's own process."""


class RunTrial(msgspec.Struct, frozen=True, tag="run"):
    """Run a trial; answered by ``TrialRan``."""

    trial: PlannedTrial


class SystemOpened(msgspec.Struct, frozen=True, tag="opened"):
    """Trials may come."""


class TrialRan(msgspec.Struct, frozen=True, tag="ran"):
    """The trial is over and judged."""

    tried: TriedPlan


class NotDone(msgspec.Struct, frozen=True, tag="not done"):
    """What was asked for cannot be done, as an error of the harness says."""

    error: str
    """The name of its class in ``barrier_tck.harness.support.errors``."""
    message: str


Request = OpenSystem | RunTrial
Answer = SystemOpened | TrialRan | NotDone


def _plain(value: Any) -> Any:
    """Return what JSON has no form for: paths, and what a row may hold, as files have it too."""
    return str(value)


def line_of(message: Request | Answer) -> bytes:
    """Return a message as a line."""
    return msgspec.json.encode(message, enc_hook=_plain) + b"\n"


def _made(kind: type, value: Any) -> Any:
    return kind(value)


_requests = msgspec.json.Decoder(Request, dec_hook=_made)
_answers = msgspec.json.Decoder(Answer, dec_hook=_made)


def request_of(line: bytes) -> Request:
    """Read what is asked."""
    request: Request = _requests.decode(line)
    return request


def answer_of(line: bytes) -> Answer:
    """Read what is answered."""
    answer: Answer = _answers.decode(line)
    return answer
