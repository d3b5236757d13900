"""Passes what was observed of subtasks from one process to another: in one file for each observation."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.operations import ClockCompared, StorageAsked

_log = logging.getLogger(__name__)

SubtaskNote = StorageAsked | ClockCompared
"""What is passed."""


@dataclass(frozen=True)
class NotesDirectory:
    """A directory that both processes reach."""

    path: str

    def __call__(self, note: SubtaskNote) -> None:
        """Keep a note, whole or not at all. A disk that refuses costs the note, and nothing of the job."""
        number = note.checkpoint if isinstance(note, StorageAsked) else 0
        name = f"{type(note).__name__}-{quote(note.subtask, safe='')}-a{note.attempt}-{number}.json"
        target = Path(self.path) / name
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(note))
            os.replace(temporary, target)
        except OSError as error:
            _log.warning("what was observed of %s could not be saved: %s", note.subtask, error)

    def take_all(self) -> tuple[SubtaskNote, ...]:
        """Return all notes, by attempt, subtask and checkpoint."""
        found: list[SubtaskNote] = [
            msgspec.json.decode(file.read_bytes(), type=SubtaskNote)
            for file in sorted(Path(self.path).glob("*.json"))
        ]
        return tuple(sorted(found, key=_place))


def _place(note: SubtaskNote) -> tuple[int, str, int]:
    return note.attempt, note.subtask, note.checkpoint if isinstance(note, StorageAsked) else 0
