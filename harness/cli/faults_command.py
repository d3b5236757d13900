"""``barrier-tck faults``: what a campaign can do to a system, and when."""

from __future__ import annotations

import inspect

from rich.table import Table
from rich.text import Text

from barrier_tck.faults.catalogue import PACKAGES, FaultKind
from barrier_tck.faults.fault import tag_of
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit


def faults(as_json: JsonOption = False) -> None:
    """List the faults that a campaign can cause.

    The names are for [faults] in campaign files, the types for plans, and the points are those to aim at.

    \b
    Examples:
      barrier-tck faults
      barrier-tck faults --json
    """
    console = console_for(as_json)
    table = Table("package", "kind", "type in plans", "what it does", box=None, pad_edge=False)
    listed = [(package, kind) for package, kinds in PACKAGES.items() for kind in kinds]
    for package, kind in listed:
        table.add_row(package, kind.name, tag_of(kind.fault), Text(_rendered(kind)))
    console.print(table)
    console.print(f"\npoints to aim at: {', '.join(point.value for point in ProtocolPoint)}")
    emit(
        as_json,
        {
            "faults": [
                {
                    "package": package,
                    "kind": kind.name,
                    "type": tag_of(kind.fault),
                    "needs": kind.fault.needs.value,
                    "fields": list(kind.fault.__struct_fields__),
                    "about": inspect.getdoc(kind.fault) or "",
                }
                for package, kind in listed
            ],
            "points": [point.value for point in ProtocolPoint],
        },
    )


def _rendered(kind: FaultKind) -> str:
    """Return the first sentence of the fault's description, without marks of code."""
    paragraph = " ".join((inspect.getdoc(kind.fault) or "").partition("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].removesuffix(".").replace("`", "")
    return f"{sentence}, for longer than the heartbeat" if kind.drawn_as.outlasts_heartbeat else sentence
