"""How output rows and state entries are read as records of a dataflow model, for lineage and for tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.records import ID, PATH, UNDER, Record, table_record
from barrier_tck.harness.workloads.workload import Workload

_SUBTASK = re.compile(r"\[\d+\]")


@lru_cache(maxsize=4096)
def _vertices_of(path: str) -> str:
    """Return a path without its subtasks; the records of a trial come on few paths."""
    return _SUBTASK.sub("", path)


class RecordForm(Protocol):
    """The form of a workload's records."""

    def read(self, row: Row) -> Record:
        """Return a row of the input or the output as a record."""

    def way(self, row: Row) -> str:
        """Return the subtasks that a row passed, or an empty text if they are not known."""

    def kept(self, state: str, key: tuple[Any, ...], entry: Any) -> Iterable[tuple[int, Row]]:
        """Return the rows that a state entry stands for, each with the number of its input."""

    def rendered(self, record: Record) -> str:
        """Return the text that a finding shows for a record."""

    def identity(self, record: Record) -> int | None:
        """Return the id of the source record that a record came from, if it came from exactly one."""


class LineageForm:
    """Records ``(id, key, path)``. The path is read without its subtasks, as a right run may choose others."""

    def read(self, row: Row) -> Record:
        """Return id, key and path."""
        return (row["id"], row["key"], _vertices_of(row["path"]))

    def way(self, row: Row) -> str:
        """Return the path with its subtasks."""
        path: str = row["path"]
        return path

    def kept(self, state: str, key: tuple[Any, ...], entry: Any) -> Iterable[tuple[int, Row]]:
        """Return the records of an entry: a list of input, id and path."""
        return [
            (number, {"id": identifier, "key": key[0], "path": path})
            for number, identifier, path, *_ in entry
        ]

    def rendered(self, record: Record) -> str:
        """Return id and path."""
        return f"record {record[ID]} by way of {record[PATH] or 'its source'}"

    def identity(self, record: Record) -> int | None:
        """Return the id."""
        identifier: int = record[ID]
        return identifier


class TableForm:
    """Rows of tables; a joined pair came from two of them."""

    def read(self, row: Row) -> Record:
        """Return the columns with their values."""
        return table_record(row)

    def way(self, row: Row) -> str:
        """Return an empty text: rows of tables do not show their way."""
        return ""

    def kept(self, state: str, key: tuple[Any, ...], entry: Any) -> Iterable[tuple[int, Row]]:
        """Return the rows of one entry of a join: the rows of one side, with their key."""
        return [(("left", "right").index(state), {**row, UNDER: key}) for row in entry]

    def rendered(self, record: Record) -> str:
        """Return the columns with their values."""
        return "row " + ", ".join(f"{column} {value!r}" for column, value in record)

    def identity(self, record: Record) -> int | None:
        """Return None: a row may have come from several."""
        return None


LINEAGE: RecordForm = LineageForm()
TABLE: RecordForm = TableForm()


@runtime_checkable
class ProvidesRecordForm(Protocol):
    """What a workload without a sequential model may add: another form of its records than rows of tables."""

    @property
    def record_form(self) -> RecordForm:
        """Return the form."""


def form_of(workload: Workload) -> RecordForm:
    """Return the form of a workload's records: rows of tables, unless it brings another form."""
    return workload.record_form if isinstance(workload, ProvidesRecordForm) else TABLE


def without_input(record: Record) -> Record:
    """Return a record without the number of its input, which precedes it in a state."""
    if len(record) == 2 and isinstance(record[0], int) and isinstance(record[1], tuple):
        bare: Record = record[1]
        return bare
    return record
