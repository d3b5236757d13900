"""What the sinks of one trial show, from one checkpoint to the next: what is new, and what is not there any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter

from barrier_tck.harness.record.history import Row, SnapshotView

_NOTHING: Sequence[Row] = ()


class SinkRows:
    """The rows that sinks had committed or prepared at the checkpoint that was looked at last."""

    def __init__(self) -> None:
        self._rows: dict[str, Sequence[Row]] = {}

    def changes(self, view: SnapshotView) -> Iterator[tuple[str, int, Row]]:
        """Go on to a checkpoint; yield (sink subtask, 1, row) for each row that is new, -1 for one that is gone.

        The subtask is the empty text if the system does not say which of them wrote what.
        """
        before, self._rows = self._rows, _by_writer(view)
        for writer in dict.fromkeys(chain(self._rows, before)):
            known, now = before.get(writer, _NOTHING), self._rows.get(writer, _NOTHING)
            begun = len(known)
            if now[:begun] == known:
                gone, come = _NOTHING, now[begun:]
            else:
                gone, come = known, now
            for times, rows in ((-1, gone), (1, come)):
                yield from zip(repeat(writer), repeat(times), rows)


def _by_writer(view: SnapshotView) -> dict[str, Sequence[Row]]:
    rows = view.reached_sinks or ()
    writers = view.reached_by if len(view.reached_by) == len(rows) else repeat("", len(rows))
    found: dict[str, list[Row]] = {}
    for writer, wrote in groupby(zip(writers, rows, strict=True), key=itemgetter(0)):
        found.setdefault(writer, []).extend([row for _, row in wrote])
    return {writer: tuple(wrote) for writer, wrote in found.items()}
