"""Reads a run directory for everyone who needs one: it refuses what it cannot understand, and says what is missing.

For missing, corrupt and newer files it raises an error that names the file and says what to do. A half-written last
line of ``trials.jsonl``, as a killed campaign leaves it, is left out with a notice. ``run_directory`` describes the
layout and writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import PLAN_VERSION
from barrier_tck.harness.record.history import History, Recorded
from barrier_tck.harness.record.message_trace import TraceEvent
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.records import RECORD_VERSION, CampaignRecord, TrialRecord, TrialSummary
from barrier_tck.harness.record.run_directory import trial_directory
from barrier_tck.harness.record.trial_rows import LINES, PARQUET, lines_of_part, parts_of
from barrier_tck.harness.support.errors import UsageProblem

_Decoded = TypeVar("_Decoded")


class RunDirectoryError(UsageProblem):
    """A run directory cannot be read; the message names the file and says what to do."""


class RunDirectoryMissing(RunDirectoryError):
    """There is no run directory, or it lacks a file that every run directory has."""


class RunDirectoryCorrupt(RunDirectoryError):
    """A file of the run directory does not contain what its name says."""


class RunDirectoryNewer(RunDirectoryError):
    """A file was written by a newer version than this one understands."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run directory as found on disk. Its rows are read when they are asked for: there may be a million of them."""

    path: Path
    """The path as the caller gave it."""
    campaign: CampaignRecord
    kept: tuple[int, ...]
    """Trials kept in full, in order."""

    def rows(self, notices: list[str] | None = None) -> Iterator[TrialSummary]:
        """Yield every finished trial, in the order of the file; see ``stored_trials``."""
        return stored_trials(self.path, notices)

    def record(self, trial: int) -> TrialRecord:
        """Read the record of a trial that was kept; raises RunDirectoryError."""
        return read_record(trial_directory(self.path, trial))


def open_run(path: Path) -> StoredRun:
    """Read a run directory, except its rows and the trials kept in full; raises RunDirectoryError."""
    if not path.is_dir():
        raise RunDirectoryMissing(f"{path} is not a directory; name the run directory of a campaign")
    campaign = read_campaign(path)
    kept = sorted(
        int(child.name) for child in (path / "trials").glob("[0-9]*") if (child / "record.json").is_file()
    )
    return StoredRun(path, campaign, tuple(kept))


def read_campaign(path: Path) -> CampaignRecord:
    """Read the summary of a run directory; raises RunDirectoryError."""
    return _decoded(path / "campaign.json", _read(path / "campaign.json"), CampaignRecord)


def read_record(directory: Path) -> TrialRecord:
    """Read the record of a trial from the trial's directory; raises RunDirectoryError.

    The trial's plan may be of an older version.
    """
    path = directory / "record.json"
    raw = _read(path)
    if isinstance(raw.get("plan"), dict):
        _refuse_newer(path, raw["plan"], PLAN_VERSION, "plan")
        try:
            raw["plan"] = msgspec.to_builtins(plan_from(raw["plan"], str(path), "plan"))
        except UsageProblem as problem:
            raise RunDirectoryCorrupt(f"{problem}; restore the file or run again") from problem
    return _decoded(path, raw, TrialRecord)


def read_history(directory: Path) -> History:
    """Read what a trial left for judgement from the trial's directory; raises RunDirectoryError."""
    path, outcome = directory / "history.jsonl", directory / "outcome.json"
    decoder = msgspec.json.Decoder(Recorded[Operation])
    operations = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            operations.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise RunDirectoryCorrupt(f"{path}, line {number}: not an operation ({error})") from error
    try:
        rest = msgspec.json.decode(_text(outcome), type=History)
    except msgspec.MsgspecError as error:
        raise RunDirectoryCorrupt(f"{outcome} is not the outcome of a trial ({error})") from error
    return msgspec.structs.replace(rest, operations=tuple(operations))


def read_message_trace(directory: Path) -> tuple[TraceEvent, ...]:
    """Read what passed through the channels of a trial; empty if it was not logged. Raises RunDirectoryError."""
    path = directory / "passages.jsonl"
    if not path.is_file():
        return ()
    decoder = msgspec.json.Decoder(TraceEvent)
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            found.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise RunDirectoryCorrupt(
                f"{path}, line {number}: not a passage ({error}); remove the file to draw no diagram"
            ) from error
    return tuple(found)


