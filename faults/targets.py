"""Structural targets: what a deployment hands to an injector, which knows nothing else of the system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from barrier_tck.faults.upload_moment import UploadMoment

COORDINATOR = "coordinator"
"""Names the coordinator as a ``receiver``: the connection is then the subtask's control connection."""


class TargetKind(StrEnum):
    """What a system may expose, for faults to hit."""

    EXECUTOR = "executor"
    """Executors that can be killed."""
    WORKER = "worker"
    """The process of one subtask, which can be killed."""
    COORDINATOR = "coordinator"
    """A coordinator that can be killed, and starts again."""
    HOST = "host"
    """Hosts that can be lost with their disks."""
    CAPACITY = "capacity"
    """Executors that nothing replaces when they are lost."""
    PAUSE = "pause"
    """Processes that can be stopped, and go on."""
    CHANNEL = "channel"
    """Single connections."""
    PARTITION = "partition"
    """All connections of an executor."""
    PACKETS = "packets"
    """Networks of hosts, which can lose packets."""
    STORAGE = "storage"
    """Copies of state."""
    MESSAGES = "messages"
    """Messages about checkpoints between a subtask and the coordinator."""
    OBJECT_STORE = "object_store"
    """The service that holds checkpoints: the server of an object store, or the nodes of HDFS."""
    WRITES = "writes"
    """Writes of single files of checkpoints, by any process."""
    DELETIONS = "deletions"
    """Deletions of checkpoints by the coordinator."""
    SNAPSHOTS = "snapshots"
    """Snapshots of subtasks, whose synchronous parts can fail."""
    MEMORY = "memory"
    """Hosts with a memory limit."""


class Direction(StrEnum):
    """Which way of a connection is disturbed, seen from the endpoint that a fault names first."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


class Peers(StrEnum):
    """From whom an executor is cut off by a partition."""

    EXECUTORS = "executors"
    """From the other executors; its control connections still work."""
    COORDINATOR = "coordinator"
    """From the driver; its data channels still work."""
    EVERYONE = "everyone"


class Damage(StrEnum):
    """What is wrong with a copy of a subtask's state."""

    MISSING = "missing"
    """All of it is gone."""
    TRUNCATED = "truncated"
    """Every state file lacks its end."""
    BIT_FLIPPED = "bit_flipped"
    """In every state file one bit is flipped."""
    OLDER_CHECKPOINT = "older_checkpoint"
    """It is well formed, but says that it is the copy of an earlier checkpoint."""
    OLDER_ATTEMPT = "older_attempt"
    """It is well formed, but says that an earlier attempt wrote it."""
    OTHER_KEY_GROUPS = "other_key_groups"
    """It is well formed, but says that it holds another range of key groups."""
    OTHER_LINEAGE = "other_lineage"
    """It is what another run of a job of this name left here: it bears the right names and vouches for its own files,
    but they are not those of this checkpoint."""
    CONSUMED = "consumed"
    """An earlier restore took its state files away; it still says that it has them."""
    UNREADABLE = "unreadable"
    """Its directory cannot be read."""
    PARTIAL = "partial"
    """One state file is missing, the others are intact."""

    @property
    def phrase(self) -> str:
        """Return a phrase for a copy damaged like this, for instance ``with flipped bits``."""
        return _PHRASES[self]


class Forgery(StrEnum):
    """What is wrong with a forged acknowledgement."""

    UNTRIGGERED = "untriggered"
    """Its checkpoint was never triggered."""
    UNKNOWN_SUBTASK = "nobody"
    """Its subtask does not exist."""
    OTHER_ATTEMPT = "other_attempt"
    """Its attempt is not the one that runs."""

    @property
    def phrase(self) -> str:
        """Return a phrase, with ``{}`` for the subtask, for instance ``of {} for another attempt``."""
        return _FORGED[self]


_FORGED = {
    Forgery.UNTRIGGERED: "of {} for a checkpoint that was never triggered",
    Forgery.UNKNOWN_SUBTASK: "of a subtask beside {} that does not exist",
    Forgery.OTHER_ATTEMPT: "of {} in another attempt",
}
_PHRASES = {
    Damage.MISSING: "missing",
    Damage.TRUNCATED: "truncated",
    Damage.BIT_FLIPPED: "with flipped bits",
    Damage.OLDER_CHECKPOINT: "of an older checkpoint",
    Damage.OLDER_ATTEMPT: "of an older attempt",
    Damage.OTHER_KEY_GROUPS: "of other key groups",
    Damage.OTHER_LINEAGE: "of another run of the job",
    Damage.CONSUMED: "consumed",
    Damage.UNREADABLE: "unreadable",
    Damage.PARTIAL: "partial",
}


