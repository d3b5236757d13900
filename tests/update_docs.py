"""Makes every sample output in the documents again, where it is stale: ``python -m tests.update_docs``.

With ``--numbers`` also where only numbers differ: times, and what a seed draws today.
"""

from __future__ import annotations

import argparse
import sys

from tests.sample_output import SAMPLES


def main() -> int:
    """Write what is stale, and say which blocks that were."""
    parser = argparse.ArgumentParser(description="Make the sample output in the documents again.")
    parser.add_argument("--numbers", action="store_true", help="also where only numbers differ")
    options = parser.parse_args()
    for sample in SAMPLES:
        state = "written again" if sample.update(options.numbers) else "as it was"
        sys.stdout.write(f"{sample.document}: {sample.begins}: {state}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
