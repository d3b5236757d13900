"""A model of HDFS on the world's disk, behind the product's own client and storage for it (STA-2).

Two name nodes share the names: one is active, the other one stands by and takes over when the first one dies, at once
or not at all. Two data nodes keep the contents, and each block is on one of them only. So a node that dies takes away
what no other node has, and a client must ask again, elsewhere, and find out what became of a request without an answer:

- A data node that dies in the middle of a file leaves the file as long as it had got it, and it is never closed. It
  dies with its machine: what it had not synced is lost, even if its write was acknowledged.
- A name node that dies over a rename has carried it out and logged it, or has not.
- A process that dies leaves the file that it was sending; the data node closes that with what it got.

A file's path is that on the disk, so checkers and faults find it.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import requests
from requests.adapters import BaseAdapter

from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.reference.external_storage import watched
from barrier_tck.harness.reference.mortal_process import MortalProcess
from barrier_tck.harness.reference.storage_service import Fate, Server, StorageService, Strike, service_of
from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.hdfs import HdfsCheckpointStorage
from barrier_tck.reference_impl.storage.webhdfs import Patience, WebHdfs

PATIENCE = Patience(repeat_s=0.05, pause_s=0.01)
"""In virtual seconds. Nothing that is broken is mended while a client waits, but another node may answer."""

_NAMES = "/webhdfs/v1"
_NAME_NODES = ("first-name-node:9870", "second-name-node:9870")
_DATA_NODES = ("first-data-node:9864", "second-data-node:9864")
_MISSING = "FileNotFoundException"
_CREATED, _REDIRECTED, _FORBIDDEN, _NOT_FOUND, _DONE = 201, 307, 403, 404, 200

_CHANGES_NAMES = ("MKDIRS", "RENAME", "DELETE")
"""Operations that change something at the name node alone, and that clients can repeat."""

Query = Mapping[str, str]
Answer = tuple[int, dict[str, str], bytes]


class _Refusal(Exception):
    """What HDFS answers with a RemoteException."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(message)
        self.exception = exception

    @property
    def answer(self) -> Answer:
        exception = {"exception": self.exception, "javaClassName": self.exception, "message": str(self)}
        status = _NOT_FOUND if self.exception == _MISSING else _FORBIDDEN
        return status, {}, json.dumps({"RemoteException": exception}).encode()


@dataclass(frozen=True, slots=True)
class _Block:
    """The content of a file: which node has it, and whether it is on a disk there."""

    node: Server
    synced: bool


