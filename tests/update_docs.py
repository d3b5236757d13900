"""Makes every sample output in the documents again, where it is stale: ``python -m tests.update_docs``."""

from __future__ import annotations

import sys

from tests.sample_output import SAMPLES


def main() -> int:
    """Write what is stale, and say which blocks that were."""
    for sample in SAMPLES:
        state = "written again" if sample.update() else "as it was"
        sys.stdout.write(f"{sample.document}: {sample.begins}: {state}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
