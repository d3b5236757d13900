"""Runs linter, types and import contracts, and meanwhile what would hold up all processes of the tests at once.

Either keeps one core busy. Tests on Spark need the archive of Spark's classes (``harness.cluster.class_sharing``);
without it there, the first cluster makes it while all others wait. And each process that runs tests compiles what is
not compiled yet, as all others do at the same time: so the tests are collected once before. A test that cannot be
collected is seen early.
"""

from __future__ import annotations

import subprocess
import sys

from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.support.errors import UsageProblem

# mypy is one process: on a busy machine, one of several may not start within the three seconds that it is given.
CHECKS = "set -ex; ruff check; ruff format --check; mypy; lint-imports"
COLLECTS = (sys.executable, "-m", "pytest", "--collect-only", "-qqq", "tests", "conformance")


def main() -> int:
    """Return the exit code of the first check that fails, or 0."""
    try:
        java = find_java()
    except UsageProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    checks = subprocess.Popen(["sh", "-c", CHECKS])
    shared_classes(java)
    collected = subprocess.run(COLLECTS, capture_output=True, text=True, check=False)
    if collected.returncode:
        sys.stderr.write(collected.stdout + collected.stderr)
    return checks.wait() or collected.returncode


if __name__ == "__main__":
    sys.exit(main())
