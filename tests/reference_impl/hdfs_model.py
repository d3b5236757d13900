"""A model of HDFS for tests: a name node and a data node that speak WebHDFS, with the weather of real ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

NAMES = "/webhdfs/v1"
_STATUS = {"FileNotFoundException": 404, "StandbyException": 403, "SafeModeException": 403}


class Refusal(Exception):
    """What HDFS answers with a RemoteException."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(message)
        self.exception = exception


@dataclass
class ModelHdfs:
    """Files in memory, and an HTTP server that is both nodes. The k-th request (from 1) gets no answer, done or not."""

    files: dict[str, bytes] = field(default_factory=dict)
    directories: dict[str, None] = field(default_factory=lambda: {"/": None})
    asked: list[str] = field(default_factory=list)
    """The operations so far; one that a data node carries out is there twice."""
    fail_at: int = 0
    afterwards: bool = False
    lost: int = 1
    """How many requests from ``fail_at`` on get no answer."""
    refusals: list[Refusal | int] = field(default_factory=list)
    """What the name node answers to its next requests instead; a number is a bare HTTP status."""
    data_nodes: list[str] = field(default_factory=list)
    """Data nodes that it sends clients to before its own, as ``host:port``, unless they are excluded."""
    torn: bool = False
    """Whether a data node breaks off in the middle of what it sends."""
    flags: list[str] = field(default_factory=list)
    """With which flags files were created."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Request)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> ModelHdfs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def host(self) -> str:
        """Return where it answers, as ``host:port``."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"http://{self.host}"

    def loses(self, operation: str) -> bool:
        """Count a request; return whether it gets no answer."""
        with self._lock:
            self.asked.append(operation)
            return self.fail_at > 0 and 0 <= len(self.asked) - self.fail_at < self.lost

    def refuse(self) -> None:
        """Raise what is due instead of an answer."""
        with self._lock:
            due = self.refusals.pop(0) if self.refusals else None
        if isinstance(due, Refusal):
            raise due
        if due is not None:
            raise _Status(due)

    def redirected(self, query: dict[str, str]) -> str:
        """Return the data node for a request."""
        excluded = query.get("excludedatanodes", "").split(",")
        for node in (*self.data_nodes, self.host):
            if node not in excluded:
                return node
        raise Refusal("IOException", "Failed to find datanode, suggest to check cluster health.")

    def carry_out(self, operation: str, path: str, query: dict[str, str], body: bytes) -> Any:
        """Do what a request says, and return the answer."""
        with self._lock:
            return _OPERATIONS[operation](self, path, query, body)

    def _status(self, path: str, query: dict[str, str], body: bytes) -> Any:
        return {"FileStatus": self._described(path, "")}

    def _described(self, path: str, name: str) -> dict[str, object]:
        if path in self.files:
            return {"pathSuffix": name, "type": "FILE", "length": len(self.files[path])}
        if path in self.directories:
            return {"pathSuffix": name, "type": "DIRECTORY", "length": 0}
        raise Refusal("FileNotFoundException", f"File does not exist: {path}")

    def _listing(self, path: str, query: dict[str, str], body: bytes) -> Any:
        self._described(path, "")
        inside = [each for each in (*self.files, *self.directories) if _parent(each) == path != each]
        found = [self._described(each, each.rpartition("/")[2]) for each in inside]
        return {"FileStatuses": {"FileStatus": found}}

    def _mkdirs(self, path: str, query: dict[str, str], body: bytes) -> Any:
        while path not in self.directories:
            self.directories[path] = None
            path = _parent(path)
        return {"boolean": True}

    def _create(self, path: str, query: dict[str, str], body: bytes) -> Any:
        if _parent(path) not in self.directories and query.get("createparent") == "false":
            raise Refusal("FileNotFoundException", f"Parent directory doesn't exist: {_parent(path)}")
        if path in self.files and query.get("overwrite") != "true":
            raise Refusal("FileAlreadyExistsException", f"{path} already exists")
        self.files[path] = body
        self.flags.append(query.get("createflag", ""))
        return b""

    def _open(self, path: str, query: dict[str, str], body: bytes) -> Any:
        self._described(path, "")
        return self.files[path]

    def _rename(self, path: str, query: dict[str, str], body: bytes) -> Any:
        target = query["destination"]
        if path not in self.files:
            raise Refusal("FileNotFoundException", f"rename source {path} is not found.")
        if _parent(target) not in self.directories:
            raise Refusal("FileNotFoundException", f"rename destination parent {_parent(target)} not found.")
        if target in self.files and query["renameoptions"] != "OVERWRITE":
            raise Refusal("FileAlreadyExistsException", f"rename destination {target} already exists")
        self.files[target] = self.files.pop(path)
        return b""

    def _delete(self, path: str, query: dict[str, str], body: bytes) -> Any:
        found = path in self.files or path in self.directories
        self.files.pop(path, None)
        if query["recursive"] == "true":
            for kept in (self.files, self.directories):
                for each in [one for one in kept if one == path or one.startswith(f"{path}/")]:
                    del kept[each]
        return {"boolean": found}


_OPERATIONS: dict[str, Callable[[ModelHdfs, str, dict[str, str], bytes], Any]] = {
    "GETFILESTATUS": ModelHdfs._status,
    "LISTSTATUS": ModelHdfs._listing,
    "MKDIRS": ModelHdfs._mkdirs,
    "CREATE": ModelHdfs._create,
    "OPEN": ModelHdfs._open,
    "RENAME": ModelHdfs._rename,
    "DELETE": ModelHdfs._delete,
}
_OF_DATA_NODES = ("CREATE", "OPEN")


class _Status(Exception):
    """An HTTP status without more."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ModelHdfs


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it
        pass

    def _do(self) -> None:
        model = self.server.model
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        path = unquote(url.path).removeprefix(NAMES)
        operation = query["op"]
        at_data_node = "datanode" in query
        try:
            body = self._body()
        except EOFError:
            return  # whoever sent it is gone; what was sent is forgotten, as if the data node had died too
        lost = model.loses(operation)
        if lost and not model.afterwards:
            self.close_connection = True
            return
        try:
            if not at_data_node:
                model.refuse()
            if operation in _OF_DATA_NODES and not at_data_node:
                location = f"http://{model.redirected(query)}{self.path}&datanode=1"
                status, headers, content = 307, {"Location": location}, b""
            else:
                answer = model.carry_out(operation, path, query, body)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                status, headers = (201 if operation == "CREATE" else 200), {}
        except Refusal as refusal:
            status, headers = _STATUS.get(refusal.exception, 403), {}
            said = {"exception": refusal.exception, "javaClassName": "x", "message": str(refusal)}
            content = json.dumps({"RemoteException": said}).encode()
        except _Status as bare:
            status, headers, content = bare.status, {}, b"<html>no</html>"
        if lost:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        torn = model.torn and at_data_node and self.command == "GET"
        self.wfile.write(content[: len(content) // 2] if torn else content)
        self.close_connection = self.close_connection or torn

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        collected = bytearray()
        while True:
            line = self.rfile.readline()
            if not line:
                self.close_connection = True
                raise EOFError
            size = int(line, 16)
            collected += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return bytes(collected)

    do_GET = do_PUT = do_DELETE = _do  # noqa: N815 - the names that http.server asks for