class HdfsService(StorageService):
    """The nodes and their faults. Judges make a service of their own on the same disk, without faults."""

    def __init__(self, files: FileSystem, choices: random.Random) -> None:
        super().__init__("HDFS", files, choices)
        self._name_nodes = tuple(map(Server, _NAME_NODES))
        self._data_nodes = tuple(map(Server, _DATA_NODES))
        self._nodes = {node.name: node for node in (*self._name_nodes, *self._data_nodes)}
        self._active = self._name_nodes[0]
        self._created = 0
        self._names = 0
        self._directories: dict[str, None] = {"": None}
        """Directories that were made; one that holds a file exists, too."""
        self._blocks: dict[str, _Block] = {}

    def answer(self, host: str, path: str, query: Query, body: Iterable[bytes]) -> Answer:
        """Answer a request to a node; raises ConnectionError if it is dead."""
        node = self._nodes[host]
        fate = self.fate(repeatable=query["op"] in _CHANGES_NAMES)
        if fate is Fate.LOST or not node.alive:
            raise requests.ConnectionError(f"{host} does not answer")
        try:
            if node in self._data_nodes:
                answer = self._of_data_node(node, fate, path, query, body)
            else:
                answer = self._of_name_node(node, fate, path, query)
        except _Refusal as refusal:
            answer = refusal.answer
        if fate is Fate.UNANSWERED:
            raise requests.ConnectionError(f"{host} does not answer any more")
        return answer

    def fresh_name(self) -> str:
        """Return a name that was never given out before."""
        self._names += 1
        return str(self._names)

    def tear(self, host: str, path: str, body: Iterable[bytes]) -> None:
        """Take half of a file from a client that dies then; the data node closes it."""
        if self._nodes[host].alive:
            self._store(self._nodes[host], path, _half(body), synced=True)

    # --- name nodes -----------------------------------------------------------------------------------------

    def _of_name_node(self, node: Server, fate: Fate, path: str, query: Query) -> Answer:
        if node is not self._active:
            raise _Refusal("StandbyException", "Operation category READ is not supported in state standby")
        self._require_willing(fate)
        operation = query["op"]
        if operation in ("CREATE", "OPEN"):
            location = f"http://{self._sent_to(path, query).name}{_NAMES}/{quote(path)}?{urlencode(query)}"
            return _REDIRECTED, {"Location": location}, b""
        if operation != "RENAME":
            naming = {
                "GETFILESTATUS": self._status,
                "LISTSTATUS": self._listing,
                "MKDIRS": self._make_directory,
                "DELETE": self._delete,
            }
            return _DONE, {}, naming[operation](path, query)
        self._strike_name_node(node, UploadMoment.COMPLETION)
        self._rename(path, query)
        self._strike_name_node(node, UploadMoment.ANSWER)
        return _DONE, {}, b""

    def _require_willing(self, fate: Fate) -> None:
        if fate is Fate.REFUSED:
            raise _Refusal("RetriableException", "Server is too busy")

    def _strike_name_node(self, node: Server, moment: UploadMoment) -> None:
        """Let the name node die if that is due; perhaps the other one takes over."""
        strike = self.due(moment)
        if strike is None:
            return
        node.die(strike)
        other = next(entry for entry in self._name_nodes if entry is not node)
        if other.alive and self.choices.random() < 0.5:
            self._active = other
        raise requests.ConnectionError(f"{node.name} has died")

    def _sent_to(self, path: str, query: Query) -> Server:
        """Return the data node that a client is sent to. It may be dead: a name node learns of that much later."""
        excluded = query.get("excludedatanodes", "").split(",")
        if query["op"] == "OPEN":
            self._require_file(path)
        block = self._blocks.get(path) if query["op"] == "OPEN" else None
        fitting = self._data_nodes if block is None else (block.node,)
        left = [node for node in fitting if node.name not in excluded]
        if not left:
            raise _Refusal("IOException", "Failed to find datanode, suggest to check cluster health.")
        if query["op"] == "CREATE":
            self._created += 1
        return left[self._created % len(left)]

    def _require_file(self, path: str) -> None:
        if not self.files.exists(path):
            raise _Refusal(_MISSING, f"File does not exist: /{path}")

    def _is_directory(self, path: str) -> bool:
        return path in self._directories or bool(self.files.list_files(path))

    def _status(self, path: str, query: Query) -> bytes:
        if self.files.exists(path):
            kind = "FILE"
        elif self._is_directory(path):
            kind = "DIRECTORY"
        else:
            raise _Refusal(_MISSING, f"File does not exist: /{path}")
        return json.dumps({"FileStatus": {"pathSuffix": "", "type": kind}}).encode()

    def _listing(self, path: str, query: Query) -> bytes:
        if not self._is_directory(path):
            raise _Refusal(_MISSING, f"File /{path} does not exist.")
        start = len(path) + 1 if path else 0
        found = {
            directory[start:]: "DIRECTORY"
            for directory in self._directories
            if directory and parent(directory) == path
        }
        for file in self.files.list_files(path):
            name, below, _ = file[start:].partition("/")
            found[name] = "DIRECTORY" if below else "FILE"
        entries = [{"pathSuffix": name, "type": kind} for name, kind in sorted(found.items())]
        return json.dumps({"FileStatuses": {"FileStatus": entries}}).encode()

    def _make_directory(self, path: str, query: Query) -> bytes:
        while path not in self._directories:
            self._directories[path] = None
            path = parent(path)
        return b'{"boolean": true}'

    def _delete(self, path: str, query: Query) -> bytes:
        self.files.delete(path)
        self._blocks.pop(path, None)
        if query["recursive"] == "true":
            self.files.delete_tree(path)
            for kept in (self._blocks, self._directories):
                for entry in [each for each in kept if each == path or each.startswith(f"{path}/")]:
                    del kept[entry]
        return b'{"boolean": true}'

    def _rename(self, path: str, query: Query) -> None:
        target = query["destination"].strip("/")
        self._require_file(path)
        if not self._is_directory(parent(target)):
            raise _Refusal(_MISSING, f"rename destination parent /{parent(target)} not found.")
        if self.files.exists(target) and query["renameoptions"] != "OVERWRITE":
            raise _Refusal("FileAlreadyExistsException", f"rename destination /{target} already exists")
        self.files.rename(path, target)
        self._log_names(target)
        block = self._blocks.pop(path, None)
        if block is not None:
            self._blocks[target] = block

    # --- data nodes -----------------------------------------------------------------------------------------

    def _of_data_node(
        self, node: Server, fate: Fate, path: str, query: Query, body: Iterable[bytes]
    ) -> Answer:
        if not self._active.alive:
            raise requests.ConnectionError(f"{node.name} waits for a name node")
        self._require_willing(fate)
        if query["op"] == "OPEN":
            self._require_file(path)
            return _DONE, {}, self.files.read(path)
        if not self._is_directory(parent(path)):
            raise _Refusal(_MISSING, f"Parent directory doesn't exist: /{parent(path)}")
        strike = self.due(UploadMoment.PART)
        if strike is not None:
            self._store(node, path, _half(body), synced=True)
            self._lose(node, strike)
            raise requests.ConnectionError(f"{node.name} has died")
        synced = "SYNC_BLOCK" in query.get("createflag", "")
        self._store(node, path, b"".join(body), synced)
        return _CREATED, {}, b""

    def _store(self, node: Server, path: str, content: bytes, synced: bool) -> None:
        self._blocks[path] = _Block(node, synced)
        stream = self.files.create(path)
        stream.write(content)
        stream.sync()
        stream.close()
        self._log_names(path)

    def _log_names(self, path: str) -> None:
        """Make a name durable, and those of the directories above it: the name node has logged them all."""
        while path:
            path = parent(path)
            self.files.sync_directory(path)

    def _lose(self, node: Server, strike: Strike) -> None:
        """Let a data node die with its machine."""
        node.die(strike)
        for path, block in list(self._blocks.items()):
            if block.node is node and not block.synced:
                self._store(node, path, b"", synced=True)


