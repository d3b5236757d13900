"""How Spark is set while a state store is certified: short sequences meet what takes hours in a query."""

from __future__ import annotations

RETAINED = 2
SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    # Snapshots are due after two versions, and files are deleted as soon as they may be.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
    "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs": "5000",
}
"""Settings of every session; those of the target come on top."""
