"""Defects of released versions of Spark that trials meet, so that a finding names them and nobody looks in the job."""

from __future__ import annotations

_NOT_EMPTY = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
_FIRST_OFFSETS = (
    "a known defect of Spark 4.1 to 4.3 (SPARK-53103), and none of the job: a driver that is killed while it writes "
    "its first offsets leaves a temporary file beside them, and no query with state starts from there any more; "
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart=false in the job's conf avoids it (What was found in "
    "Spark itself, in docs/guide/streaming-job.md)"
)


def known_defect(error: str, driver_killed: bool) -> str | None:
    """Return the sentence about the defect that an error of a query shows; None if it shows none that is known.

    ``driver_killed`` says whether a driver of the query had been killed before. The directory is empty when a trial
    begins, so otherwise something else has written there.
    """
    return _FIRST_OFFSETS if driver_killed and _NOT_EMPTY in error else None
