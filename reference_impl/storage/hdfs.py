"""Checkpoint storage in HDFS (STA-2): written beside, synced on every replica, and renamed by the name node.

What makes it sound:

- A file is closed only after every data node that keeps a block of it has synced the block (``SYNC_BLOCK``). The name
  node has logged a name, a rename or a deletion before it answers. So nothing has to be synced afterwards.
- A rename is atomic. Metadata is renamed to a name that must be free: of two coordinators that publish the same id, one
  is refused. Counters are replaced.
- A writer that dies leaves a file that ends somewhere. The lease belongs to the data node that wrote for it, which
  closes the file when the connection ends. If that data node dies too, the name node ends the lease some time later.
  No caller waits for it: no path is written twice, such a file is part of no checkpoint, and discarding deletes it
  anyway.
- Files are created in directories that are there. What a dead writer has sent makes no file below a directory that was
  deleted meanwhile.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator

from barrier_tck.reference_impl.paths import join, parent
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.webhdfs import WebHdfs
from barrier_tck.reference_impl.storage.whole_files import remove_after

LOCATION = "BARRIER_TCK_HDFS"
"""Name of the variable of the environment that tells below which URL directories of storage are."""
_SCHEMES = {"webhdfs://": "http", "swebhdfs://": "https"}
_TEMPORARY = ".tmp-"


def _fresh_name() -> str:
    return uuid.uuid4().hex


class HdfsFiles:
    """Whole files below a directory of HDFS."""

    def __init__(
        self, hdfs: WebHdfs, directory: str = "", fresh_name: Callable[[], str] = _fresh_name
    ) -> None:
        """Take the client and the directory, which is made when something is written.

        ``fresh_name`` returns a name that no other process ever gets.
        """
        self._hdfs = hdfs
        self._fresh_name = fresh_name
        self._directory = directory.strip("/")
        self._tidied: dict[str, None] = {}
        """What this process has put without failing; so nothing lies beside it, of a dead process or of its own."""

    def read(self, path: str) -> bytes:
        return self._hdfs.read(self._absolute(path))

    def list_files(self, directory: str) -> list[str]:
        return sorted(self._below(directory))

    def exists(self, path: str) -> bool:
        found = self._hdfs.entry(self._absolute(path))
        return found is not None and found.type == "FILE"

    def delete(self, path: str) -> None:
        self._hdfs.delete(self._absolute(path))

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and all below it, at once; a missing one is no error."""
        self._hdfs.delete(self._absolute(directory), recursive=True)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write a new file and sync it. Its chunks pass through; if the connection breaks, the write fails."""
        counted = _Counted(chunks)
        try:
            self._hdfs.make_directory(self._absolute(parent(path)))
            self._hdfs.create(self._absolute(path), counted)
            if counted.error is not None:
                raise counted.error
        except Exception as error:
            # Not BaseException, which ends a process: one that is killed does not clean up.
            remove_after(self, path, error)
            raise
        return counted.size, counted.crc

    def put(self, path: str, content: bytes) -> None:
        if path not in self._tidied:
            self._remove_temporaries(path)
        self._tidied.pop(path, None)
        self._put(path, content, replace=True)
        self._tidied[path] = None

    def put_new(self, path: str, content: bytes) -> bool:
        return self._put(path, content, replace=False)

    def sync_directory(self, path: str) -> None:
        """Do nothing: the name node has logged a name before it answered."""

    def _put(self, path: str, content: bytes, replace: bool) -> bool:
        # No other process knows this name. So if it is gone, our own rename was carried out.
        temporary = f"{path}{_TEMPORARY}{self._fresh_name()}"
        try:
            self._hdfs.make_directory(self._absolute(parent(path)))
            self._hdfs.create(self._absolute(temporary), content)
            put = self._hdfs.rename(self._absolute(temporary), self._absolute(path), replace)
        except Exception as error:
            remove_after(self, temporary, error)
            raise
        if not put:
            self.delete(temporary)
        return put

    def _remove_temporaries(self, path: str) -> None:
        """Delete what a process that was killed while it put a file has left beside it, or that could not be
        deleted."""
        directory = parent(path)
        for entry in self._hdfs.entries(self._absolute(directory)):
            beside = join(directory, entry.name)
            if beside.startswith(path + _TEMPORARY):
                self.delete(beside)

    def _below(self, directory: str) -> Iterator[str]:
        for entry in self._hdfs.entries(self._absolute(directory)):
            path = join(directory, entry.name)
            if entry.type == "DIRECTORY":
                yield from self._below(path)
            elif entry.name:
                yield path

    def _absolute(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the directory {self._directory!r} of HDFS")
        return "/" + join(self._directory, path)


class _Counted:
    """Chunks on their way, with their size and checksum.

    If they raise, they just end, and ``error`` says why. So the file is closed, and can be deleted. If the connection
    broke off instead, the data node might create it after that.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.size = 0
        self.crc = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._chunks:
                self.size += len(chunk)
                self.crc = zlib.crc32(chunk, self.crc)
                if chunk:
                    yield chunk
        except Exception as error:  # noqa: BLE001 - it is raised when the file is closed
            self.error = error


class HdfsCheckpointStorage(MediumCheckpointStorage):
    """Checkpoint storage of one job in HDFS (STA-2).

    Durable means: synced to the disks of all data nodes that keep a replica, and logged by the name node. What a failed
    request has done is not known.
    """

    def __init__(
        self,
        hdfs: WebHdfs,
        directory: str,
        job: str,
        root: str = "checkpoints",
        fresh_name: Callable[[], str] = _fresh_name,
    ) -> None:
        """Take the client, a directory of HDFS, the job's name and the directory of checkpoint storage below it.

        ``fresh_name`` returns a name that no other process ever gets: for what is written beside.
        """
        super().__init__(HdfsFiles(hdfs, directory, fresh_name), job, root)


def hdfs_storage(location: str, job: str) -> HdfsCheckpointStorage:
    """Return the checkpoint storage of a job below ``webhdfs://host:port/directory``.

    Several name nodes are separated by commas, as in ``webhdfs://first:9870,second:9870/directory``; with ``swebhdfs``
    they are asked over TLS. Any other location is a directory below ``BARRIER_TCK_HDFS``, which is such a URL.
    """
    name_nodes, directory = _place(location)
    return HdfsCheckpointStorage(WebHdfs(name_nodes), directory, job)


def _place(location: str) -> tuple[tuple[str, ...], str]:
    """Return the addresses of the name nodes and the directory that a location means."""
    url = location
    if "://" not in location:
        url = f"{os.environ.get(LOCATION, '').rstrip('/')}/{location.lstrip('/')}"
    for scheme, protocol in _SCHEMES.items():
        hosts, _, directory = url.removeprefix(scheme).partition("/")
        if url.startswith(scheme) and all(hosts.split(",")):
            return tuple(f"{protocol}://{host}" for host in hosts.split(",")), directory
    raise JobUsageError(
        f"checkpoint storage in HDFS is at webhdfs://host:port/directory, where port is that of the name node's web "
        f"interface, or below such a URL in {LOCATION}; not at {location!r}"
    )