OF_EVERY_COPY = (Damage.MISSING, Damage.TRUNCATED, Damage.BIT_FLIPPED, Damage.PARTIAL)
"""The damage that files in durable storage can have too; the rest is about what a local copy says of itself."""


@runtime_checkable
class ProcessTarget(Protocol):
    """A process, or a simulated one, that can be killed."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``executor 2 (pid 4711) on 127.0.0.3``."""

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill it at once and return when it is dead; raises TargetGone if it was already."""

    def is_dead(self) -> bool:
        """Return whether it is dead: the proof that the fault fired."""


@runtime_checkable
class PausableTarget(ProcessTarget, Protocol):
    """A process that can be stopped for a time."""

    def pause(self) -> None:
        """Stop it (SIGSTOP) and return when it stands; raises TargetGone if it is dead."""

    def resume(self) -> None:
        """Let it go on (SIGCONT), unless another target holds it, too; harmless if it is dead or was not paused."""

    def is_paused(self) -> bool:
        """Return whether it stands still: the proof that the fault fired."""


@runtime_checkable
class ReturningHost(ProcessTarget, Protocol):
    """A host that can come back under its own name after it was lost, with an empty disk."""

    def come_back(self) -> None:
        """Let it come back once it is lost."""

    def is_back(self) -> bool:
        """Return whether a host of its name is there, with nothing on its disk: the proof that it came back."""


@runtime_checkable
class StorageUser(ProcessTarget, Protocol):
    """A process that starts again from durable storage, which can be made unreadable to it."""

    def hide_storage(self, duration_ms: int) -> None:
        """Let its successor's reads fail for this long after it starts."""


@runtime_checkable
class SavepointStarter(ProcessTarget, Protocol):
    """A process whose job can be started again from a savepoint instead of its latest checkpoint."""

    def start_from_savepoint(self) -> None:
        """Let its successor start from the newest savepoint, if no newer checkpoint is complete then."""


class Loss(Enum):
    """Why a message never arrives."""

    SWALLOWED = "it is gone, and the connection stays open"
    CLOSED = "the connection closes in its place, once what was sent before has arrived"


@dataclass(frozen=True, slots=True)
class PassingMessage:
    """A message on a disturbed connection. Times in milliseconds."""

    sent_ms: float
    arrives_ms: float
    """When it would arrive if nothing more were wrong."""
    line_free_ms: float
    """Until then the connection is busy with what was sent before."""
    size: int
    """Bytes."""
    passed: int
    """Bytes that the impairment let through this connection before."""


@dataclass(frozen=True, kw_only=True)
class Impairment:
    """What is done to a connection, in worlds that do it message by message and in those that use Toxiproxy.

    An impairment is in force on each of a pair's connections, those that are opened later included.
    """

    direction: Direction = Direction.BOTH
    """FORWARD: from the end that the target was asked for first."""
    closes: ClassVar[bool] = False
    """Whether open connections are closed at once, and none can be opened while it is in force; always both ways."""
    swallows: ClassVar[bool] = False
    """Whether connections that miss something are closed once it heals: a stream with a hole must not go on."""
    toxic: ClassVar[str] = ""
    """The type of toxic that does it; empty if it closes connections, for which a proxy stops listening."""

    def attributes(self) -> dict[str, int]:
        """Return the attributes of the toxic."""
        return {}

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float | Loss:
        """Return when a message arrives, or why it does not; ``draw`` draws from 0 to 1."""
        return message.arrives_ms


@runtime_checkable
class RefusesFiles(Protocol):
    """Copies of which single files can be refused."""

    def refuse_files(self, files: int) -> Callable[[], bool] | None:
        """Let the next ``files`` files fail during their first write. Returns a function that says whether any has.

        Returns None if the system cannot do that.
        """


@runtime_checkable
class DeletionsTarget(Protocol):
    """Deletions that can be made to fail."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log."""

    def refuse(self, times: int) -> Callable[[], bool]:
        """Let ``times`` deletions fail, the first of each checkpoint; returns a function that says whether any has."""


@runtime_checkable
class SnapshotsTarget(Protocol):
    """The snapshots of one subtask, whose synchronous parts can be made to fail."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``snapshots of totals[0]``."""

    def fail(self, times: int) -> Callable[[], bool]:
        """Let the synchronous parts of ``times`` snapshots fail; returns a function that says whether any has."""


@runtime_checkable
class LinkTarget(Protocol):
    """A connection, or all connections of one pair of ends, that can be disturbed."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``source[0] → totals[1] (proxy 127.0.0.1:4711)``."""

    def impair(self, impairment: Impairment) -> None:
        """Disturb it, open and future connections alike; raises TargetGone if there is nothing to disturb."""

    def is_impaired(self) -> bool:
        """Return whether the disturbance is in force, asked of the network that carries it out: the proof that it
        fired.
        """

    def heal(self) -> None:
        """Undo it altogether; what was swallowed stays lost, so such connections are closed. Harmless twice."""


