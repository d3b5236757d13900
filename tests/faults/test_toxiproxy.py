"""The same claims about the real Toxiproxy, if it is on the PATH, and about the embedded server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from barrier_tck.faults.toxiproxy.client import ToxiproxyClient, ToxiproxyProblem, parse_url
from barrier_tck.faults.toxiproxy.embedded import EmbeddedServer
from barrier_tck.faults.toxiproxy.server import ServerChoice, ServerKind, choose_server, proxy_server
from barrier_tck.faults.toxiproxy.toxics import DOWNSTREAM, UPSTREAM, Toxic
from tests.waiting import PATIENCE_S

_PROGRAM = shutil.which("toxiproxy-server")


@pytest.fixture(scope="module", params=["embedded", "real"])
def client(request: pytest.FixtureRequest) -> Iterator[ToxiproxyClient]:
    if request.param == "embedded":
        choice = ServerChoice(ServerKind.EMBEDDED)
    elif _PROGRAM is None:
        pytest.skip("toxiproxy-server is not on the PATH")
    else:
        choice = ServerChoice(ServerKind.PROGRAM, _PROGRAM)
    with proxy_server(choice) as made:
        yield made


class Echo:
    """A server that sends back every byte that it gets, in the same order."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(name="echo")
def _echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture(name="proxied")
def _proxied(client: ToxiproxyClient, echo: Echo) -> Iterator[Callable[[], socket.socket]]:
    """Yield a function that connects to the echo server through the proxy ``p``."""
    address = client.create("p", echo.address)

    def connect() -> socket.socket:
        connection = socket.create_connection(address, PATIENCE_S)
        connection.settimeout(PATIENCE_S)
        return connection

    yield connect
    client.delete("p")


def _exchange(connection: socket.socket, data: bytes) -> float:
    """Send, wait for the whole echo and compare; return how many seconds it took."""
    start = time.monotonic()
    got = bytearray()
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    while len(got) < len(data):
        more = connection.recv(1 << 16)
        assert more, f"the connection ended after {len(got)} of {len(data)} bytes"
        got += more
    sender.join()
    assert bytes(got) == data
    return time.monotonic() - start


def _toxic(kind: str, stream: str = UPSTREAM, toxicity: float = 1.0, **attributes: int) -> Toxic:
    return Toxic(kind, f"{kind}_{stream}", stream, toxicity, attributes)


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def _quickest(connection: socket.socket) -> float:
    """Return the time of the shortest of three exchanges: a busy machine does not slow down all of them."""
    return min(_exchange(connection, b"there and back") for _ in range(3))


def test_bytes_pass_unchanged_through_a_proxy_without_toxics(proxied: Callable[[], socket.socket]) -> None:
    with proxied() as connection:
        _exchange(connection, os.urandom(3 << 20))


