"""Which releases of Spark are supported, what each was tried with, and what the older ones lack."""

from __future__ import annotations

from importlib import metadata

from barrier_tck.harness.support.errors import EnvironmentProblem
from barrier_tck.harness.support.version_numbers import release_numbers

OLDEST, BELOW = (3, 5), (5,)
"""The bounds in ``pyproject.toml``."""
TESTED = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each line when docs/releases.md was made; tox has an environment for each."""
_FIRST_OF_REFERENCE = (4, 0)
_FIRST_WITH_STATE_SOURCE = (4, 0)


def spark_release() -> tuple[int, ...]:
    """Return the numbers of the installed PySpark; empty if its version has none."""
    return release_numbers(metadata.version("pyspark"))


def reads_state() -> bool:
    """Return whether this Spark has the data source that reads the state of a query (``statestore``)."""
    return spark_release() >= _FIRST_WITH_STATE_SOURCE


def runs_reference() -> bool:
    """Return whether the reference runtime runs on this Spark."""
    return spark_release() >= _FIRST_OF_REFERENCE


def check_reference() -> None:
    """Raise EnvironmentProblem if the reference runtime does not run on this Spark."""
    if not runs_reference():
        raise EnvironmentProblem(
            f"The reference runtime runs on Spark 4.0 and newer; PySpark {metadata.version('pyspark')} is installed. "
            "Queries on Structured Streaming and state stores of Spark can be tested with it. For the rest, run: "
            "python3 -m pip install 'pyspark>=4.0,<5'"
        )
