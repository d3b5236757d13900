"""Talks to a Toxiproxy server, through the HTTP layer of toxiproxy-python.

Only the lower layer of that package is used, ``APIConsumer``: its ``Toxiproxy`` and ``Proxy`` know one server per
process, wait for it without a bound, and do not notice when the server refuses to listen. Requests here have time
limits and every status counts; proxies of the environment (``HTTP_PROXY``) are ignored, since servers are on this
machine or near it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from barrier_tck.faults.toxiproxy.toxics import Toxic

_TIMEOUT_S = 10.0
_LOOPBACK = "127.0.0.1"
_NO_DETOUR = {"http": "", "all": ""}


class ToxiproxyProblem(Exception):
    """The server cannot be used, or refused a request; the message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class ProxyState:
    """What a server says about one proxy."""

    name: str
    listen: tuple[str, int]
    """Where to connect to."""
    upstream: str
    enabled: bool
    toxics: tuple[str, ...]
    """Names of its toxics."""


class ToxiproxyClient:
    """One server, by the address of its HTTP interface."""

    def __init__(self, url: str, timeout_s: float = _TIMEOUT_S) -> None:
        host, port = parse_url(url)
        self.url = f"http://{host}:{port}"
        self._host = host
        self._timeout_s = timeout_s
        # The package keeps the server's address in the class, so each server gets a class of its own.
        self._api = type("Consumer", (APIConsumer,), {"host": host, "port": port})

    def version(self) -> str:
        """Return the server's version; raises ToxiproxyProblem if nothing, or something else, answers."""
        answer = self._request("get", "/version")
        try:
            version = answer.json()["version"]
        except (ValueError, KeyError, TypeError):
            # Servers before 2.5 answer with the bare number.
            version = answer.text.strip()
        if not version or len(str(version)) > 40 or "<" in str(version):
            raise ToxiproxyProblem(
                f"what answers at {self.url} is not a Toxiproxy server: {answer.text[:80]!r}"
            )
        return str(version)

    def create(self, name: str, upstream: tuple[str, int], address: str = _LOOPBACK) -> tuple[str, int]:
        """Make a proxy on a free port; return where it listens: at an address of this machine if the server is here."""
        # A server elsewhere must listen where its clients reach it.
        bind = address if self._host in (_LOOPBACK, "localhost") else "0.0.0.0"
        wanted = {
            "name": name,
            "listen": f"{bind}:0",
            "upstream": f"{upstream[0]}:{upstream[1]}",
            "enabled": True,
        }
        host, port = _state(self._request("post", "/proxies", wanted).json()).listen
        return (self._host if host in ("0.0.0.0", "::") else host), port

    def state(self, name: str) -> ProxyState:
        """Return what the server says about a proxy; raises ToxiproxyProblem if it has none of that name."""
        return _state(self._request("get", f"/proxies/{name}").json())

    def names(self) -> tuple[str, ...]:
        """Return the names of all proxies."""
        return tuple(sorted(self._request("get", "/proxies").json()))

    def set_enabled(self, name: str, enabled: bool) -> None:
        """Let a proxy listen, or close it and all of its connections."""
        self._request("post", f"/proxies/{name}", {"enabled": enabled})

    def add_toxic(self, name: str, toxic: Toxic) -> None:
        """Add a toxic to a proxy."""
        self._request("post", f"/proxies/{name}/toxics", toxic.as_json())

    def remove_toxic(self, name: str, toxic: str) -> None:
        """Remove a toxic from a proxy; harmless if it is gone."""
        self._request("delete", f"/proxies/{name}/toxics/{toxic}", may_be_gone=True)

    def delete(self, name: str) -> None:
        """Remove a proxy and close its connections; harmless if it is gone."""
        self._request("delete", f"/proxies/{name}", may_be_gone=True)

    def reset(self) -> None:
        """Let every proxy of the server listen again, without any toxic."""
        self._request("post", "/reset")

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, may_be_gone: bool = False
    ) -> Any:
        call = getattr(self._api, method)
        options: dict[str, Any] = {"timeout": self._timeout_s, "proxies": _NO_DETOUR}
        if body is not None:
            options["json"] = dict(body)
        try:
            answer = call(path, **options)
        except NotFound as error:
            if may_be_gone:
                return None
            raise ToxiproxyProblem(f"{self.url}{path}: {_error_text(error)}") from error
        except (ProxyExists, InvalidToxic) as error:
            raise ToxiproxyProblem(f"{self.url}{path}: {_error_text(error)}") from error
        except requests.RequestException as error:
            raise ToxiproxyProblem(
                f"no Toxiproxy server answers at {self.url} ({self._in_short(error)}); start one there, or unset "
                "TOXIPROXY_URL to use a toxiproxy-server on the PATH or the embedded one"
            ) from error
        if not answer.ok:
            raise ToxiproxyProblem(f"{self.url}{path}: HTTP {answer.status_code}: {answer.text[:200]}")
        return answer

    def _in_short(self, error: requests.RequestException) -> str:
        if isinstance(error, requests.Timeout):
            return f"not within {self._timeout_s:g} s"
        # The cause is at the end of several wrappers: "...: [Errno 111] Connection refused".
        return str(getattr(error.args[0], "reason", error) if error.args else error).rpartition(": ")[2]


def parse_url(url: str) -> tuple[str, int]:
    """Return host and port of an HTTP interface; raises ToxiproxyProblem if it is not such an address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    else:
        if parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.username:
            host = None
    if host is None or port is None:
        raise ToxiproxyProblem(f"TOXIPROXY_URL: {url!r} is not an address of the form http://127.0.0.1:8474")
    return host, port


def _state(body: Mapping[str, Any]) -> ProxyState:
    host, _, port = str(body["listen"]).rpartition(":")
    return ProxyState(
        name=str(body["name"]),
        listen=(host.strip("[]"), int(port)),
        upstream=str(body["upstream"]),
        enabled=bool(body["enabled"]),
        toxics=tuple(sorted(str(toxic["name"]) for toxic in body.get("toxics") or ())),
    )


def _error_text(error: Exception) -> str:
    content = error.args[0] if error.args else ""
    return content.decode(errors="replace") if isinstance(content, bytes) else str(content)
