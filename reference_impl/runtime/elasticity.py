"""Going on narrower: which job an attempt runs if slots are missing (decision 0062)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from barrier_tck.reference_impl.config import ElasticConfig
from barrier_tck.reference_impl.operators.graph import JobGraph, Partitioning
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.protocol.narrowing import narrowed
from barrier_tck.reference_impl.protocol.rescale import widths_of
from barrier_tck.reference_impl.runtime.compatibility import require_fitting
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, JobUsageError

_LOOKS = 10
"""How often a start that waits for slots looks whether they are there."""


class Elasticity:
    """Decides before each attempt of one job; the number of slots and the time are its input."""

    def __init__(self, graph: JobGraph, config: ElasticConfig) -> None:
        self.wanted = graph
        """The job if no slot is missing."""
        self._config = config
        self._present = graph
        """The job of the attempt before."""
        self._waiting_since_ms: float | None = None
        for name in config.fixed:
            graph.vertex(name)  # raises JobUsageError if there is none of that name

    @property
    def retry_after_ms(self) -> float:
        """Return after how long to ask again if slots are missing."""
        return max(1.0, self._config.wait_ms / _LOOKS)

    def job_at_start(self, completed: Sequence[CompletedCheckpoint]) -> JobGraph:
        """Return a job that can start from what is stored, if there is one: as it is meant to be, or else as parallel
        as the one that took the newest checkpoint. The next ``job_for`` falls back to it.
        """
        newest = max(completed, key=lambda one: one.checkpoint, default=None)
        if newest is not None and newest.job is not None and not _fits(self.wanted, completed):
            names = [vertex.name for vertex in self.wanted.vertices]
            widths = {name: width for name, width in widths_of(newest.job).items() if name in names}
            with contextlib.suppress(JobUsageError):  # it was another job, which cannot be that parallel now
                self._present = self.wanted.at_widths(widths)
        return self._present

    def job_for(
        self, slots: int | None, now_ms: float, completed: Sequence[CompletedCheckpoint]
    ) -> JobGraph | None:
        """Return the job to deploy now, or None: slots are missing, and they may still come.

        ``slots`` None: any job fits. ``completed`` are the checkpoints from which the attempt may start.
        If the job fits at no parallelism, or at none that these checkpoints allow, it is the job of the attempt
        before, which then waits for its slots.
        """
        enough = slots is None or slots >= len(self.wanted.subtasks)
        if not enough:
            if self._waiting_since_ms is None:
                self._waiting_since_ms = now_ms
            if now_ms < self._waiting_since_ms + self._config.wait_ms:
                return None
        self._waiting_since_ms = None
        found = self.wanted if slots is None or enough else self._narrower(slots)
        if found is not None and _fits(found, completed):
            self._present = found
        return self._present

    def _narrower(self, slots: int) -> JobGraph | None:
        wanted = {vertex.name: vertex.parallelism for vertex in self.wanted.vertices}
        joined = [
            (edge.source, edge.target)
            for edge in self.wanted.edges
            if edge.partitioning is Partitioning.FORWARD
        ]
        in_loops = [name for loop in self.wanted.loops for name in loop.vertices]
        widths = narrowed(wanted, joined, (*self._config.fixed, *in_loops), slots)
        return self.wanted.at_widths(widths) if widths is not None else None


def _fits(graph: JobGraph, completed: Sequence[CompletedCheckpoint]) -> bool:
    """Return whether a job can start from each of some checkpoints."""
    try:
        require_fitting(graph, completed)
    except IncompatibleState:
        return False
    return True
