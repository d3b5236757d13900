"""What a process needs to open a Spark session on a cluster of the harness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """All that a process needs to open a session on a cluster that another process started."""

    directory: str
    """The cluster's directory."""
    conf: Mapping[str, str]
    """Holds the cluster's secret."""
    quick_start: bool
    log_level: str