@runtime_checkable
class WritesTarget(Protocol):
    """Writes that can be made to fail."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``local copies of totals[0] on host-1``."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files of durable storage that were hit, by the paths that the system's checkpoints use."""

    def refuse_writes(self, checkpoints: int) -> None:
        """Let further writes fail: for this many checkpoints in durable storage, for good on local disks."""

    def refuses_writes(self) -> bool:
        """Return whether a write would fail now: the proof that the fault fired."""


@runtime_checkable
class CopiesTarget(WritesTarget, Protocol):
    """The copies of one subtask's state in one kind of place: local disks, or durable storage."""

    def damage(self, damage: Damage) -> None:
        """Damage what is there; raises TargetGone if there is no copy, or none that can be damaged like this."""

    def is_damaged(self) -> bool:
        """Return whether nothing that was hit still has its original content: the proof that the fault fired."""


@runtime_checkable
class MessagesTarget(Protocol):
    """The messages about checkpoints between one subtask and the coordinator; they can arrive twice, or be forged."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``messages of totals[0]``."""

    def repeat(self, direction: Direction, late_ms: float) -> None:
        """Make each message arrive again, this much later; FORWARD means from the subtask to the coordinator."""

    def is_repeating(self) -> bool:
        """Return whether messages are repeated now: the proof that the fault fired."""

    def stop(self) -> None:
        """Stop repeating messages. Stopping twice is harmless."""

    def forge(self, forgery: Forgery) -> None:
        """Write a state file, and hand the coordinator an acknowledgement that names it and cannot be right."""

    def is_forged(self) -> bool:
        """Return whether the coordinator has been handed a forged acknowledgement: the proof that the fault fired."""


@runtime_checkable
class ObjectStoreTarget(Protocol):
    """The service that holds the checkpoints: the server of an object store, or the nodes of HDFS."""

    strikes_later: bool
    """Whether the next request comes only when the fault has been injected, because the world stands still meanwhile.
    Then nothing can be proved before the end of the run (``has_struck``)."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``versitygw (pid 4711)``."""

    def kill_in_upload(self, moment: UploadMoment) -> None:
        """Kill the server of the next upload (SIGKILL) at this moment; raises TargetGone if it is dead already."""

    def is_dead(self) -> bool:
        """Return whether it was killed in an upload: the proof that the fault fired."""

    def start_again(self) -> None:
        """Start it with what it has stored and return when it answers; stop waiting for an upload. Harmless twice."""

    def throttle(self) -> None:
        """Let every request be refused from now on, as a service does that has too much to do."""

    def has_throttled(self) -> bool:
        """Return whether a request was refused: the proof that the fault fired."""

    def stop_throttling(self) -> None:
        """Refuse no more requests. Stopping twice is harmless."""

    def fail_request(self, nth: int, carried_out: bool) -> Callable[[], bool]:
        """Leave the nth request from now on that changes something unanswered, lost or ``carried_out``.

        Returns what says whether that has happened: the proof that the fault fired.
        """

    def has_struck(self) -> bool:
        """Return, also when the fault is healed, whether a server was killed or a request refused."""

    @property
    def link(self) -> LinkTarget:
        """Return all connections with the service."""


class WriteFault(StrEnum):
    """What becomes of the write of a file."""

    FAILS = "fails"
    """Nothing is written: an error of input and output."""
    FULL = "full"
    """A part of it finds room, then there is no space left; the file never gets its name."""
    UNSURE = "unsure"
    """The file is written and has its name, and yet its writer gets an error."""
    SLOW = "slow"
    """It takes longer."""

    @property
    def phrase(self) -> str:
        """Return what such writes do, for instance ``find no space left``."""
        return _TROUBLES[self]


_TROUBLES = {
    WriteFault.FAILS: "fail",
    WriteFault.FULL: "find no space left",
    WriteFault.UNSURE: "succeed and report an error",
    WriteFault.SLOW: "are slow",
}


@runtime_checkable
class DisturbableWrites(Protocol):
    """The writes of all files of checkpoints."""

    @property
    def description(self) -> str:
        """Return a phrase for the fault log, for instance ``writes to the checkpoint directory``."""

    def disturb(self, trouble: WriteFault, times: int, latency_ms: int) -> None:
        """Disturb this many writes, from now on; raises TargetGone if no process writes now."""

    def is_struck(self) -> bool:
        """Return whether any process's write was disturbed since then: the proof that the next ones will be."""

    def has_met(self) -> bool:
        """Return, at the end of the run, whether a write that the system itself made was disturbed since then."""


