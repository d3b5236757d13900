"""How Spark is set while a state store is certified: short sequences meet what takes hours in a query.

Some settings are drawn for each sequence, as a query's owner may choose them. Those of a *query* are fixed by its first
micro-batch, as Spark keeps them in the offsets; those of a *run* may change whenever the query starts again. What the
target sets itself is drawn by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.harness.support.strict_input import nearest

RETAINED = 2
SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    # Snapshots are due after two versions, and files are deleted as soon as they may be.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs": "5000",
}
"""Settings of every session; drawn ones and those of the target come on top."""
_STORE = "spark.sql.streaming.stateStore"
FORMAT_VERSION = f"{_STORE}.checkpointFormatVersion"
"""2: each commit has an id of its own, by which the version is opened again."""


@dataclass(frozen=True, slots=True)
class DrawnSetting:
    """A setting of Spark that is drawn; an unknown one is ignored by Spark and by stores that do not have it."""

    name: str
    values: tuple[str, ...]
    """The first is that of a session that sets nothing."""
    of_query: bool = False
    """Whether a query keeps it for its whole life."""

    @property
    def short(self) -> str:
        """Its name without what all have in common."""
        return self.name.removeprefix("spark.sql.streaming.").removeprefix("stateStore.")


DRAWN = (
    DrawnSetting(FORMAT_VERSION, ("1", "2"), of_query=True),
    DrawnSetting(f"{_STORE}.rowChecksum.enabled", ("false", "true"), of_query=True),
    DrawnSetting(f"{_STORE}.compression.codec", ("lz4", "zstd", "snappy"), of_query=True),
    DrawnSetting(f"{_STORE}.rocksdb.changelogCheckpointing.enabled", ("false", "true")),
    DrawnSetting(f"{_STORE}.minDeltasForSnapshot", ("2", "1", "4")),
    DrawnSetting(f"{_STORE}.autoSnapshotRepair.enabled", ("true", "false")),
    DrawnSetting(f"{_STORE}.rocksdb.compactOnCommit", ("false", "true")),
    DrawnSetting(f"{_STORE}.rocksdb.boundedMemoryUsage", ("false", "true")),
    DrawnSetting(f"{_STORE}.rocksdb.trackTotalNumberOfRows", ("true", "false")),
    DrawnSetting("spark.sql.streaming.checkpoint.fileChecksum.enabled", ("true", "false")),
    DrawnSetting("spark.sql.streaming.maxBatchesToRetainInMemory", ("2", "0", "1")),
)
"""What is drawn."""
_BY_NAME = {one.name: one for one in DRAWN}


def require_drawn(name: str, value: str) -> None:
    """Raise ValueError for a setting that is not drawn: a file that names a class to be loaded is none of ours."""
    known = _BY_NAME.get(name)
    if known is None:
        raise ValueError(
            f"the setting {name!r} is none of those that are drawn{nearest(name, tuple(_BY_NAME))}"
        )
    if value not in known.values:
        raise ValueError(f"{name} is {value!r}, and not one of {', '.join(known.values)}")


def started_again(former: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a query that was started with ``former`` ones and starts again with others."""
    kept = {name: value for name, value in former.items() if _BY_NAME[name].of_query}
    return kept | {name: value for name, value in settings.items() if not _BY_NAME[name].of_query}


def in_short(settings: Mapping[str, str]) -> str:
    """Return settings as a line."""
    return ", ".join(f"{_BY_NAME[name].short}={value}" for name, value in settings.items())
