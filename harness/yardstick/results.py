"""What became of the bugs of the yardstick: one JSON file for each, which is kept and gone on with."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, read_json
from barrier_tck.harness.yardstick.bugs import KnownBug

RESULT_VERSION = 1
_COUNT = Annotated[int, msgspec.Meta(ge=0)]
_SECONDS = Annotated[float, msgspec.Meta(ge=0)]


class Played(Enum):
    """What a finding showed when it was played again with a release."""

    GONE = "gone"
    THERE = "there"
    UNKNOWN = "unknown"
    """It could not be judged there."""


class Status(Enum):
    """What became of a bug."""

    UNFINISHED = "unfinished"
    """It was interrupted; the next call goes on."""
    FOUND = "found"
    """Something was found that shows again, and is gone in a release without the bug."""
    ELSEWHERE_TOO = "found, also in the fixed release (something else)"
    UNCLEAR = "something found, but not shown to be gone in the fixed release"
    """It could not be judged there, or it did not show again even where it was found; a person may say what it is."""
    NOT_FOUND = "not found"
    CANNOT_RUN = "cannot run"


class Finding(Bounded, frozen=True):
    """Something that a round has found."""

    what: str
    """The property of a certificate, or the checker of a trial, with the clause that is broken."""
    summary: str
    file: str
    """The replay file or the plan, beside the result."""
    repeat: str
    """The command that repeats it."""
    on_affected: Played = Played.UNKNOWN
    """When it was played again with the release in which it was found: real time does not repeat itself."""
    on_compared: Played = Played.UNKNOWN
    """When it was played with the release without the bug."""
    why: str = ""
    """Why it could not be judged there; empty if it could."""
    confirmed: str = ""
    """Why it is the bug, though no release tells it apart; written by a person, and empty at first."""
    dismissed: str = ""
    """Why it is not the bug, though it is gone there; written by a person, and empty at first. It counts no more."""


class Round(Bounded, frozen=True):
    """One campaign or certification from one seed."""

    seed: _COUNT
    tried: _COUNT
    """Trials of the campaign, or examples of the certification."""
    processor_seconds: _SECONDS
    wall_seconds: _SECONDS
    findings: tuple[Finding, ...] = ()


class Result(Bounded, frozen=True):
    """What became of one bug."""

    id: str
    pyspark: str
    """The release in which it was looked for."""
    compared: str
    status: Status = Status.UNFINISHED
    reason: str = ""
    """Why it cannot be run, or why the last round ended early."""
    rounds: tuple[Round, ...] = ()
    on: str = ""
    """The day of the last round."""
    with_version: str = ""
    """The version of barrier-tck."""
    lacks: str = ""
    """What the generators lack that would find it; written by a person, and kept when the bug is tried again."""
    version: int = RESULT_VERSION

    @property
    def processor_seconds(self) -> float:
        """Processor time that all rounds have used together."""
        return sum(one.processor_seconds for one in self.rounds)

    @property
    def tried(self) -> int:
        """Trials or examples of all rounds together."""
        return sum(one.tried for one in self.rounds)

    def is_over(self, seconds: float) -> bool:
        """Return whether a call with so much processor time has nothing left to do."""
        if self.status in (Status.FOUND, Status.CANNOT_RUN):
            return True
        return self.status is not Status.UNFINISHED and self.processor_seconds >= seconds

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all rounds."""
        return tuple(finding for one in self.rounds for finding in one.findings)


def result_path(out: Path, identifier: str) -> Path:
    """Return where the result of a bug is kept."""
    return out / f"{identifier}.json"


def read_result(out: Path, bug: KnownBug) -> Result | None:
    """Return the result of a bug that is kept in a directory; None if there is none.

    Raises UsageProblem if the file is none, is of a newer version, or is of another release than the bug now names.
    """
    path = result_path(out, bug.id)
    if not path.is_file():
        return None
    raw = read_json(path)
    if isinstance(raw, dict) and isinstance(raw.get("version"), int) and raw["version"] > RESULT_VERSION:
        raise UsageProblem(f"{path} was written by a newer version of barrier-tck; use that one")
    result = convert(raw, Result, str(path))
    if result.id != bug.id:
        raise UsageProblem(f"{path} is the result of {result.id}; give it the name of its bug")
    if (result.pyspark, result.compared) != (bug.pyspark, bug.compared):
        raise UsageProblem(
            f"{path} is of PySpark {result.pyspark or 'none'}, compared with {result.compared or 'none'}, and {bug.id} "
            f"is looked for in {bug.pyspark or 'none'} and {bug.compared or 'none'} now; --again runs it anew"
        )
    return result


def written_by_hand(out: Path, identifier: str) -> str:
    """Return what a person wrote into the result of a bug, of whichever release it is; empty if there is nothing."""
    path = result_path(out, identifier)
    return convert(read_json(path), Result, str(path)).lacks if path.is_file() else ""


def write_result(out: Path, result: Result) -> None:
    """Write a result into its directory."""
    text = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_atomically(result_path(out, result.id), text + b"\n")
