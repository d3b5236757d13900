"""Makes what a trial leaves the same in every run of its plan, for backends whose files lie in a real directory.

Two things about such files are of the run and not of the plan: the directory has a name of its own each time, and a
backend may write other bytes each time. RocksDB puts the time and the number of its session into every table. So the
directory is called ``work``, and a checksum is replaced by the number of the content: ``content:3`` is the third one
that the history names. Equal checksums stay equal, and different ones different, which is all that is asked of them.
Records are the job's own and stay as they are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from barrier_tck.harness.record.history import History, InFlight, SnapshotView, StateView
from barrier_tck.harness.system.system_under_test import TrialOutcome

_CHECKSUM = re.compile(r"crc32:[0-9a-f]{8}")
_WORK = "work"

_RECORDS: Mapping[type, Sequence[str]] = {
    History: ("output", "output_by"),
    SnapshotView: ("reached_sinks", "reached_by"),
    StateView: ("entries", "groups", "foreign"),
    InFlight: ("rows",),
}
"""Fields that hold records, which are most of what a trial leaves."""


def repeatable(outcome: TrialOutcome, directory: str | None) -> TrialOutcome:
    """Return the outcome without what differs from run to run; ``directory`` is where the backend's files were."""
    named: TrialOutcome = _Names(directory).of(outcome)
    return named


class _Names:
    """Replaces names of one run by names of the plan, wherever they are in a value."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._contents: dict[str, str] = {}
        """Checksum -> what it is called, in the order in which they were met."""

    def of(self, value: Any) -> Any:
        """Return the value with other names in its texts; the same object if there is nothing to replace."""
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind in (tuple, list):
            parts = [self.of(part) for part in value]
            return value if all(map(_is, parts, value)) else kind(parts)
        if kind is dict:
            entries = {key: self.of(part) for key, part in value.items()}
            return value if all(map(_is, entries.values(), value.values())) else entries
        if isinstance(value, msgspec.Struct):
            records = _RECORDS.get(kind, ())
            changed = self._changed(value, [name for name in kind.__struct_fields__ if name not in records])
            return msgspec.structs.replace(value, **changed) if changed else value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changed = self._changed(value, [field.name for field in dataclasses.fields(value)])
            return dataclasses.replace(value, **changed) if changed else value
        return value

    def _changed(self, value: Any, names: Any) -> dict[str, Any]:
        old = {name: getattr(value, name) for name in names}
        new = {name: self.of(part) for name, part in old.items()}
        return {name: part for name, part in new.items() if part is not old[name]}

    def _text(self, text: str) -> str:
        if self._directory is not None and self._directory in text:
            text = text.replace(self._directory, _WORK)
        return _CHECKSUM.sub(self._content, text) if "crc32:" in text else text

    def _content(self, found: re.Match[str]) -> str:
        return self._contents.setdefault(found[0], f"content:{len(self._contents) + 1}")


def _is(one: object, other: object) -> bool:
    return one is other