def _half(body: Iterable[bytes]) -> bytes:
    content = b"".join(body)
    return content[: len(content) // 2]


class _Wire(BaseAdapter):
    """What passes the requests of one process to the nodes; in virtual time, so it never waits."""

    def __init__(self, service: HdfsService) -> None:
        super().__init__()
        self._service = service
        self.process = MortalProcess()
        """It dies when it has sent a part of a file."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        assert request.url is not None
        url = urlsplit(request.url)
        path, query = unquote(url.path).removeprefix(_NAMES).strip("/"), dict(parse_qsl(url.query))
        sent: Any = request.body or b""
        body: Iterable[bytes] = (sent,) if isinstance(sent, bytes) else sent
        self._require_alive(url.netloc, path, query["op"], body)
        status, headers, content = self._service.answer(url.netloc, path, query, body)
        response = requests.Response()
        response.status_code, response.url, response.request = status, request.url, request
        response.headers.update(headers)
        response.raw = io.BytesIO(content)
        return response

    def close(self) -> None:
        pass

    def _require_alive(self, host: str, path: str, operation: str, body: Iterable[bytes]) -> None:
        sends_a_file = operation == "CREATE" and host in _DATA_NODES
        if sends_a_file and self.process.is_dying:
            self._service.tear(host, path, body)
        if sends_a_file or operation in ("RENAME", "DELETE"):
            self.process.require_alive()


class ModelHdfsStorage(HdfsCheckpointStorage):
    """Checkpoint storage in that model; takes what the storage on a file system takes."""

    client: type[WebHdfs] = WebHdfs
    """Planted bugs have another one."""

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        service = service_of(files)
        if not isinstance(service, HdfsService):
            service = HdfsService(files, random.Random(0))
        self._wire = _Wire(service)
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", self._wire)
        name_nodes = [f"http://{name}" for name in _NAME_NODES]
        client = self.client(name_nodes, "job", PATIENCE, session, service)
        super().__init__(client, "", job, root, service.fresh_name)
        watched(self, files)

    def die_in(self, task: Callable[[], Any]) -> None:
        """Run a task until the process has sent a part of a file, and let nothing more come from the process."""
        self._wire.process.die_in(task)
