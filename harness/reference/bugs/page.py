"""The page of planted bugs, ``docs/planted-bugs.md``, made from their files.

python -m barrier_tck.harness.reference.bugs.page > docs/planted-bugs.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from barrier_tck.harness.reference.bugs.bug_file import PlantedBug
from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime, bugs_of_suite

_HEAD = """# The planted bugs

This page is made from the files in `harness/reference/bugs/`; [mutants.md](mutants.md) says what they are for.
"""


def as_markdown() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_runtime(), *_drawn(), *_suite(), *_not_in_conformance()]) + "\n"


def _runtime() -> Iterator[str]:
    bugs = bugs_of_runtime().values()
    on_spark = sum("spark" in bug.worlds for bug in bugs)
    yield "## Bugs that campaigns find"
    yield ""
    yield f"{len(bugs)} bugs, all of them looked for in the simulator, and {on_spark} on Spark, too. *Caught by* names"
    yield "the checkers of which one says so first."
    yield ""
    yield from _table(
        ("id", "what was planted", "real bug", "where", "clause", "caught by", "worlds"),
        (
            (
                bug.id,
                bug.description,
                bug.file.origin,
                _places(bug),
                bug.clause,
                ", ".join(bug.file.checkers),
                ", ".join(bug.worlds),
            )
            for bug in bugs
        ),
    )


def _drawn() -> Iterator[str]:
    yield "## How soon drawn plans show them"
    yield ""
    yield "How many of a profile's plans are drawn until one shows the bug, measured from five seeds:"
    yield ""
    promised = [(bug.file.drawn, bug.id) for bug in bugs_of_runtime().values() if bug.file.drawn is not None]
    yield from _table(
        ("drawn from", "bug", "plans in the median", "most"),
        (
            (f"`{drawn.profile}`", name, str(drawn.median), str(drawn.most))
            for drawn, name in sorted(promised, key=lambda entry: (entry[0].profile, entry[1]))
        ),
    )


def _suite() -> Iterator[str]:
    yield "## Bugs that make no result wrong"
    yield ""
    yield "No campaign finds them, because no record is lost or counted twice. One test of the conformance suite finds"
    yield "each, in both worlds:"
    yield ""
    yield from _table(
        ("id", "what was planted", "where", "clause", "shown by"),
        (
            (bug.id, bug.description, _places(bug), bug.clause, f"`{bug.file.shown_by}`")
            for bug in bugs_of_suite().values()
        ),
    )


def _not_in_conformance() -> Iterator[str]:
    yield "## Bugs that fixed plans of the conformance suite do not show"
    yield ""
    yield from _table(
        ("id", "why"),
        (
            (bug.id, bug.file.not_in_conformance)
            for bug in bugs_of_runtime().values()
            if bug.file.not_in_conformance is not None
        ),
    )


def _places(bug: PlantedBug) -> str:
    """Return where a bug changes something: functions and classes, or else the files."""
    scoped = [change.place for change in bug.changes if change.scope]
    places = dict.fromkeys(scoped or [change.place for change in bug.changes])
    return ", ".join(f"`{place}`" for place in places)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from (_row(cells) for cells in rows)
    yield ""


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(as_markdown().rstrip("\n") + "\n")
