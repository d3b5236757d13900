"""Where the harness keeps what it has made once and uses again: prepared inputs, archives of Spark's classes."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "BARRIER_TCK_DATA"
"""Environment variable that names the directory."""


def data_directory() -> Path:
    """Return the directory, which need not exist yet: BARRIER_TCK_DATA, or else one in the user's cache."""
    data = os.environ.get(DATA_VARIABLE)
    if data:
        return Path(data).absolute()  # Spark's processes work in other directories
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "barrier-tck"
