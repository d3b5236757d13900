"""What checkpoint storage asks of HDFS, over its REST interface WebHDFS, by requests (decision 0061).

Names are the name node's business and contents are a data node's: who reads or writes a file asks the name node, is
sent to a data node, and asks that. Several name nodes may be given; the one that is active is found by asking.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import requests

from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError

ResultT = TypeVar("ResultT")

_MISSING = "FileNotFoundException"
_EXISTS = "FileAlreadyExistsException"
_PASSING = (
    *("StandbyException", "SafeModeException", "RetriableException", "ObserverRetryOnActiveException"),
    *("ConnectException", "EOFException", "SocketTimeoutException"),
)
"""What a name node says that is not active, has just started, or has too much to do; and a data node that has lost its
connection with the name node."""
_NO_DATA_NODE = "Failed to find datanode"
_OVERLOADED = (429, 502, 503, 504)
_NO_DETOUR = {"http": "", "https": "", "all": ""}
"""Name nodes and data nodes are near; the proxies of the environment are for what is not."""
_DURABLY = "CREATE,SYNC_BLOCK"
"""Every data node that keeps a block syncs it to its disk before the file is closed (hsync)."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on asking, in seconds."""

    repeat_s: float = 10.0
    """For how long a request is repeated that is not answered, or that a name node refuses for the moment."""
    pause_s: float = 0.2
    connect_s: float = 10.0
    """Also how long a data node may take no more bytes."""
    answer_s: float = 60.0


class Time(Protocol):
    """What passes while a request is repeated."""

    def now_s(self) -> float:
        """Return the time in seconds; only differences mean anything."""

    def pause(self, seconds: float) -> None:
        """Return so many seconds later."""


class RealTime:
    """The time of this machine."""

    def now_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class Entry(msgspec.Struct, frozen=True):
    """A file or a directory, as a name node describes it."""

    name: str = msgspec.field(name="pathSuffix")
    type: Literal["FILE", "DIRECTORY", "SYMLINK"]


