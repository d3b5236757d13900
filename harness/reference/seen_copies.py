"""Which local copies lie on hosts, by the names of their files."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barrier_tck.harness.record.operations import CopySeen
from barrier_tck.reference_impl.ids import SubtaskId

_COPY = re.compile(r"([^/]+)-(\d+)/chk-(\d+)-a(\d+)/.+")


def copies_among(files: Iterable[tuple[str, str]]) -> tuple[CopySeen, ...]:
    """Return the copies to which files belong, each given as host and path below the job's directory for copies."""
    found: dict[CopySeen, None] = {}
    for host, path in files:
        match = _COPY.fullmatch(path)
        if match is not None:
            vertex, index, checkpoint, attempt = match.groups()
            subtask = str(SubtaskId(vertex, int(index)))
            found[CopySeen(host, subtask, int(checkpoint), int(attempt))] = None
    return tuple(found)
