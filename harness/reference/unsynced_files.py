"""Unsynced writes on a real file system: what the processes of a host wrote and did not sync can be taken back.

A killed process loses nothing that it has written, because the operating system still has it. When a host
dies, all unsynced writes on it are lost, also those of processes that had died long before. So processes whose host may
die in a trial write through ``JournaledFiles``, which keep a journal of what is not durable yet, and ``lose_unsynced``
undoes what the journals of a host list, newest first. The rules are those of
``barrier_tck.harness.reference.simulated.file_system``: unsynced bytes are cut off; unsynced names vanish, or refer to
their previous file; a new directory vanishes with all that only this host has put there; a deletion is durable at
once. Any process may make names in a directory durable.

A journal is a directory with a file of lines and with one more name (a hard link) for every file that may be restored.
Files that are not written through the file system port are not undone: those of state backends and of local copies.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem, OutputStream

_LINES = "lines"
_LOST = "lost"
"""The file with the time at which the host was lost last."""
_serials = itertools.count(1)


class _Named(msgspec.Struct, frozen=True, tag="named"):
    """A name is about to refer to another file."""

    path: str
    at_ns: int
    """The time on the monotonic clock, which all processes of the machine share."""
    before: str | None
    """The link to the file to which the name referred before; None if it is new."""
    source: str | None
    """The old name of a file that is renamed; None if the file is created."""


class _DirectoryMade(msgspec.Struct, frozen=True, tag="directory"):
    """A directory is about to be made, for a file in it."""

    path: str
    at_ns: int


class _Made(msgspec.Struct, frozen=True, tag="made"):
    """A file was created; no byte of it is durable."""

    link: str


class _Durable(msgspec.Struct, frozen=True, tag="durable"):
    """The first ``size`` bytes of a created file are durable."""

    link: str
    size: int


class _NamesDurable(msgspec.Struct, frozen=True, tag="names"):
    """The names in a directory are durable."""

    directory: str
    at_ns: int


_Line = _Named | _DirectoryMade | _Made | _Durable | _NamesDurable
_lines: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class _Journal:
    """The journal of one user of a file system, in one process of a host."""

    def __init__(self, journals: Path, host: str) -> None:
        self._directory = journals / quote(host, safe="") / f"{os.getpid()}-{next(_serials)}"
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

    def __init__(self, inner: LocalFileSystem, journals: Path, host: str) -> None:
        """Begin a journal below a directory, which must be on the same file system."""
        super().__init__(inner)
        self._journal = _Journal(journals, host)

    def create(self, path: str) -> OutputStream:
        """Create a file, of which nothing is durable, nor are the names of directories that are made for it."""
        self._note_directories(path)
        where = self.inner.path_of(path)
        self._journal.note(_Named(path, time.monotonic_ns(), self._journal.link(where), None))
        # The previous file may be restored, so it must not be truncated: a new file gets its name.
        with contextlib.suppress(FileNotFoundError):
            where.unlink()
        stream = self.inner.create(path)
        link = self._journal.link(where)
        assert link is not None, "it was just created"
        self._journal.note(_Made(link))
        return _JournaledStream(stream, where, link, self._journal)

    def rename(self, source: str, target: str) -> None:
        """Move a file; its new name is not durable, nor are those of directories that are made for it."""
        self._note_directories(target)
        before = self._journal.link(self.inner.path_of(target))
        self._journal.note(_Named(target, time.monotonic_ns(), before, source))
        self.inner.rename(source, target)

    def _note_directories(self, path: str) -> None:
        directory = parent(path)
        while directory and not self.inner.path_of(directory).exists():
            self._journal.note(_DirectoryMade(directory, time.monotonic_ns()))
            directory = parent(directory)

    def sync_directory(self, path: str) -> None:
        began_ns = time.monotonic_ns()
        self.inner.sync_directory(path)
        self._journal.note(_NamesDurable(path.rstrip("/"), began_ns))


def lose_unsynced(journals: Path, root: Path, pids: Iterable[int]) -> int:
    """Undo what the hosts of some dead processes wrote below a root and did not sync.

    Returns how many names and files were affected. All processes of those hosts must be dead.
    """
    dead = dict.fromkeys(map(str, pids))
    hosts = [
        host
        for host in sorted(journals.glob("*"))
        if any(journal.name.partition("-")[0] in dead for journal in host.iterdir() if journal.is_dir())
    ]
    return sum(_undo(host, journals, root) for host in hosts)


@dataclass
class _Noted:
    """What the journals of one host say."""

    names: list[tuple[Path, _Named]] = field(default_factory=list)
    directories: dict[str, int] = field(default_factory=dict)
    """Each directory that the host made -> when."""
    durable: dict[Path, int] = field(default_factory=dict)
    """A link to a file that was created -> how many bytes of it are durable."""
    synced_ns: dict[str, int] = field(default_factory=dict)
    """Directory -> when its names were made durable last."""


def _read_journals(host: Path) -> _Noted:
    noted = _Noted()
    lost = host / _LOST
    lost_ns = int(lost.read_text()) if lost.exists() else 0
    for journal in sorted(entry for entry in host.iterdir() if entry.is_dir()):
        for line in (journal / _LINES).read_bytes().splitlines():
            match _lines.decode(line):
                case _Named(at_ns=at_ns) as named:
                    if at_ns > lost_ns:  # earlier names were undone when the host was lost
                        noted.names.append((journal, named))
                case _DirectoryMade(path=path, at_ns=at_ns):
                    if at_ns > lost_ns:
                        noted.directories[path] = at_ns
                case _Made(link=link):
                    noted.durable[journal / link] = 0
                case _Durable(link=link, size=size):
                    noted.durable[journal / link] = size
                case _NamesDurable(directory=directory, at_ns=at_ns):
                    noted.synced_ns[directory] = max(at_ns, noted.synced_ns.get(directory, 0))
    noted.names.sort(key=lambda entry: entry[1].at_ns)
    return noted


def _undo(host: Path, journals: Path, root: Path) -> int:
    # A name that another host has changed since then is not undone.
    noted, synced_ns, elsewhere_ns = _read_journals(host), dict[str, int](), dict[str, int]()
    for other in sorted(journals.glob("*")):
        found = noted if other == host else _read_journals(other)
        for directory, at_ns in found.synced_ns.items():
            synced_ns[directory] = max(at_ns, synced_ns.get(directory, 0))
        elsewhere_ns |= {named.path: named.at_ns for _, named in found.names} if found is not noted else {}
    (host / _LOST).write_text(str(time.monotonic_ns()))
    affected = sum(
        _renamed_back(named, journal, root)
        for journal, named in reversed(noted.names)
        if named.at_ns > synced_ns.get(parent(named.path), 0)
        and named.at_ns > elsewhere_ns.get(named.path, 0)
    )
    for link, size in noted.durable.items():
        if link.stat().st_size > size:
            os.truncate(link, size)
            affected += 1
    for path, at_ns in noted.directories.items():
        used_elsewhere = any(
            other.startswith(f"{path}/") and named_ns > at_ns for other, named_ns in elsewhere_ns.items()
        )
        if at_ns > synced_ns.get(parent(path), 0) and not used_elsewhere and (root / path).exists():
            shutil.rmtree(root / path)
            affected += 1
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


def _with_journal(parts: DriverParts, make: MakeDriver, journals: str) -> SubtaskDriver:
    """Return a driver whose durable files are journaled."""
    deployment, ports = parts.deployment, parts.ports
    files: FileSystem = ports.files
    if isinstance(files, LocalFileSystem):
        files = JournaledFiles(files, Path(journals), ports.host)
    storage = parts.components.checkpoint_storage(files, deployment.job, deployment.config.storage_root)
    return make(parts.with_ports(files=files, storage=storage))


def journaled(components: Components, journals: str) -> Components:
    """Return the components with subtasks whose unsynced writes can be undone. Call it after other wrappers."""
    return with_driver_instrument(components, partial(_with_journal, journals=journals))
