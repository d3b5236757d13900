"""The proxy before a storage service lets one request get no answer, before or after the server has got it.

Grain: real connections to a small server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from barrier_tck.harness.cluster.http_fault_proxy import HttpFaultProxy
from barrier_tck.harness.cluster.object_store.s3_requests import S3Requests
from tests.waiting import PATIENCE_S

LOOPBACK = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """Notes what it gets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.got: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it
        pass

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = _answer  # noqa: N815 - the names that http.server asks for


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def proxy(server: Server) -> Iterator[HttpFaultProxy]:
    made = HttpFaultProxy(LOOPBACK, S3Requests((LOOPBACK, server.server_address[1])))
    made.start()
    yield made
    made.close()


def ask(proxy: HttpFaultProxy, method: str, path: str) -> int:
    connection = HTTPConnection(*proxy.address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body=b"content" if method == "PUT" else None)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("carried_out", [True, False])
def test_the_nth_request_that_changes_something_gets_no_answer_and_the_next_one_does(
    server: Server, proxy: HttpFaultProxy, carried_out: bool
) -> None:
    failing = proxy.fail(2, carried_out)
    assert (ask(proxy, "GET", "/a"), ask(proxy, "PUT", "/a")) == (200, 200)
    assert failing.left == 1
    with pytest.raises(RemoteDisconnected):
        ask(proxy, "PUT", "/b")
    assert failing.met
    assert ("PUT /b" in server.got) is carried_out
    assert ask(proxy, "PUT", "/b") == 200
