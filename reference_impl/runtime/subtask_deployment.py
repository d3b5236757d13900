"""What one subtask of one attempt is given: the deployment that the coordinator describes, and its world's ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import SubtaskSnapshot
from barrier_tck.reference_impl.runtime.ports import (
    BackgroundExecutor,
    ChannelOutput,
    Clock,
    CoordinatorLink,
    InputBuffers,
    OutputBuffers,
    Probe,
    Timers,
)
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class SubtaskDeployment:
    """What the coordinator tells a slot to run."""

    job: str
    subtask: SubtaskId
    attempt: AttemptNumber
    config: JobConfig
    restore: SubtaskSnapshot | None = None
    """The subtask's part of the checkpoint that the attempt starts from; None: from the beginning."""
    restored_checkpoint: CheckpointId | None = None
    stopped: bool = False
    """Whether the job was stopped with what is restored: then only its commits are left to do, and nothing is read."""

    @property
    def finished_before(self) -> bool:
        """Whether the subtask had finished in what is restored: it reads and emits nothing again (BAR-6)."""
        return self.restore is not None and self.restore.finished


@dataclass(frozen=True)
class SubtaskPorts:
    """The world of one subtask."""

    clock: Clock
    probe: Probe
    output: ChannelOutput
    coordinator: CoordinatorLink
    background: BackgroundExecutor
    storage: CheckpointStorage
    files: FileSystem
    """Where sources read and sinks write."""
    buffered_bytes: Callable[[], int] = lambda: 0
    """Bytes that wait in the input channels that are held back now (ALN-3)."""
    working_root: str | None = None
    """Local directory for the files of state backends; None: the system's temporary directory."""
    own_threads: bool = True
    """Whether state backends may work in threads of their own; not in virtual time, which knows nothing of them."""
    local_files: FileSystem | None = None
    """The place for copies of the job's state, on the host's disk or in memory; None: the host offers none (LOC-1)."""
    host: str = ""
    """What this place is called: as the host is, or in its own way if it is in memory."""
    input_buffers: InputBuffers | None = None
    """The unread input; None if there is no channel state: the mode has none, and none is restored."""
    output_buffers: OutputBuffers | None = None
    """What was sent and is not yet on its way; None if there is no channel state."""
    has_room: Callable[[], bool] = lambda: True
    """Tells whether more may be sent now; as long as not, nothing is read, and no timer of an operator goes off."""
    timers: Timers | None = None
    """Needed in mode ALIGNED_TIMEOUT, by operators with timers, and by aligned sources; ``set`` leads to the driver's
    ``on_timer``."""
