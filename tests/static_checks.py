"""Runs linters, types and import contracts, and makes the archive of Spark's classes at the same time.

Either keeps one core busy. Tests on Spark need the archive (``harness.cluster.class_sharing``); without it there, the
first cluster makes it while all others wait.
"""

from __future__ import annotations

import subprocess
import sys

from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.support.errors import UsageProblem

CHECKS = """
set -ex
ruff check
ruff format --check
# Workflows cannot be run here. Neither linter asks the network.
check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml harness/cli/skeletons/ci.yml
check-jsonschema --builtin-schema vendor.github-actions .github/actions/*/action.yml
zizmor --offline --no-progress --quiet .github
# One process: on a busy machine, one of several may not start within the three seconds that it is given.
mypy
lint-imports
"""


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
