"""Where Spark and this project are installed, for the processes that the harness starts."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import barrier_tck


def spark_home() -> Path:
    """The Spark inside the installed PySpark package, whatever SPARK_HOME says."""
    found = find_spec("pyspark")  # importing it takes long, and most processes only want to know where it is
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def import_path() -> str:
    """A PYTHONPATH with which a worker imports what this process imports from outside site-packages.

    Functions are pickled by reference to their module, so a harness that runs from a source tree must
    give its workers the same tree.
    """
    # An environment may see the packages of another one, too; their PYTHONPATH would put these before its own.
    places = [
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
        *site.getsitepackages(),
    ]
    installed = [Path(place).resolve() for place in places]
    chosen: list[str] = []
    for entry in [str(Path(barrier_tck.__file__).parents[1]), *sys.path]:
        path = Path(entry or os.curdir).resolve()
        if path.is_dir() and not any(path.is_relative_to(place) for place in installed):
            chosen.append(str(path))
    return os.pathsep.join(dict.fromkeys(chosen))
