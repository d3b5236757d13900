"""What a cut shows of that which an operator sent on: so it is seen whether a record was processed before the barrier.

Channels are in order, so what an operator sends because of a record that it processes before its barrier is before the
barrier in its channels, too: the cut shows it in a state, at a sink or in flight. If the operator's own part of the cut
has a record of which nothing was sent, the record came after the barrier had left, and the part changed afterwards: it
is not isolated (SNP-1). If something was sent, the record was processed too early, and the barrier came too late for it
(ALN-2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.opened_checkpoints import opened_checkpoint, positions_of
from barrier_tck.harness.oracle.evidence.prefix import Extent
from barrier_tck.harness.oracle.evidence.record_places import SeenCut
from barrier_tck.harness.oracle.evidence.recoveries import attempt_of, restored_checkpoints
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import Acknowledged, CheckpointAborted
from barrier_tck.harness.workloads.record_forms import without_input
from barrier_tck.harness.workloads.records import ID, PATH, Bag, Record


class SentOn:
    """What operators send on of lineage records, by the paths of what reaches the others in the end."""

    def __init__(self, whole: Mapping[str, Bag]) -> None:
        """Take what each operator and sink holds when all input has been read."""
        self._arrived: dict[int, list[tuple[str, str]]] = {}
        """Id -> where something of a record arrives, and on which path."""
        for place, bag in whole.items():
            for record in bag:
                bare = without_input(record)
                self._arrived.setdefault(bare[ID], []).append((place, bare[PATH]))
        self._last: tuple[SeenCut, Mapping[int, Sequence[str]]] | None = None
        """The cut that was looked at last, and the paths in it: a wrong cut is asked for many of its records."""

    def is_seen(self, record: Record, operator: str, cut: SeenCut) -> bool:
        """Return whether a cut shows something that an operator sends because of a record."""
        bare = without_input(record)
        if self._last is None or self._last[0] is not cut:
            self._last = cut, _paths_in(cut)
        return any(_has_passed(path, bare[PATH], operator) for path in self._last[1].get(bare[ID], ()))

    def is_unseen(self, record: Record, operator: str, cut: SeenCut) -> bool:
        """Return whether a cut shows nothing of what an operator sends because of a record, and would show it."""
        bare = without_input(record)
        due = {
            (place, path)
            for place, path in self._arrived.get(bare[ID], ())
            if place != operator and _has_passed(path, bare[PATH], operator) and _is_read(place, cut)
        }
        return bool(due) and not self.is_seen(record, operator, cut)


def rows_prepared(context: TrialContext, view: SnapshotView) -> int | None:
    """Return how many rows reached the sinks before a checkpoint; None if the history does not say.

    It says so if sinks report what they prepare, of an attempt that began at the beginning of the input. Where an older
    checkpoint of the attempt was given up, its rows may be counted again in the next one, or not.
    """
    attempt = attempt_of(context.history, view)
    if attempt is None or restored_checkpoints(context.history).get(attempt) is not None:
        return None
    every, kept = _prepared(context, view, attempt)
    return every or None if every == kept else None


def all_was_sent(context: TrialContext, view: SnapshotView, extents: Mapping[str, Extent]) -> bool:
    """Return whether sinks and channels show as many rows as an attempt read records before a checkpoint's barriers.

    Each record gives one row. What was in flight in the restored checkpoint counts as read. Whether sinks count the
    rows of an older checkpoint that was given up again is not known, so either number will do. False also if the
    history does not say how many rows reached the sinks.
    """
    attempt = attempt_of(context.history, view)
    origin = restored_checkpoints(context.history).get(attempt) if attempt is not None else None
    begun = opened_checkpoint(context, origin) if origin is not None else None
    if attempt is None or (origin is not None and (begun is None or begun.problem is not None)):
        return False
    due = _read_by(view, extents) - (_read_by(begun, extents) if begun is not None else 0)
    prepared = _prepared(context, view, attempt)
    return prepared[0] > 0 and due in prepared


def _read_by(view: SnapshotView, extents: Mapping[str, Extent]) -> int:
    """Return how many records lie before a checkpoint's barriers and are not in flight."""
    positions = positions_of(view)
    read = sum(max(0, positions.get(name, 0) - extent.start) for name, extent in extents.items())
    return read - sum(len(channel.rows) for channel in view.in_flight)


def _prepared(context: TrialContext, view: SnapshotView, attempt: int) -> tuple[int, int]:
    """Return how many rows sinks prepared in an attempt up to a checkpoint: in all, and without what was given up."""
    rows: dict[tuple[str, int], int] = {}
    aborted: dict[int, None] = {}
    for line in context.history.operations:
        match line.operation:
            case CheckpointAborted(checkpoint=number, attempt=of) if of == attempt:
                aborted[number] = None
            case Acknowledged(attempt=of, checkpoint=number, forged=False) if of == attempt:
                if number <= view.checkpoint:
                    rows[line.operation.subtask, number] = line.operation.prepared
            case _:
                pass
    return sum(rows.values()), sum(n for (_, number), n in rows.items() if number not in aborted)


def _has_passed(path: str, before: str, operator: str) -> bool:
    """Return whether what came on a path had passed an operator, which it reached on the path ``before``."""
    rest = path.removeprefix(before)
    return path.startswith(before) and operator in rest.split(">")


def _is_read(place: str, cut: SeenCut) -> bool:
    """Return whether a cut says what is at a place: what sinks wrote is not always known, nor by which of them."""
    return place in cut.held if cut.at_sinks is None else place in cut.held or place in cut.at_sinks


def _paths_in(cut: SeenCut) -> dict[int, list[str]]:
    """Return id -> the paths on which something of a record came, wherever a cut shows it."""
    paths: dict[int, list[str]] = {}
    places: list[Collection[Record]] = [*cut.held.values(), *(cut.at_sinks or {}).values()]
    for records in (*places, *cut.in_flight.values()):
        for record in records:
            bare = without_input(record)
            paths.setdefault(bare[ID], []).append(bare[PATH])
    return paths