class _Entries(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = msgspec.field(name="FileStatus")


class _Listing(msgspec.Struct, frozen=True):
    statuses: _Entries = msgspec.field(name="FileStatuses")


class _Status(msgspec.Struct, frozen=True):
    status: Entry = msgspec.field(name="FileStatus")


class _RemoteException(msgspec.Struct, frozen=True):
    exception: str
    message: str = ""


class _Exception(msgspec.Struct, frozen=True):
    remote: _RemoteException = msgspec.field(name="RemoteException")


class _Refused(Exception):
    """HDFS has answered that it does not do it."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(f"{exception}: {message}")
        self.exception = exception
        self.unanswered = False
        """Whether an earlier try had no answer, so that it may have been carried out."""


class _Passing(_Refused):
    """It does not do it now, or this name node does not."""


class _Body:
    """The content of a file, as it is sent. ``begun`` tells whether any of it was."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.begun = True
        yield from self._chunks


class WebHdfs:
    """A client of one HDFS. Every method raises StorageError, with the path, on failure; paths are absolute.

    What is not answered is asked again, also of the other name nodes, as long as its patience lasts. So a request may
    be carried out twice, and one that failed may be carried out later.
    """

    def __init__(
        self,
        name_nodes: Sequence[str],
        user: str | None = None,
        patience: Patience | None = None,
        session: requests.Session | None = None,
        time: Time | None = None,
    ) -> None:
        """Take the name nodes' addresses, as ``http://host:port``, and the user; None: as other programs do.

        That is ``HADOOP_USER_NAME``, or else the user of this process. HDFS believes it (simple authentication).
        A world of its own brings the ``session``, through which requests go, and the ``time``.
        """
        self._name_nodes = tuple(name_nodes)
        self._user = user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._patience = patience if patience is not None else Patience()
        self._active = 0
        self._session = session if session is not None else requests.Session()
        self._time = time if time is not None else RealTime()

    def entry(self, path: str) -> Entry | None:
        """Return what is at a path; None if nothing is."""
        with _translated("look for", path):
            try:
                answer = self._of_name_node("GET", path, "GETFILESTATUS")
            except _Refused as error:
                if error.exception == _MISSING:
                    return None
                raise
            return _read(answer, _Status).status

    def entries(self, directory: str) -> tuple[Entry, ...]:
        """Return what is in a directory; nothing if there is no such directory."""
        with _translated("list", directory):
            try:
                answer = self._of_name_node("GET", directory, "LISTSTATUS")
            except _Refused as error:
                if error.exception == _MISSING:
                    return ()
                raise
            return _read(answer, _Listing).statuses.entries

    def read(self, path: str) -> bytes:
        with _translated("read", path):
            return self._of_data_node("GET", path, "OPEN").content

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it. If it is there, nothing changes."""
        with _translated("make the directory", path):
            self._of_name_node("PUT", path, "MKDIRS")

    def create(self, path: str, content: bytes | Iterable[bytes]) -> None:
        """Write a file in an existing directory, in place of what is there, and sync it on every data node it is on.

        If the connection is lost meanwhile, the data node closes the file with what it has got. Chunks are taken once:
        if a request fails after the first was taken, the write fails. Bytes are sent again.
        """
        with _translated("write", path):
            body = content if isinstance(content, bytes) else _Body(content)
            how = {"overwrite": "true", "createparent": "false", "createflag": _DURABLY}
            self._of_data_node("PUT", path, "CREATE", body, **how)

    def rename(self, source: str, target: str, replace: bool) -> bool:
        """Move a file atomically to a name in an existing directory. No other process may move or delete the source.

        ``replace``: whatever is there is replaced; otherwise nothing changes then, and False is returned.
        """
        with _translated(f"rename {source} to", target):
            how = {"destination": target, "renameoptions": "OVERWRITE" if replace else "NONE"}
            try:
                self._of_name_node("PUT", source, "RENAME", **how)
            except _Refused as error:
                if error.exception == _EXISTS:
                    return False
                # If it is gone, a try whose answer was lost has moved it: no other process does.
                moved = error.exception == _MISSING and error.unanswered
                if not moved or self.entry(target) is None:
                    raise
        return True

    def delete(self, path: str, recursive: bool = False) -> None:
        """Delete a file, or a directory with all below it; a missing one is no error."""
        with _translated("delete", path):
            self._of_name_node("DELETE", path, "DELETE", recursive=str(recursive).lower())

    def _of_name_node(self, method: str, path: str, operation: str, **parameters: str) -> requests.Response:
        return self._repeated(lambda: self._ask(method, path, operation, parameters), lambda: True)

    def _of_data_node(
        self, method: str, path: str, operation: str, body: bytes | _Body | None = None, **parameters: str
    ) -> requests.Response:
        """Ask the name node for a data node, and that one for the content; leave out those that did not answer."""
        excluded: dict[str, None] = {}

        def ask() -> requests.Response:
            without = {"excludedatanodes": ",".join(excluded)} if excluded else {}
            try:
                sent = self._ask(method, path, operation, {**parameters, **without})
            except _Refused as error:
                if _NO_DATA_NODE not in str(error):
                    raise
                # All are left out, or none has reported since the name node was started.
                excluded.clear()
                raise _Passing(error.exception, str(error)) from error
            location = sent.headers.get("Location")
            if location is None:
                return sent
            try:
                return self._send(method, location, data=body)
            except requests.RequestException:
                excluded[urlsplit(location).netloc] = None
                raise

        return self._repeated(ask, lambda: not (isinstance(body, _Body) and body.begun))

    def _repeated(self, request: Callable[[], ResultT], repeatable: Callable[[], bool]) -> ResultT:
        """Make a request until there is an answer, and no longer than its patience lasts."""
        ends = self._time.now_s() + self._patience.repeat_s
        unanswered = False
        while True:
            try:
                return request()
            except (requests.ConnectionError, requests.Timeout, _Passing) as error:
                unanswered = unanswered or not isinstance(error, _Passing)
                if self._time.now_s() >= ends or not repeatable():
                    raise
            except _Refused as error:
                error.unanswered = unanswered
                raise
            self._active = (self._active + 1) % len(self._name_nodes)
            self._time.pause(self._patience.pause_s)

    def _ask(self, method: str, path: str, operation: str, parameters: dict[str, str]) -> requests.Response:
        url = f"{self._name_nodes[self._active]}/webhdfs/v1{quote(path)}"
        return self._send(method, url, params={"op": operation, "user.name": self._user, **parameters})

    def _send(self, method: str, url: str, **what: Any) -> requests.Response:
        answer = self._session.request(
            method,
            url,
            allow_redirects=False,
            timeout=(self._patience.connect_s, self._patience.answer_s),
            proxies=_NO_DETOUR,
            headers={"Content-Type": "application/octet-stream"},
            **what,
        )
        if answer.status_code >= 400:
            raise _refusal(answer)
        return answer


def _refusal(answer: requests.Response) -> _Refused:
    """Return what an answer says that is an error."""
    try:
        remote = msgspec.json.decode(answer.content, type=_Exception).remote
    except msgspec.MsgspecError:
        remote = _RemoteException(
            f"HTTP status {answer.status_code}", f"{answer.reason} {answer.text[:200]!r}"
        )
    # Hadoop wraps some exceptions into others, and names the inner one in the message.
    passing = answer.status_code in _OVERLOADED or any(
        name == remote.exception or name in remote.message for name in _PASSING
    )
    # Of some, the stack trace follows.
    return (_Passing if passing else _Refused)(remote.exception, remote.message.partition("\n")[0])


def _read(answer: requests.Response, kind: type[ResultT]) -> ResultT:
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError as error:
        raise _Refused("an answer that is none of HDFS", f"{answer.content[:200]!r} ({error})") from error


@contextmanager
def _translated(what: str, path: str) -> Iterator[None]:
    """Turn what a request raises into StorageError."""
    try:
        yield
    except (requests.RequestException, _Refused) as error:
        missing = isinstance(error, _Refused) and error.exception == _MISSING
        cause = StorageCause.MISSING if missing else StorageCause.FAILED
        raise StorageError(f"cannot {what} {path} in HDFS: {error}", cause) from error
