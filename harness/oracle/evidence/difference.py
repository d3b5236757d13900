"""What differs between a checkpoint, or the output, and what the job means: one difference, and of which kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """Kinds of difference; ``cut_signs`` says which clause each of them breaks, under which circumstances."""

    MISSING = auto()
    """A record, or what it adds, is not where it belongs."""
    SURPLUS = auto()
    """A record, or what it adds, is where it does not belong, or too often."""
    WRONG = auto()
    """Something else is there than what belongs there."""
    ORDER = auto()
    """Records are in another order than they were sent in."""
    SPLIT_KEY = auto()
    """Records of one key went to several subtasks."""
    WRONG_WAY = auto()
    """A record went where no edge leads."""
    FOREIGN_KEY = auto()
    """A subtask holds state of a key group that it does not own, or two hold the same key."""
    IN_FLIGHT = auto()
    """Records are in flight that were not sent there, or where none may be."""
    BROADCAST = auto()
    """Some receivers of a broadcast have applied what others have not."""
    UNREADABLE = auto()
    """The checkpoint cannot be opened."""
    NO_PART = auto()
    """A subtask has no part in the checkpoint."""
    NO_POSITION = auto()
    """A split has no position, or one outside its input."""
    BACKWARDS = auto()
    """A split is at an earlier position than in an earlier checkpoint."""
    STRANGE = auto()
    """An operator keeps state, or a sink wrote, although the job has no such one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, with what its checker knows about it."""

    kind: Kind
    sentence: str
    place: str = ""
    """The vertex, subtask or channel where it was seen."""
    way: str = ""
    """The channel or edge on which the record came, or was to come, if that is not the place itself."""
    at_sink: bool = False
    """Whether it is in what a sink committed or prepared."""
    of_sent: bool = False
    """Whether state was compared with what sinks show of what was sent."""
    in_flight_before: bool = False
    """Whether the restored checkpoint held the record in flight."""
    held_before: bool = False
    """Whether the record lies before the barriers of the restored checkpoint, and was not in flight in it."""
    behind: bool = False
    """Whether the record lies behind the barriers of this checkpoint."""
    moved: bool = False
    """Whether it was seen among records that a change of parallelism redistributed."""
    unsent: bool = False
    """Whether what its vertex sent before this checkpoint shows nothing of it."""
    cleared: bool = False
    """Whether the state says that the record waits for a timer, and also that it was passed on."""
    after_end: bool = False
    """Whether it waits for a timer in the last part that a subtask stored which has finished since."""
    comes_later: bool = False
    """Whether it is there in a later checkpoint or in the output."""
    skipped: bool = False
    """Whether an increment skipped the change that brought it (``increment_chains``)."""
    listed: bool = False
    """Whether the state is a list without keys."""
    looped: bool = False
    """Whether the record has gone, or is to go, along a feedback edge."""
    timed: bool = False
    """Whether the record has to pass an operator that waits for timers."""
    file_gone: bool = False
    """Whether it cannot be opened because a file of it is gone, or is not what has to follow."""
    chained: bool = False
    """Whether it cannot be opened because operators are missing from it, of a job with several in one chain."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence
