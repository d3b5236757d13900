"""Which entries an increment skipped: they changed, and are as in a checkpoint on which it builds (SNP-5).

The part of a subtask is an increment if it names files of an earlier checkpoint again. If such a part lacks a change,
the increment may have skipped it, or the change may have come behind the barrier. The difference shows in what went on
around it: what an operator sent before the barrier because of a change, it had made before the barrier; and no barrier
makes an entry older than it was in a checkpoint before. Of a full snapshot nothing is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.recoveries import restored_checkpoints
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.workloads.sequential_model import Key

_Entry = tuple[str, str]
"""(name of the state, what is kept, as text)."""


@dataclass(frozen=True)
class _Parts:
    """The keyed state of one checkpoint, and the files in which it is."""

    view: SnapshotView
    files: Mapping[str, frozenset[str]]
    """Subtask -> the shared files of its part or, if it has finished, of its last own part."""

    @cached_property
    def entries(self) -> Mapping[tuple[str, Key], tuple[_Entry, ...]]:
        """(operator, key) -> what is kept of it; nothing is left out."""
        found: dict[tuple[str, Key], tuple[_Entry, ...]] = {}
        for part in self.view.state:
            for text, kept in part.entries.items() if part.keyed else ():
                name = part.operator, key_of_text(text)
                found[name] = (*found.get(name, ()), (part.name, repr(kept)))
        return found

    def holders(self, operator: str, key: Key | None) -> tuple[str, ...]:
        """Return the subtasks that keep something of a key or, with None, that run the operator."""
        parts = (
            part.subtask
            for part in self.view.state
            if part.operator == operator
            and part.keyed
            and (key is None or any(key_of_text(text) == key for text in part.entries))
        )
        return tuple(dict.fromkeys(parts))

    def builds_on(self, other: _Parts, subtasks: Iterable[str]) -> bool:
        """Return whether the part of each of some subtasks names a file of another checkpoint."""
        of_other = frozenset().union(*other.files.values())
        return all(self.files.get(subtask, frozenset()) & of_other for subtask in subtasks)


def _parts(context: TrialContext) -> tuple[_Parts, ...]:
    """Return every checkpoint that could be opened, by number."""
    found: list[_Parts] = []
    last_own: dict[str, frozenset[str]] = {}
    for view in sorted(context.history.checkpoints, key=lambda view: view.checkpoint):
        if view.problem is not None:
            continue
        own = {
            subtask: frozenset(file.path for file in files if file.shared)
            for subtask, files in view.files.items()
        }
        finished = {subtask: last_own[subtask] for subtask in view.finished if subtask in last_own}
        found.append(_Parts(view, own | finished))
        last_own |= own
    return tuple(found)


def skipped(
    context: TrialContext,
    view: SnapshotView,
    operator: str,
    key: Key,
    *,
    sent: Callable[[], bool],
    comes_later: bool,
) -> str:
    """Return in words from which checkpoint an increment has the entries of a key that lack a change; "" if none has.

    ``sent`` says whether the checkpoint shows that the change was made before the barrier, ``comes_later`` whether a
    later checkpoint of the attempt has it.
    """
    known = context.once(_parts)
    now = next((parts for parts in known if parts.view.checkpoint == view.checkpoint), None)
    name = operator, key
    if now is None or not any(name in parts.entries for parts in known):
        return ""
    subtasks = _owners(known, now, operator, key)
    earlier = [parts for parts in known if parts.view.checkpoint < view.checkpoint]
    chain = [parts for parts in earlier if subtasks and now.builds_on(parts, subtasks)]
    if not chain or chain[-1].view.checkpoint < (_restored(context, now) or 0):
        return ""  # it is no increment, or it names older files than it may
    increment = f"the increment of {subtasks[0] if len(subtasks) == 1 else operator} builds"
    kept = now.entries.get(name, ())
    for parts in reversed(chain):
        base, entries = f"checkpoint {parts.view.checkpoint}", parts.entries.get(name, ())
        if entries == kept and (sent() or _was_newer(context, earlier, parts, now, name)):
            return f"as in {base}, on which {increment}"
        if entries and not kept and (comes_later or _is_left_out(parts, now, name, subtasks)):
            return f"though it is in {base}, on which {increment}"
    return ""


def _restored(context: TrialContext, parts: _Parts) -> int | None:
    """Return the checkpoint from which the attempt of another one was started."""
    attempt = parts.view.attempt
    return restored_checkpoints(context.history).get(attempt) if attempt is not None else None


def owner_of(context: TrialContext, view: SnapshotView, operator: str, key: Key) -> str:
    """Return which subtask keeps what an operator has of a key, as far as checkpoints show; "" if they do not."""
    known = context.once(_parts)
    now = next((parts for parts in known if parts.view.checkpoint == view.checkpoint), None)
    owners = _owners(known, now, operator, key) if now is not None else ()
    return owners[0] if len(owners) == 1 else ""


def _owners(known: Iterable[_Parts], now: _Parts, operator: str, key: Key) -> tuple[str, ...]:
    """Return who keeps a key in a checkpoint, in another one of its attempt or, if nobody does, whoever could."""
    same = (parts for parts in known if parts.view.attempt == now.view.attempt)
    found = (parts.holders(operator, key) for parts in (now, *same))
    return next((holders for holders in found if holders), now.holders(operator, None))


def _was_newer(
    context: TrialContext, earlier: Iterable[_Parts], base: _Parts, now: _Parts, name: tuple[str, Key]
) -> bool:
    """Return whether entries were other ones between two checkpoints in which they are the same, and so had changed."""
    attempt, restored = now.view.attempt, _restored(context, now)
    return any(
        parts.entries.get(name, ()) != now.entries.get(name, ())
        for parts in earlier
        if parts.view.checkpoint > base.view.checkpoint
        and (parts.view.attempt == attempt or parts.view.checkpoint == restored)
    )


def _is_left_out(base: _Parts, now: _Parts, name: tuple[str, Key], subtasks: Iterable[str]) -> bool:
    """Return whether a part that builds on those of other subtasks names no file of the one that kept a key."""
    files = frozenset().union(*(now.files.get(subtask, frozenset()) for subtask in subtasks))
    return not any(base.files.get(holder, frozenset()) & files for holder in base.holders(*name))


def named_as_skipped(found: Iterable[Difference]) -> Iterator[Difference]:
    """Yield differences, as skipped only those in a place where nothing else is wrong.

    An increment that skips is right but for what it skips. What makes other entries wrong may be why these are, too.
    """
    everything = list(found)
    otherwise = {
        entry.place
        for entry in everything
        if entry.kind in (Kind.MISSING, Kind.SURPLUS, Kind.WRONG) and not entry.at_sink and not entry.skipped
    }
    for entry in everything:
        yield replace(entry, skipped=entry.skipped and entry.place not in otherwise)
