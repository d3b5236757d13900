"""What a record says of the machine and the versions a trial ran with. Imports none of what it names."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib import metadata

_DISTRIBUTIONS = ("barrier-tck", "pyspark", "pyarrow", "hypothesis", "msgspec")


@cache
def _facts() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version()), ("platform", platform.platform())]
    for name in _DISTRIBUTIONS:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    found += [
        ("processors", str(os.cpu_count() or 0)),
        ("hash_seed", os.environ.get("PYTHONHASHSEED", "random")),
        ("executable", os.path.basename(sys.executable)),
    ]
    return tuple(found)


def environment() -> dict[str, str]:
    """Return versions and machine facts, by name, as every record carries them."""
    return dict(_facts())
