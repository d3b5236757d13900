"""The states of a job."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job stands."""

    CREATED = "created"
    """The coordinator's process has not yet loaded what durable storage holds."""
    DEPLOYING = "deploying"
    """An attempt begins; not every subtask runs yet."""
    RUNNING = "running"
    """Every subtask runs. Checkpoints are triggered in this state only."""
    FINISHING = "finishing"
    """The last checkpoint is complete, after all input or with a stop; commits are missing."""
    STOPPING = "stopping"
    """The attempt failed; the job waits for its processes to end and for metadata on its way to the disk."""
    BACKING_OFF = "backing off"
    """Nothing is left of the attempt; the next one begins after a delay."""
    FINISHED = "finished"
    """All output is committed."""
    STOPPED = "stopped"
    """The job was stopped with a savepoint; all output before its barrier is committed, and there is no other."""
    FAILED = "failed"
    """The job was given up."""
