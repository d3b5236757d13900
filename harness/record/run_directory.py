"""The layout of a run directory, and how it is written; ``run_reader`` reads it.

``campaign.json`` is the summary. ``trials.jsonl``, or the directory ``trials.parquet``, has one row for every trial
(``trial_rows``). ``trials/NNNNN/`` holds a trial in full. A campaign on a real system keeps every trial; a simulated
campaign keeps every failing trial and the first few valid ones.
A trial's directory is enough to replay and to report the trial:

* ``plan.json``: the only input;
* ``record.json``: versions, timings, verdict and findings;
* ``history.jsonl``: operations, and ``outcome.json``: the rest of the history (output, checkpoints, storage);
* ``trace.txt``: the scheduler's steps, if the system has a trace;
* ``passages.jsonl``: what passed through the channels around barriers, if it was logged;
* ``faults.jsonl``: the outcome of each planned fault; ``metrics.jsonl``: one line per subtask and checkpoint.

Each file is written under another name, synced and renamed, so a reader sees the whole file or no file. Only
``trials.jsonl`` grows line by line, and its reader must accept a half-written last line.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.record.message_trace import TraceEvent
from barrier_tck.harness.record.records import CampaignRecord, TrialResult, TrialSummary
from barrier_tck.harness.record.trial_rows import LINES, CopyPart, TrialRows, make_rows, rows_of
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem

ALTERNATIVES = "alternatives"
"""The folder of second results of a shard's trials: the whole campaign may count these instead of the first ones."""
SCRATCH = "scratch-"
"""The prefix of directories of runs that are not trials of the campaign; each directory is removed after its run."""


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def require_place(path: Path) -> None:
    """Raise EnvironmentProblem if a directory clearly cannot be made there; writes nothing.

    This check comes before a system is started, which may take long. Only making the directory is a proof.
    """
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "not a directory" if not nearest.is_dir() else "permission denied"
        raise EnvironmentProblem(
            f"the output directory {path} cannot be written ({nearest}: {reason}); name another with --out"
        )


def _lines(values: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


class RunDirectory:
    """A run directory that is being written. Make one with ``create``."""

    def __init__(self, path: Path, rows: TrialRows) -> None:
        self.path = path
        self._rows = rows

    @classmethod
    def create(cls, path: Path, in_parquet: bool = False, copy: CopyPart | None = None) -> RunDirectory:
        """Create the directory and prove that it can be written; ``copy`` also copies each Parquet file.

        Raises EnvironmentProblem if it cannot be written, UsageProblem if it is not empty.
        """
        make_output_directory(path)
        return cls(path, make_rows(path, in_parquet, copy))

    @classmethod
    def reopen(cls, path: Path, next_trial: int, copy: CopyPart | None = None) -> RunDirectory:
        """Open the directory of an interrupted campaign, and remove what its unfinished trials, from ``next_trial``
        on, left there.
        """
        if (path / LINES).is_file():
            with (path / LINES).open("rb+") as file:
                whole = file.read().rpartition(b"\n")
                file.truncate(len(whole[0] + whole[1]))
        for leftover in path.glob(f"{SCRATCH}*"):
            shutil.rmtree(leftover)
        for kept in (path / "trials", path / ALTERNATIVES):
            for directory in kept.glob("[0-9]*"):
                if int(directory.name) >= next_trial:
                    shutil.rmtree(directory)
        return cls(path, rows_of(path, copy))

    def trial(self, number: int) -> Path:
        """Return a trial's directory, whether it exists or not."""
        return trial_directory(self.path, number)

    def open_trial(self, number: int) -> Path:
        """Create a trial's directory and return it."""
        directory = self.trial(number)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def keep(self, result: TrialResult) -> Path:
        """Write a trial in full and return its directory."""
        directory = self.open_trial(result.record.trial)
        write_trial(directory, result)
        return directory

    def keep_alternative(self, result: TrialResult) -> None:
        """Write a second result of a trial, in the same form as the one that counts in this run directory."""
        directory = alternative_directory(self.path, result.record.trial)
        directory.mkdir(parents=True, exist_ok=True)
        write_trial(directory, result)

    def forget(self, number: int) -> None:
        """Remove a trial's directory; its row stays."""
        shutil.rmtree(self.trial(number), ignore_errors=True)

    def append(self, trial: TrialSummary) -> None:
        """Add a trial's row."""
        self._rows.append(trial)

    def write_campaign(self, record: CampaignRecord) -> None:
        """Write all rows, and then ``campaign.json``, which counts them; an earlier ``campaign.json`` is replaced."""
        self._rows.flush()
        write_atomically(self.path / "campaign.json", _pretty(record))

    def write_plan(self, name: str, plan: TrialPlan) -> Path:
        """Write a plan under a relative name such as ``shrunk/00012.json`` and return its path."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_json(plan).encode())
        return path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock a run directory, so that no other process writes it; raises UsageProblem if another command holds the lock.

    The directory itself is locked. The lock ends with the process, however that ends, and leaves no file behind.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageProblem(f"{path} is no run directory: {error.strerror or error}") from error
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageProblem(
            f"{path} belongs to a command that still runs; wait until it is over, or end it"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be locked ({error.strerror or error}); name a directory on another file system"
        ) from error


def make_output_directory(path: Path) -> None:
    """Create a directory for results and prove that it can be written.

    Raises EnvironmentProblem if it cannot be written, UsageProblem if it is not empty.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            raise UsageProblem(f"{path} is not empty; name a new directory")
        path.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=".probe-", dir=path)
        os.close(descriptor)
        Path(probe).unlink()
    except OSError as error:
        reason = error.strerror or error
        raise EnvironmentProblem(
            f"the output directory {path} cannot be written: {reason}; name another with --out"
        ) from error


