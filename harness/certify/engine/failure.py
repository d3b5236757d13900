"""A failing sequence, saved so that it can be played again."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
from barrier_tck.harness.certify.engine.steps import StepT
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem


class Failure(msgspec.Struct, Generic[StepT], frozen=True):
    """A failing sequence; the content of a replay file."""

    target: str
    property: str
    violation: str
    steps: tuple[StepT, ...]
    version: int = 1
    layout: str = ""
    """How the candidate was laid out; empty if there is one way only."""


FailureT = TypeVar("FailureT", bound=msgspec.Struct)


def saved(
    outcome: PropertyOutcome, failure: msgspec.Struct | None, directory: Path | None
) -> PropertyOutcome:
    """Write the replay file of a failure, if there is one and a place for it; return the outcome that names it."""
    if failure is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(failure), indent=2) + b"\n")
    return msgspec.structs.replace(outcome, replay=path.name)


def read_replay(path: Path, kind: type[FailureT], of: str) -> FailureT:
    """Read a replay file; raises UsageProblem if it is none ``of`` what is meant."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}; name a replay file") from error
    except msgspec.DecodeError as error:
        raise UsageProblem(f"{path} is not a replay file of {of}: {error}") from error
