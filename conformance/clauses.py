"""The clauses that this project implements and certifies, as data.

A clause id is stable: tests, reports and certificates name it. `docs/clauses.md` is generated from this
module (``python -m barrier_tck.conformance.clauses > docs/clauses.md``), and a test holds the two together.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from itertools import groupby

from barrier_tck.conformance.clause_texts import FULL, SHORT

SOURCES = {
    "A": "Flink's page on fault tolerance",
    "B": "Flink's page on tuning large state and task-local recovery",
    "C": "a course note on Chandy-Lamport and how Flink tailors it",
    "D": "an article on asynchronous barrier snapshotting",
    "(+)": "beyond all four",
    "mission": "what this project is for",
}
"""What the letters after a clause stand for."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a system must do."""

    id: str
    """Three letters and a number, for instance ``SNP-1``."""
    group: str
    """The heading under which it stands, for instance ``State and snapshots``."""
    text: str
    """One or two plain sentences, for reports."""
    source: str
    """Keys of `SOURCES`, separated by spaces."""
    full: str
    """The clause in full; the same as ``text`` where that is short."""


NOTES = {
    "UNA-4": (
        "Which records are in flight depends on the mode. Unaligned checkpoints, those that align until a timeout, "
        "and Chandy-Lamport snapshots hold some on any graph. In mode `exactly_once` they are only those of "
        "feedback edges. In mode `at_least_once`, in which no job has a loop, there are none. A job without loops "
        "recovers records in flight in these two modes only when it starts from what another mode has stored. "
        "Barriers come behind them then, as behind any records, so a checkpoint holds them as processed, and none "
        "is left over. After any other recovery in these two modes nothing is replayed but input."
    ),
}
"""Clause -> what it means where that is not the same everywhere."""


class UnknownClause(LookupError):
    """No clause has this id; the message names the nearest one that exists."""


CLAUSES: dict[str, Clause] = {
    identifier: Clause(identifier, group, SHORT.get(identifier, full), source, full)
    for group, entries in FULL.items()
    for (identifier, source), full in entries.items()
}
"""Every clause by id, in the order of the document."""


def clause(identifier: str) -> Clause:
    """Return the clause with this id; raises UnknownClause, naming the nearest id, if there is none."""
    found = CLAUSES.get(identifier)
    if found is not None:
        return found
    nearest = difflib.get_close_matches(identifier.upper(), CLAUSES, n=1, cutoff=0.0)
    raise UnknownClause(f"there is no clause {identifier!r}; the nearest id is {nearest[0]}")


def as_markdown() -> str:
    """Return the text of ``docs/clauses.md``."""
    lines = [
        "# Clauses",
        "",
        "What the system must do. An id is stable: tests, reports and certificates name it. The last column",
        "says where a clause comes from.",
        "",
        "<!-- Generated: python -m barrier_tck.conformance.clauses > docs/clauses.md -->",
        "",
        *(f"- {key}: {meaning}." for key, meaning in SOURCES.items()),
    ]
    for group, entries in groupby(CLAUSES.values(), key=lambda entry: entry.group):
        lines += ["", f"## {group}", "", "| id | clause | source |", "|---|---|---|"]
        listed = list(entries)
        lines += [f"| {entry.id} | {_cell(entry.full)} | {entry.source} |" for entry in listed]
        for entry in listed:
            if entry.id in NOTES:
                lines += ["", f"{entry.id}: {NOTES[entry.id]}"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape what would end a table cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
