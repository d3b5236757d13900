"""The requests of the S3 protocol, as far as the fault proxy has to distinguish them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.http_fault_proxy import Answer, Headers

_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class S3Requests:
    """Requests to one server; implements ``barrier_tck.harness.cluster.http_fault_proxy.Requests``."""

    refusal = Answer(503, "Slow Down", [("Content-Type", "application/xml")], _SLOW_DOWN)

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server

    def upstream(self, target: str) -> tuple[str, int]:
        return self._server

    def moments(self, method: str, target: str) -> tuple[UploadMoment, ...]:
        """Return which moments of an upload in parts a request has; none if it is any other request."""
        query = parse_qs(urlsplit(target).query)
        if "uploadId" not in query:
            return ()
        if method == "PUT" and "partNumber" in query:
            return (UploadMoment.PART,)
        return (UploadMoment.COMPLETION, UploadMoment.ANSWER) if method == "POST" else ()

    def is_repeatable(self, method: str, target: str) -> bool:
        return method in ("PUT", "POST", "DELETE")

    def redirected_here(self, headers: Headers, host: str) -> Headers:
        """Return the headers of an answer as they are: clients are never redirected."""
        return headers
