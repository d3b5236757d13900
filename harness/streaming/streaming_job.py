"""What a user writes to test a query of Structured Streaming, in a few lines of one module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barrier_tck.harness.streaming.query_definition import QueryDefinition

if TYPE_CHECKING:
    from barrier_tck.harness.system.system_under_test import SystemUnderTest


@dataclass(frozen=True, kw_only=True)
class StreamingJob(QueryDefinition):
    """A query under test: a value that is bound to a name of its module, which ``--query module:name`` gives.

    Calling it makes the system under test, so ``--system module:name`` means the same.
    """

    def __call__(self) -> SystemUnderTest:
        """Return the system under test that runs this job."""
        # Executors import the module of a job, too, and need no system there.
        from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming

        return StructuredStreaming(self)
