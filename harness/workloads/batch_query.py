"""The meaning of a job as a batch query in SQL, for workloads whose result does not depend on the order of arrival.

The statement is written once. It keeps to what Spark SQL and SQLite share, so that the same text runs on both: on
Spark SQL where Spark runs, and in the harness's own process where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from barrier_tck.harness.plan.job_graph import JobPlan

RESULT = ("key", "ts", "id", "mark", "n")
"""The columns of the result: those of a record in event time but ``how``."""


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """A statement over one table for each source vertex, whose columns are those of the input."""

    sql: str
    """It has the columns ``RESULT``. A parameter is written ``:name``."""
    parameters: Mapping[str, int]


@runtime_checkable
class HasBatchQuery(Protocol):
    """What a workload in event time may add.

    Its job must give each record that is behind the watermark to a side output which a sink writes, as it is: then the
    result is that of the query over all other records (EVT-2, EVT-4).
    """

    def batch_query(self, job: JobPlan) -> BatchQuery:
        """Return the query that gives what the job's other sinks write, whatever the order of arrival."""
