"""The requests of WebHDFS, as far as the fault proxy has to distinguish them: those to the name node, and those to the
data node that it sends clients to.
"""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.http_fault_proxy import Answer, Headers

_TO_DATA_NODE = "namenoderpcaddress"
"""A parameter of every request to which a name node sends a client; it says which name node the data node is to ask."""
_BUSY = {"exception": "RetriableException", "message": "Server is too busy"}


class WebHdfsRequests:
    """Requests to one name node and one data node; implements
    ``barrier_tck.harness.cluster.http_fault_proxy.Requests``.
    """

    refusal = Answer(
        403,
        "Forbidden",
        [("Content-Type", "application/json")],
        json.dumps({"RemoteException": _BUSY}).encode(),
    )

    def __init__(self, name_node: tuple[str, int], data_node: tuple[str, int]) -> None:
        self._name_node = name_node
        self._data_node = data_node

    def upstream(self, target: str) -> tuple[str, int]:
        """Return the node that a request is for."""
        return self._data_node if _TO_DATA_NODE in parse_qs(urlsplit(target).query) else self._name_node

    def moments(self, method: str, target: str) -> tuple[UploadMoment, ...]:
        """Return which moments of an upload a request has: a file on its way to the data node, or a rename."""
        query = parse_qs(urlsplit(target).query)
        operation = query.get("op", [""])[0].upper()
        if operation == "CREATE" and _TO_DATA_NODE in query:
            return (UploadMoment.PART,)
        return (UploadMoment.COMPLETION, UploadMoment.ANSWER) if operation == "RENAME" else ()

    def is_repeatable(self, method: str, target: str) -> bool:
        """Return whether a request changes names at the name node, and nothing else."""
        query = parse_qs(urlsplit(target).query)
        return query.get("op", [""])[0].upper() in ("MKDIRS", "RENAME", "DELETE")

    def redirected_here(self, headers: Headers, host: str) -> Headers:
        """Return the headers of an answer; a client that is sent to the data node comes here again instead."""
        node = f"http://{self._data_node[0]}:{self._data_node[1]}/"
        return [
            (name, value.replace(node, f"http://{host}/", 1) if name.lower() == "location" else value)
            for name, value in headers
        ]
