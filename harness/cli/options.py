"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_OUT = Path("runs")
"""Where run directories are created."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="S",
        help="reference-simulated (the default), reference-spark, or package.module:Factory.",
    ),
]
StateBackendOption = Annotated[
    str | None,
    typer.Option("--state-backend", metavar="NAME", help="heap, rocksdb, or package.module:Factory."),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where the new run directory is created.")
]
