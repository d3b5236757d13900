"""What a shell completes as the value of an option or an argument."""

from __future__ import annotations

from collections.abc import Callable


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return what completes one of a few values."""

    def completed(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return completed


def campaign_names(incomplete: str) -> list[str]:
    """Complete the name of a campaign file that comes with the package; the shell completes paths itself."""
    from barrier_tck.harness.cli.shipped import shipped_campaigns

    return one_of(*shipped_campaigns())(incomplete)


def first_files(incomplete: str) -> list[str]:
    """Complete the name of a file that ``init`` can write."""
    from barrier_tck.harness.cli.shipped import SKELETONS

    return one_of(*SKELETONS, "examples")(incomplete) + campaign_names(incomplete)


SYSTEMS = one_of("reference-simulated", "reference-spark", "structured-streaming")
BACKENDS = one_of("heap", "rocksdb")
STORAGES = one_of("files", "s3", "hdfs", "memory")
STRATEGIES = one_of("uniform", "swarm", "guided", "pct")