def open_directory(path: Path) -> None:
    """Make a directory below a run directory if it is not there; raises EnvironmentProblem."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(f"cannot make the directory {path}: {error.strerror or error}") from error


def new_run_path(parent: Path, name: str, now: datetime) -> Path:
    """Return a path below ``parent`` that does not exist yet: name, date and time, and a number if needed."""
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
    first = parent / f"{stem}-{now:%Y%m%d-%H%M%S}"
    path, number = first, 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def latest_run(path: Path) -> Path:
    """Return the path itself or, if it only holds run directories, the newest of them."""
    if not path.is_dir() or (path / "campaign.json").is_file():
        return path
    runs = sorted(path.glob("*/campaign.json"), key=lambda file: (file.stat().st_mtime_ns, str(file)))
    return runs[-1].parent if runs else path


def trial_directory(run_directory: Path, number: int) -> Path:
    """Return the directory in which a trial is kept if it is kept in full."""
    return run_directory / "trials" / f"{number:05d}"


def alternative_directory(run_directory: Path, number: int) -> Path:
    """Return the directory of a trial's other result, if a shard kept one."""
    return run_directory / ALTERNATIVES / f"{number:05d}"


def write_message_trace(directory: Path, trace_events: Iterable[TraceEvent]) -> None:
    """Write what passed through the channels to a file in a trial's directory."""
    write_atomically(directory / "passages.jsonl", _lines(trace_events))


def write_trial(directory: Path, result: TrialResult) -> None:
    """Write every file of a trial; ``record.json`` comes last, so its presence means that all files are there."""
    record = result.record
    write_atomically(directory / "plan.json", to_json(record.plan).encode())
    if result.history is not None:
        write_atomically(directory / "history.jsonl", _lines(result.history.operations))
        rest = msgspec.structs.replace(result.history, operations=())
        write_atomically(directory / "outcome.json", msgspec.json.encode(rest, enc_hook=str) + b"\n")
    if result.trace:
        write_atomically(directory / "trace.txt", ("\n".join(result.trace) + "\n").encode())
    if result.trace_events:
        write_message_trace(directory, result.trace_events)
    write_atomically(directory / "faults.jsonl", _lines(record.faults))
    write_atomically(directory / "metrics.jsonl", _lines(record.snapshots))
    write_atomically(directory / "record.json", _pretty(record))
