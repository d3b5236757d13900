"""The location of a plan store: a directory. It may also be a bucket (``harness.reference.bucket_place``).

Files are written whole or not at all, and each belongs to one plan. So several campaigns can use one store at the same
time, and a campaign that is killed leaves no half-written plan.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem

BYTES_MAX = 4 * 2**20
"""The largest file that is read, in bytes; plans are smaller."""

_NAME = re.compile(r"[0-9a-f]{8,64}\.json")


def is_name(name: str) -> bool:
    """Whether a file of this name can be a stored plan; other files, such as half-written ones, are ignored."""
    return _NAME.fullmatch(name) is not None


class Place(Protocol):
    """Files in folders. Methods raise EnvironmentProblem if the location cannot be reached or written."""

    @property
    def location(self) -> str:
        """Return its path or URL, as messages to users show it."""

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the sorted names of the files in a folder; none if there is no such folder."""

    def read(self, folder: str, name: str) -> bytes | None:
        """Return a file's content; None if it is gone. Raises UsageProblem if it cannot be a stored plan."""

    def write(self, folder: str, name: str, content: bytes) -> None:
        """Write a file, or replace it."""

    def remove(self, folder: str, name: str) -> bool:
        """Remove a file; return False if it was already gone."""

    def source(self, folder: str, name: str) -> str:
        """Return a file's path or URL, as messages to users show it."""


class DirectoryPlace:
    """A directory, which is made when something is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def location(self) -> str:
        return str(self._directory)

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(
                sorted(path.name for path in (self._directory / folder).iterdir() if is_name(path.name))
            )
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unusable(self._directory, error) from error

    def read(self, folder: str, name: str) -> bytes | None:
        path = self._directory / folder / name
        try:
            if path.stat().st_size > BYTES_MAX:
                raise UsageProblem(f"{path} has more than {BYTES_MAX:,} bytes: it is no stored plan")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageProblem(f"{path} cannot be read: {error.strerror or error}") from error

    def write(self, folder: str, name: str, content: bytes) -> None:
        try:
            (self._directory / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self._directory, error) from error
        write_atomically(self._directory / folder / name, content)

    def remove(self, folder: str, name: str) -> bool:
        try:
            (self._directory / folder / name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unusable(self._directory, error) from error
        return True

    def source(self, folder: str, name: str) -> str:
        return str(self._directory / folder / name)


def _unusable(directory: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(f"the store of plans {directory} cannot be used: {error.strerror or error}")
