"""Where a Python daemon of Spark's executors imports PySpark from: installed files rather than source archives."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_PYSPARK = "pyspark.zip"
_PY4J = re.compile(r"py4j-(.+)-src\.zip")
_JAR = re.compile(r"spark-core_.+\.jar")


def prefer_installed() -> tuple[str, ...]:
    """Take Spark's archives of PySpark and Py4J off the import path where the same version is installed; return them.

    An executor puts the archives ahead of all else, and the jar of Spark's core beside them. There is no compiled
    code in them: every daemon would compile what it imports, and every worker would read the archives' directories
    again when it starts, which is half of what such a process costs. An archive whose package is not installed, or
    is installed in another version, stays where it is.
    """
    archives = [path for path in sys.path if _is_archive(path)]
    others = [path for path in sys.path if path not in archives]
    dropped = tuple(path for path in archives if _is_installed(path, others))
    sys.path[:] = [path for path in sys.path if path not in dropped]
    for path in dropped:
        sys.path_importer_cache.pop(path, None)
    return dropped


def _is_archive(path: str) -> bool:
    name = os.path.basename(path)
    return name == _PYSPARK or any(pattern.fullmatch(name) for pattern in (_PY4J, _JAR))


def _is_installed(archive: str, path: list[str]) -> bool:
    """Return whether an import along ``path`` finds what the archive holds, in the same version."""
    py4j = _PY4J.fullmatch(os.path.basename(archive))
    found = PathFinder.find_spec("pyspark" if py4j is None else "py4j", path)
    if found is None or found.origin is None:
        return False
    package = Path(found.origin).resolve().parent
    if py4j is None:
        # A Spark that pip installed lies within its own package. No Python is in its jars.
        return Path(archive).resolve().parent in (package / "python" / "lib", package / "jars")
    versions = importlib.metadata.distributions(name="py4j", path=[str(package.parent)])
    return py4j[1] in [distribution.version for distribution in versions]
