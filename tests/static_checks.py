"""Runs linter, types and import contracts, and makes the archive of Spark's classes at the same time.

Either keeps one core busy. Tests on Spark need the archive (``harness.cluster.class_sharing``); without it there, the
first cluster makes it while all others wait.
"""

from __future__ import annotations

import subprocess
import sys

from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.support.errors import UsageProblem

# mypy is one process: on a busy machine, one of several may not start within the three seconds that it is given.
CHECKS = "set -ex; ruff check; ruff format --check; mypy; lint-imports"


def main() -> int:
    """Return the exit code of the first check that fails, or 0."""
    try:
        java = find_java()
    except UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    checks = subprocess.Popen(["sh", "-c", CHECKS])
    shared_classes(java)
    return checks.wait()


if __name__ == "__main__":
    sys.exit(main())
