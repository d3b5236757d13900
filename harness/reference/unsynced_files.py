"""Unsynced writes on a real file system: what a process wrote and did not sync can be taken back after its death.

A killed process loses nothing that it has written, because the operating system still has it. When its host dies, that
is lost too. So a process whose host may die in a trial writes through ``JournaledFiles``, which keep a journal of what
is not durable yet, and ``lose_unsynced`` undoes what the journals of dead processes list, newest first. The rules are
those of ``barrier_tck.harness.reference.simulated.file_system``: unsynced bytes are cut off; unsynced names vanish, or
refer to their previous file; a deletion is durable at once.

A journal is a directory with a file of lines and with one more name (a hard link) for every file that it needs again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.harness.reference.instrumented import with_instruments
from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem, OutputStream

_LINES = "lines"
_serials = itertools.count(1)


class _Named(msgspec.Struct, frozen=True, tag="named"):
    """A name is about to refer to another file."""

    path: str
    before: str | None
    """The link to the file to which it referred before, if any."""
    source: str | None
    """The name from which the file is renamed, if it is."""


class _Made(msgspec.Struct, frozen=True, tag="made"):
    """A file was created; no byte of it is durable."""

    link: str


class _Durable(msgspec.Struct, frozen=True, tag="durable"):
    """So many bytes of a created file are durable."""

    link: str
    size: int


class _NamesDurable(msgspec.Struct, frozen=True, tag="names"):
    """The names in a directory are durable."""

    directory: str


_Line = _Named | _Made | _Durable | _NamesDurable
_lines: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class _Journal:
    """The journal of one user of a file system, in one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / f"{os.getpid()}-{next(_serials)}"
        self._directory.mkdir(parents=True)
        self._file = os.open(self._directory / _LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._links = itertools.count(1)

    def note(self, line: _Line) -> None:
        """Append a line. It need not be synced: this machine does not die, only the process does."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def link(self, path: Path) -> str | None:
        """Give a file one more name; None if there is no such file."""
        name = str(next(self._links))
        try:
            os.link(path, self._directory / name)
        except FileNotFoundError:
            return None
        return name


class _JournaledStream:
    """A stream that notes how much of it is durable."""

    def __init__(self, inner: OutputStream, path: Path, link: str, journal: _Journal) -> None:
        self._inner = inner
        self._path = path
        self._link = link
        self._journal = journal

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        return self._inner.write(data)

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        self._inner.flush()
        size = self._path.stat().st_size
        self._inner.sync()
        self._journal.note(_Durable(self._link, size))

    def close(self) -> None:
        self._inner.close()


class JournaledFiles(DelegatingFileSystem):
    """A local file system with a journal of what is not durable."""

    inner: LocalFileSystem

    def __init__(self, inner: LocalFileSystem, journals: Path) -> None:
        """Begin a journal below a directory, which must be on the same file system."""
        super().__init__(inner)
        self._journal = _Journal(journals)

    def create(self, path: str) -> OutputStream:
        """Create a file, of which nothing is durable."""
        where = self.inner.path_of(path)
        self._journal.note(_Named(path, self._journal.link(where), None))
        # A new file under the old name: the previous one must stay as it is.
        with contextlib.suppress(FileNotFoundError):
            where.unlink()
        stream = self.inner.create(path)
        link = self._journal.link(where)
        assert link is not None, "it was just created"
        self._journal.note(_Made(link))
        return _JournaledStream(stream, where, link, self._journal)

    def rename(self, source: str, target: str) -> None:
        """Move a file; its new name is not durable."""
        self._journal.note(_Named(target, self._journal.link(self.inner.path_of(target)), source))
        self.inner.rename(source, target)

    def sync_directory(self, path: str) -> None:
        self.inner.sync_directory(path)
        self._journal.note(_NamesDurable(path.rstrip("/")))


def lose_unsynced(journals: Path, root: Path, pids: Iterable[int]) -> int:
    """Undo what dead processes wrote below a root and did not sync; return how many names and files were affected."""
    found = [
        directory
        for pid in sorted(pids)
        for directory in sorted(
            journals.glob(f"{pid}-*"), key=lambda entry: -int(entry.name.rpartition("-")[2])
        )
    ]
    return sum(_undo(directory, root) for directory in found)


def _undo(journal: Path, root: Path) -> int:
    names: list[_Named] = []
    durable: dict[str, int] = {}
    for line in (journal / _LINES).read_bytes().splitlines():
        match _lines.decode(line):
            case _Named() as named:
                names.append(named)
            case _Made(link=link):
                durable[link] = 0
            case _Durable(link=link, size=size):
                durable[link] = size
            case _NamesDurable(directory=directory):
                names = [named for named in names if parent(named.path) != directory]
    affected = sum(_renamed_back(named, journal, root) for named in reversed(names))
    for link, size in durable.items():
        if (journal / link).stat().st_size > size:
            os.truncate(journal / link, size)
            affected += 1
    (journal / _LINES).write_bytes(b"")  # what is undone once is not undone again
    return affected


def _renamed_back(named: _Named, journal: Path, root: Path) -> bool:
    path = root / named.path
    if not path.exists():
        return False  # it was deleted since, and a deletion is durable
    source = root / named.source if named.source is not None else None
    if source is not None and not source.exists():
        os.link(path, source)
    path.unlink()
    if named.before is not None:
        os.link(journal / named.before, path)
    return True


@dataclass(frozen=True)
class _JournalingDrivers:
    """Makes subtask drivers that write through a journal; takes what ``SubtaskDriver`` takes."""

    make: Callable[..., SubtaskDriver]
    journals: str

    def __call__(
        self,
        deployment: SubtaskDeployment,
        graph: Any,
        plane: Any,
        ports: SubtaskPorts,
        components: Components,
    ) -> SubtaskDriver:
        """Return a driver whose durable files are journaled."""
        files: FileSystem = ports.files
        if isinstance(files, LocalFileSystem):
            files = JournaledFiles(files, Path(self.journals))
        storage = components.checkpoint_storage(files, deployment.job, deployment.config.storage_root)
        return self.make(deployment, graph, plane, replace(ports, files=files, storage=storage), components)


def journaled(components: Components, journals: str) -> Components:
    """Return the components with subtasks whose unsynced writes can be taken back. Call it after other wrappers."""
    make = components.instruments.subtask_driver or SubtaskDriver
    return with_instruments(components, subtask_driver=_JournalingDrivers(make, journals))
