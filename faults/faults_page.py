"""Writes ``docs/faults.md`` from the catalogue: every fault, its contract, and the names under which campaigns draw it.

A test compares the page with the catalogue (``python -m barrier_tck.faults.faults_page > docs/faults.md``).
"""

from __future__ import annotations

import inspect
import sys

from barrier_tck.faults.catalogue import FAULTS, PACKAGES, FaultKind
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, ProtocolPoint

_HEAD = """\
# Faults

What can be done to a system, and how a correct system must react. This page is generated from
[their catalogue](../faults/catalogue.py) and [their own files](../faults/kinds).

<!-- Generated: python -m barrier_tck.faults.faults_page > docs/faults.md -->

## Names in campaign files

`packages` in `[faults]` takes names of the first column, `kinds` takes names of the second. A fault of weight 0 is not
drawn by the profiles; a campaign file may still list it or give it a weight. A kind that *outlasts the
heartbeat* lasts so long that the process is replaced before it goes on: it makes a zombie.
"""


def as_markdown() -> str:
    """Return the text of ``docs/faults.md``."""
    lines = [*_HEAD.splitlines(), "", "| package | kind | fault | weight |", "|---|---|---|---|"]
    for package, kinds in PACKAGES.items():
        lines += [
            f"| `{package}` | `{kind.name}` | `{tag_of(kind.fault)}`{_long(kind)} | {kind.drawn_as.weight} |"
            for kind in kinds
        ]
    lines += [
        "",
        "## Faults and their contracts",
        "",
        "Each heading is the `type` of a fault in a plan.",
    ]
    for fault in FAULTS:
        lines += [
            "",
            f"### {tag_of(fault)}",
            "",
            f"{_fields(fault)}",
            "",
            _contract(fault),
        ]
    lines += [
        "",
        "## Protocol points",
        "",
        _POINTS.rstrip(),
        "",
        "| point | which process stands there |",
        "|---|---|",
    ]
    lines += [f"| `{point.value}` | {_whose(point)} |" for point in ProtocolPoint]
    return "\n".join(lines) + "\n"


_POINTS = """\
A trigger `after` names one of these points. A process that passes it stands still until the fault has struck. A system
says which points its job passes; an aim at any other is refused before anything runs.
"""


def _whose(point: ProtocolPoint) -> str:
    return "the coordinator" if point in COORDINATOR_POINTS else "a subtask"


def _long(kind: FaultKind) -> str:
    return ", outlasts the heartbeat" if kind.drawn_as.outlasts_heartbeat else ""


def _fields(fault: type[Fault]) -> str:
    names = ", ".join(f"`{field}`" for field in fault.__struct_fields__)
    assert names, f"{fault.__name__} names no subtask"
    return f"Fields: {names}. The system must expose: {fault.needs.value}."


def _contract(fault: type[Fault]) -> str:
    return (inspect.getdoc(fault) or "").replace("``", "`")


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