class Targets(Protocol):
    """What a deployment exposes at this moment. A method returns None for what it cannot expose."""

    def executor_of(self, subtask: str) -> ProcessTarget | None:
        """Return the executor that hosts a subtask now; a ``PausableTarget`` if it can be paused.

        While nothing is deployed, a system may return the executor that hosted the subtask last; the same holds below.
        """

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        """Return the process that runs a subtask now; a ``PausableTarget`` if it can be paused."""

    def coordinator(self) -> ProcessTarget | None:
        """Return the coordinator."""

    def host_of(self, subtask: str) -> ProcessTarget | None:
        """Return the host of a subtask's executor: killed, it takes its local disk with it, and what it has not synced
        to shared storage, if the deployment can take that back."""

    def lasting_loss_of(self, subtask: str) -> ProcessTarget | None:
        """Return the executor of a subtask with its host: killed, nothing takes its place until the trial is over."""

    def memory_of(self, subtask: str) -> ProcessTarget | None:
        """Return the executor of a subtask on a host with a memory limit: the kernel kills it, because none is left."""

    def link(self, sender: str, receiver: str) -> LinkTarget | None:
        """Return the connection between two subtasks, or a subtask's to the coordinator (``COORDINATOR``)."""

    def links_of_executor(self, subtask: str, peers: Peers) -> Sequence[LinkTarget] | None:
        """Return all connections between the executor of a subtask and its peers, seen from the executor."""

    def links_between_halves(self, subtasks: Sequence[str]) -> Sequence[LinkTarget] | None:
        """Return all connections between the executors of some subtasks and all others, seen from the former."""

    def local_copies_of(self, subtask: str) -> CopiesTarget | None:
        """Return the copies of a subtask's state on local disks."""

    def primary_of(self, subtask: str) -> CopiesTarget | None:
        """Return a subtask's part of the latest completed checkpoint in durable storage."""

    def metadata(self) -> WritesTarget | None:
        """Return the coordinator's writes that make checkpoints complete."""

    def messages_of(self, subtask: str) -> MessagesTarget | None:
        """Return the messages about checkpoints between a subtask and the coordinator."""

    def object_store(self) -> ObjectStoreTarget | None:
        """Return the service that holds the checkpoints, as the target of one fault."""

    def writes(self) -> DisturbableWrites | None:
        """Return the writes of all files of checkpoints."""

    def deletions(self) -> DeletionsTarget | None:
        """Return the coordinator's deletions of checkpoints."""

    def snapshots_of(self, subtask: str) -> SnapshotsTarget | None:
        """Return a subtask's snapshots."""


class NoTargets:
    """Exposes nothing: a system's own targets derive from it and replace what they do expose."""

    def executor_of(self, subtask: str) -> ProcessTarget | None:
        """Return None: no executor is exposed."""
        return None

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        """Return None: no process of a subtask is exposed."""
        return None

    def coordinator(self) -> ProcessTarget | None:
        """Return None: no coordinator is exposed."""
        return None

    def host_of(self, subtask: str) -> ProcessTarget | None:
        """Return None: no host is exposed."""
        return None

    def lasting_loss_of(self, subtask: str) -> ProcessTarget | None:
        """Return None: every executor that is lost is replaced."""
        return None

    def memory_of(self, subtask: str) -> ProcessTarget | None:
        return None

    def link(self, sender: str, receiver: str) -> LinkTarget | None:
        """Return None: no connection is exposed."""
        return None

    def links_of_executor(self, subtask: str, peers: Peers) -> Sequence[LinkTarget] | None:
        """Return None: no connection is exposed."""
        return None

    def links_between_halves(self, subtasks: Sequence[str]) -> Sequence[LinkTarget] | None:
        """Return None: no connection is exposed."""
        return None

    def local_copies_of(self, subtask: str) -> CopiesTarget | None:
        """Return None: no local copy is exposed."""
        return None

    def primary_of(self, subtask: str) -> CopiesTarget | None:
        """Return None: no durable copy is exposed."""
        return None

    def metadata(self) -> WritesTarget | None:
        """Return None: no writes of a coordinator are exposed."""
        return None

    def messages_of(self, subtask: str) -> MessagesTarget | None:
        """Return None: no messages are exposed."""
        return None

    def object_store(self) -> ObjectStoreTarget | None:
        """Return None: no such service is exposed."""
        return None

    def writes(self) -> DisturbableWrites | None:
        """Return None: no writes are exposed."""
        return None

    def deletions(self) -> DeletionsTarget | None:
        """Return None: no deletions are exposed."""
        return None

    def snapshots_of(self, subtask: str) -> SnapshotsTarget | None:
        """Return None: no snapshots are exposed."""
        return None


class TargetGone(Exception):
    """The target was already dead when the fault was to hit it."""