def stored_trials(path: Path, notices: list[str] | None = None) -> Iterator[TrialSummary]:
    """Yield the rows of a run directory, in their order, without keeping them; raises RunDirectoryError.

    ``notices`` is given the sentences that a reader must know.
    """
    seen = _Once()
    if (path / PARQUET).is_dir():
        for part in parts_of(path):
            for trial in _of_part(part):
                yield seen.checked(trial, str(part))
        return
    lines = path / LINES
    for number, line in enumerate(_lines(lines), start=1):
        if not line.strip():
            continue
        try:
            trial = msgspec.json.decode(line, type=TrialSummary)
        except msgspec.MsgspecError as error:
            if not line.endswith("\n"):
                if notices is not None:
                    notices.append("The last line of trials.jsonl is incomplete and was left out.")
                return
            raise RunDirectoryCorrupt(
                f"{lines}, line {number}: not a trial ({error}); restore the file or remove that line"
            ) from error
        yield seen.checked(trial, f"{lines}, line {number}")


def place_of_rows(path: Path) -> str:
    """Return the name of the file, or directory, of a run directory that has its rows."""
    return PARQUET if (path / PARQUET).is_dir() else LINES


class _Once:
    """Refuses a trial that is there twice. It keeps one bit for each number, in pages that are made when needed."""

    _PAGE_BITS = 1 << 16

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def checked(self, trial: TrialSummary, where: str) -> TrialSummary:
        page, place = divmod(trial.trial, self._PAGE_BITS)
        bits = self._pages.setdefault(page, bytearray(self._PAGE_BITS // 8))
        if bits[place // 8] & 1 << place % 8:
            raise RunDirectoryCorrupt(f"{where}: trial {trial.trial} is there twice")
        bits[place // 8] |= 1 << place % 8
        return trial


def _of_part(part: Path) -> Iterator[TrialSummary]:
    try:
        for line in lines_of_part(part):
            yield msgspec.json.decode(line, type=TrialSummary)
    except OSError as error:
        raise RunDirectoryMissing(f"{part} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # msgspec's errors are among these
        raise RunDirectoryCorrupt(
            f"{part}: no rows of trials ({error}); restore the file or remove it"
        ) from error


def _text(path: Path) -> str:
    with _readable(path):
        return path.read_text(encoding="utf-8")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, without keeping them; only the last one may lack its end."""
    with _readable(path), path.open(encoding="utf-8") as file:
        yield from file


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise RunDirectoryError for a file that cannot be read inside."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunDirectoryMissing(
            f"{path} is missing; name the directory that holds campaign.json and trials.jsonl"
        ) from error
    except UnicodeDecodeError as error:
        raise RunDirectoryCorrupt(f"{path} is not text ({error}); restore it or run again") from error
    except OSError as error:
        raise RunDirectoryMissing(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> dict[str, Any]:
    """Read a versioned JSON object; refuse a version newer than ours before looking at anything else."""
    try:
        raw = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise RunDirectoryCorrupt(f"{path} is not JSON ({error}); restore it or run again") from error
    if not isinstance(raw, dict):
        raise RunDirectoryCorrupt(f"{path} holds a JSON {type(raw).__name__}, not an object")
    if not isinstance(raw.get("version"), int):
        raise RunDirectoryCorrupt(f"{path} has no version; restore it or run again")
    _refuse_newer(path, raw, RECORD_VERSION, "record")
    return raw


def _decoded(path: Path, raw: dict[str, Any], kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.convert(raw, type=kind)
    except msgspec.ValidationError as error:
        raise RunDirectoryCorrupt(f"{path} is not a {kind.__name__} ({error})") from error


def _refuse_newer(path: Path, raw: dict[str, Any], known: int, what: str) -> None:
    version = raw.get("version", 1)
    if isinstance(version, int) and version > known:
        raise RunDirectoryNewer(
            f"{path}: {what} version {version} is newer than version {known}, the newest that this barrier-tck reads; "
            "use the version that wrote it, or upgrade"
        )
