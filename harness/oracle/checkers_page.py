"""Writes ``docs/checkers.md`` from the catalogue: every checker, as its own file describes it.

A test compares the page with the catalogue (``python -m barrier_tck.harness.oracle.checkers_page > docs/checkers.md``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.precondition import ALWAYS, Precondition
from barrier_tck.harness.oracle.sign import Sign
from barrier_tck.harness.oracle.sometimes import Sometimes

_HEAD = """\
# Checkers

Each of the {number} checkers judges one property of a trial. This page is generated from
[their own files](../harness/oracle/checkers). [How a trial is judged](judging.md) explains how they work together.

<!-- Generated: python -m barrier_tck.harness.oracle.checkers_page > docs/checkers.md -->

| checker | what it requires | clauses | what it judges | needs of a system |
|---|---|---|---|---|
"""

_SIGNS = """
## From what is seen to the clause

A checker for several clauses names the one that was broken first: it takes the sign that comes first in the history.
Of two signs at the same moment, the one that is closer to the cause counts. The last column says what a checker looks
at, from the closest to the farthest: what processes do, the messages between them, what checkpoints and output hold,
and what did not happen. If several rows of a checker fit, the first one counts. A checker that is not listed has one
clause, or names its first one.

| what is seen | clause | checkers | looks at |
|---|---|---|---|
"""

_PRECONDITIONS = """
## What must have happened

A clause is not reported as kept if nothing in the trial could have broken it. So a VALID covers the clauses below only
if what the first column says happened in the trial. Any other clause can be broken in every trial, or its checker
decides by itself whether it could.

| what must have happened | clauses |
|---|---|
"""

_SOMETIMES = """
## What a campaign must see at least once

A campaign in which none of these was ever seen has not tested it, and is UNKNOWN. Each row is a finding of the campaign
as a whole. It is made only if enough of the trials could have shown it.

| finding | clauses | checkers | if it was not seen |
|---|---|---|---|
"""


def as_markdown() -> str:
    """Return the text of ``docs/checkers.md``."""
    head = _HEAD.format(number=len(standard_checkers()))
    tables = (
        (head, _checkers()),
        (_SIGNS, _signs()),
        (_PRECONDITIONS, _preconditions()),
        (_SOMETIMES, _sometimes()),
    )
    return "".join(text + "".join(f"| {' | '.join(row)} |\n" for row in table) for text, table in tables)


def _checkers() -> Iterator[tuple[str, ...]]:
    for checker in standard_checkers():
        needs = ", ".join(sorted(capability.name for capability in checker.needs))
        clauses = ", ".join(checker.covers)
        yield f"`{checker.name}`", checker.requires, clauses, checker.judges, needs or "–"


def _signs() -> Iterator[tuple[str, ...]]:
    checkers: dict[Sign, list[str]] = {}
    near: dict[Sign, str] = {}
    for checker in standard_checkers():
        for sign in checker.signs:
            checkers.setdefault(sign, []).append(f"`{checker.name}`")
            near[sign] = checker.directness.name.lower()
    for sign, names in checkers.items():
        yield sign.seen, sign.clause, ", ".join(names), near[sign]


def _preconditions() -> Iterator[tuple[str, str]]:
    found: dict[Precondition, dict[str, None]] = {}
    for checker in standard_checkers():
        for clause, precondition in checker.covers.items():
            if precondition is not ALWAYS:
                found.setdefault(precondition, {})[clause] = None
    for precondition, clauses in found.items():
        yield precondition.sentence, ", ".join(sorted(clauses))


def _sometimes() -> Iterator[tuple[str, ...]]:
    found: dict[str, Sometimes] = {}
    checkers: dict[str, list[str]] = {}
    for checker in standard_checkers():
        for what in checker.sometimes:
            found[what.name] = what
            checkers.setdefault(what.name, []).append(f"`{checker.name}`")
    for name in sorted(found):
        what = found[name]
        not_shown = what.not_shown.format_map(_Counts())
        yield f"`{name}`", ", ".join(what.clauses), ", ".join(checkers[name]), not_shown


class _Counts(dict[str, str]):
    """Stands for the counts of a campaign."""

    def __missing__(self, name: str) -> str:
        return "…"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
