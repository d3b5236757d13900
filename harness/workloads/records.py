"""Records and bags of records, as the meaning of operators is written down in.

For lineage, a record is a tuple ``(id, key, path)``, where ``path`` names the vertices that it passed. It does not name
their subtasks, which the runtime chooses on some edges. For a workload with tables, a record is the tuple of its
(column, value) pairs, in the order of their names. Bags are counters: they say how often a record occurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Record = tuple[Any, ...]
Bag = Counter[Record]
"""Records, each with the number of times it occurs."""

ID, KEY, PATH = 0, 1, 2
"""Positions in a lineage record."""

UNDER = "(key)"
"""In the state of a join, the column that holds the key under which a row is kept."""


def visit(record: Record, name: str) -> Record:
    """Return a lineage record after it passed one more vertex or operator."""
    path = record[PATH]
    return (record[ID], record[KEY], f"{path}>{name}" if path else name)


def table_record(row: Mapping[str, Any]) -> Record:
    """Return a row of a table as a record."""
    return tuple(sorted(row.items()))


def union(bags: Sequence[Bag]) -> Bag:
    """Return the union of all bags; a single bag is returned unchanged."""
    if len(bags) == 1:
        return bags[0]
    whole: Bag = Counter()
    for bag in bags:
        whole.update(bag)
    return whole
