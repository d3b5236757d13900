"""What a record says about the machine and the versions a trial ran with. It imports none of the packages it names."""

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
    """Return the versions and machine facts that every record carries, by name."""
    return dict(_facts())