@pytest.mark.long
def test_a_delay_counts_for_open_connections_in_its_direction_until_it_is_removed(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    with proxied() as connection:
        assert _quickest(connection) < 0.25
        client.add_toxic("p", _toxic("latency", UPSTREAM, latency=300))
        assert 0.3 <= _quickest(connection) < 0.59
        client.add_toxic("p", _toxic("latency", DOWNSTREAM, latency=300))
        assert _quickest(connection) >= 0.6
        assert client.state("p").toxics == ("latency_downstream", "latency_upstream")
        for toxic in client.state("p").toxics:
            client.remove_toxic("p", toxic)
        assert _quickest(connection) < 0.25
        assert client.state("p").toxics == ()


def test_jitter_changes_no_order(client: ToxiproxyClient, proxied: Callable[[], socket.socket]) -> None:
    client.add_toxic("p", _toxic("latency", latency=20, jitter=20))
    with proxied() as connection:
        _exchange(connection, bytes(range(256)) * 2_000)


def test_a_delay_is_no_throttle(client: ToxiproxyClient, proxied: Callable[[], socket.socket]) -> None:
    client.add_toxic("p", _toxic("latency", latency=300))
    with proxied() as connection:
        assert _exchange(connection, os.urandom(4 << 20)) < 9


def test_a_throttle_bounds_the_rate(client: ToxiproxyClient, proxied: Callable[[], socket.socket]) -> None:
    client.add_toxic("p", _toxic("bandwidth", rate=200))
    with proxied() as connection:
        assert 0.4 <= _exchange(connection, os.urandom(100_000)) < 9


def test_a_black_hole_swallows_without_closing_and_its_removal_closes(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    with proxied() as connection:
        _exchange(connection, b"before")
        client.add_toxic("p", _toxic("timeout", timeout=0))
        connection.sendall(b"swallowed")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        with proxied() as later:
            later.sendall(b"swallowed, too")
            later.settimeout(0.2)
            with pytest.raises(TimeoutError):
                later.recv(1)
        client.remove_toxic("p", "timeout_upstream")
        connection.settimeout(PATIENCE_S)
        assert _ended(connection), "a stream with a hole must not go on"
    with proxied() as connection:
        _exchange(connection, b"healed")


def test_a_black_hole_in_one_direction_lets_the_other_pass(client: ToxiproxyClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = client.create("one-way", listener.getsockname())
        try:
            with socket.create_connection(address, PATIENCE_S) as near, listener.accept()[0] as far:
                client.add_toxic("one-way", _toxic("timeout", DOWNSTREAM, timeout=0))
                near.sendall(b"through")
                far.settimeout(PATIENCE_S)
                assert far.recv(16) == b"through"
                far.sendall(b"lost")
                near.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    near.recv(16)
        finally:
            client.delete("one-way")


def test_a_limit_lets_its_bytes_of_each_connection_through_and_closes_it(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    with proxied() as connection:
        _exchange(connection, b"before the limit")
        client.add_toxic("p", _toxic("limit_data", DOWNSTREAM, bytes=10))
        _exchange(connection, b"0123456")
        connection.sendall(b"789 and more")
        assert _all_of(connection) == b"789"
    with proxied() as later:
        later.sendall(b"abcdefghijklmnop")
        assert _all_of(later) == b"abcdefghij", "each connection has the full limit"
    client.remove_toxic("p", "limit_data_downstream")
    with proxied() as connection:
        _exchange(connection, b"healed, and as long as one likes")


def test_a_limit_that_is_removed_in_time_closes_nothing_and_begins_anew(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    with proxied() as connection:
        for _ in range(2):
            client.add_toxic("p", _toxic("limit_data", bytes=10))
            _exchange(connection, b"sevenly")
            client.remove_toxic("p", "limit_data_upstream")
        _exchange(connection, b"more than ten bytes")


def _all_of(connection: socket.socket) -> bytes:
    """Return everything that arrives until the connection ends."""
    got = b""
    connection.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(64):
            got += more
    return got


def test_a_disabled_proxy_closes_its_connections_and_takes_none_until_it_is_enabled(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    with proxied() as connection:
        _exchange(connection, b"before")
        client.set_enabled("p", False)
        assert _ended(connection)
        with pytest.raises(ConnectionRefusedError):
            proxied()
        assert not client.state("p").enabled
    client.set_enabled("p", True)
    with proxied() as connection:
        _exchange(connection, b"after, at the same address")


def test_a_reset_is_seen_as_such(client: ToxiproxyClient, proxied: Callable[[], socket.socket]) -> None:
    with proxied() as connection:
        _exchange(connection, b"before")
        client.add_toxic("p", _toxic("reset_peer", timeout=0))
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"x")
        assert _ended(connection)


def test_a_toxic_with_toxicity_0_is_there_and_does_nothing(
    client: ToxiproxyClient, proxied: Callable[[], socket.socket]
) -> None:
    client.add_toxic("p", _toxic("latency", toxicity=0.0, latency=900))
    with proxied() as connection:
        assert _exchange(connection, b"quick") < 0.7
    assert client.state("p").toxics == ("latency_upstream",)


def test_a_deleted_proxy_closes_its_connections(client: ToxiproxyClient, echo: Echo) -> None:
    address = client.create("gone", echo.address)
    with socket.create_connection(address, PATIENCE_S) as connection:
        _exchange(connection, b"before")
        client.delete("gone")
        assert _ended(connection)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, PATIENCE_S)
    client.delete("gone")
    assert "gone" not in client.names()


def test_the_end_of_one_side_reaches_the_other_behind_all_bytes(client: ToxiproxyClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = client.create("end", listener.getsockname())
        try:
            client.add_toxic("end", _toxic("latency", latency=100))
            with listener:
                near = socket.create_connection(address, PATIENCE_S)
                far = listener.accept()[0]
                near.sendall(b"last words")
                near.close()
                far.settimeout(PATIENCE_S)
                got = b""
                while more := far.recv(16):
                    got += more
                assert got == b"last words"
                far.close()
        finally:
            client.delete("end")


def test_an_unreachable_upstream_closes_the_connection(client: ToxiproxyClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()
    address = client.create("nobody", nobody)
    try:
        with socket.create_connection(address, PATIENCE_S) as connection:
            connection.settimeout(PATIENCE_S)
            assert _ended(connection)
    finally:
        client.delete("nobody")


def test_reset_heals_every_proxy(client: ToxiproxyClient, proxied: Callable[[], socket.socket]) -> None:
    client.add_toxic("p", _toxic("latency", latency=900))
    client.set_enabled("p", False)
    client.reset()
    assert client.state("p").enabled
    assert client.state("p").toxics == ()
    with proxied() as connection:
        _exchange(connection, b"healed")


def test_a_servers_refusal_is_reported_in_its_words(client: ToxiproxyClient, echo: Echo) -> None:
    client.create("twice", echo.address)
    try:
        with pytest.raises(ToxiproxyProblem, match="proxy already exists"):
            client.create("twice", echo.address)
        with pytest.raises(ToxiproxyProblem, match="proxy not found"):
            client.state("none")
        with pytest.raises(ToxiproxyProblem, match="invalid toxic type"):
            client.add_toxic("twice", Toxic("nonsense", "n"))
        client.add_toxic("twice", _toxic("latency", latency=1))
        with pytest.raises(ToxiproxyProblem, match="toxic already exists"):
            client.add_toxic("twice", _toxic("latency", latency=1))
        client.remove_toxic("twice", "never there")
    finally:
        client.delete("twice")


def test_the_http_interface_answers_with_toxiproxys_status_codes(client: ToxiproxyClient, echo: Echo) -> None:
    upstream = f"127.0.0.1:{echo.address[1]}"

    def ask(method: str, path: str, body: Any = None, agent: str = "test") -> requests.Response:
        return requests.request(
            method, client.url + path, json=body, headers={"User-Agent": agent}, timeout=PATIENCE_S
        )

    assert client.version()
    made = ask("POST", "/populate", [{"name": "s", "listen": "127.0.0.1:0", "upstream": upstream}])
    assert (made.status_code, made.json()["proxies"][0]["name"]) == (201, "s")
    assert ask("POST", "/proxies", {"name": "s", "upstream": upstream}).status_code == 409
    assert ask("POST", "/proxies", {"name": "t"}).status_code == 400
    assert requests.post(client.url + "/proxies", data="{x", timeout=PATIENCE_S).status_code == 400
    toxic = {"type": "latency", "attributes": {"latency": 5}}
    assert ask("POST", "/proxies/s/toxics", toxic).json()["name"] == "latency_downstream"
    assert ask("GET", "/proxies/s/toxics/latency_downstream").json()["attributes"]["latency"] == 5
    changed = ask("POST", "/proxies/s/toxics/latency_downstream", {"attributes": {"latency": 7}})
    assert changed.json()["attributes"]["latency"] == 7
    assert ask("POST", "/proxies/s/toxics", {"type": "latency", "stream": "sideways"}).status_code == 400
    assert [entry["name"] for entry in ask("GET", "/proxies/s/toxics").json()] == ["latency_downstream"]
    assert ask("DELETE", "/proxies/s/toxics/latency_downstream").status_code == 204
    assert ask("GET", "/proxies", agent="Mozilla/5.0").status_code == 403
    assert ask("DELETE", "/proxies/s").status_code == 204
    assert ask("GET", "/proxies/s").status_code == 404
    assert ask("GET", "/nothing").status_code == 404


@pytest.mark.long
def test_a_server_ends_with_the_process_that_started_it(client: ToxiproxyClient) -> None:
    """Even if that process is killed without warning."""
    kind = ServerKind.EMBEDDED if client.version().startswith("embedded") else ServerKind.PROGRAM
    code = (
        "import sys, time\n"
        "from barrier_tck.faults.toxiproxy.server import ServerChoice, ServerKind, proxy_server\n"
        f"with proxy_server(ServerChoice(ServerKind.{kind.name}, {_PROGRAM or ''!r})) as client:\n"
        "    print(client.url, flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    url = owner.stdout.readline().strip()
    servers = psutil.Process(owner.pid).children(recursive=True)
    assert servers
    assert ToxiproxyClient(url).version()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    _, alive = psutil.wait_procs(servers, timeout=PATIENCE_S)
    assert not alive


# --- which server --------------------------------------------------------------------------------------------


def test_the_url_comes_first_then_the_path_then_the_embedded_server() -> None:
    def found(_name: str) -> str:
        return "/opt/toxiproxy-server"

    url = {"TOXIPROXY_URL": "http://127.0.0.1:8474"}
    assert choose_server(url, found) == ServerChoice(ServerKind.URL, "http://127.0.0.1:8474")
    assert choose_server({}, found) == ServerChoice(ServerKind.PROGRAM, "/opt/toxiproxy-server")
    assert choose_server({}, lambda _name: None) == ServerChoice(ServerKind.EMBEDDED)


@pytest.mark.parametrize(
    "url", ["", "8474", "127.0.0.1:8474", "http://127.0.0.1", "https://h:1", "http://h:1/x", "http://h:99999"]
)
def test_a_value_that_is_no_server_url_is_refused_and_shown(url: str) -> None:
    with pytest.raises(ToxiproxyProblem, match=r"of the form http://127\.0\.0\.1:8474") as refused:
        parse_url(url)
    assert repr(url) in str(refused.value)


def test_a_url_at_which_nobody_answers_is_reported_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    choice = ServerChoice(ServerKind.URL, f"http://127.0.0.1:{port}")
    with pytest.raises(ToxiproxyProblem, match="unset TOXIPROXY_URL"), proxy_server(choice):
        pass


def test_a_server_that_accepts_but_never_answers_is_not_waited_for_forever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = ToxiproxyClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.2)
        with pytest.raises(ToxiproxyProblem, match="no Toxiproxy server answers"):
            client.version()


def test_proxies_of_the_environment_are_bypassed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = EmbeddedServer()
    server.start()
    try:
        assert ToxiproxyClient(server.url).version() == "embedded-1"
    finally:
        server.close()


@pytest.mark.long
def test_a_program_that_is_no_server_is_reported(tmp_path: os.PathLike[str]) -> None:
    program = os.path.join(tmp_path, "toxiproxy-server")
    with open(program, "w") as file:
        file.write("#!/bin/sh\nexit 7\n")
    os.chmod(program, 0o755)
    with (
        pytest.raises(ToxiproxyProblem, match="did not start: it ended with code 7"),
        proxy_server(ServerChoice(ServerKind.PROGRAM, program)),
    ):
        pass


def test_a_program_that_never_answers_is_reported_within_the_limit_and_tried_once(tmp_path: Path) -> None:
    program, starts = tmp_path / "toxiproxy-server", tmp_path / "starts"
    program.write_text(f"#!/bin/sh\necho started >> {starts}\nexec sleep 3600\n")
    program.chmod(0o755)
    choice = ServerChoice(ServerKind.PROGRAM, str(program))
    with (
        pytest.raises(ToxiproxyProblem, match=r"it did not answer within 0\.1 s; run it by hand"),
        proxy_server(choice, start_timeout_s=0.1),
    ):
        pass
    # On a busy machine the limit is over before it was started at all, or before it wrote anything.
    assert not starts.exists() or starts.read_text() in ("", "started\n")


def test_an_embedded_server_that_ends_at_once_is_reported_with_its_reason(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = os.path.join(tmp_path, "python")
    with open(program, "w") as file:
        file.write("#!/bin/sh\necho 'ImportError: nothing there' >&2\nexit 3\n")
    os.chmod(program, 0o755)
    monkeypatch.setattr("barrier_tck.faults.toxiproxy.server.sys.executable", program)
    with (
        pytest.raises(ToxiproxyProblem, match="ended with code 3: ImportError: nothing there"),
        proxy_server(ServerChoice(ServerKind.EMBEDDED)),
    ):
        pass
