"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cluster.cluster_config import ClusterKind
from barrier_tck.harness.support.errors import UsageProblem

DEFAULT_OUT = Path("runs")
"""The directory in which run directories are created."""

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object on the last line of standard output; all else goes to "
        "standard error.",
    ),
]
SystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="NAME",
        autocompletion=completion.SYSTEMS,
        help="System under test: reference-simulated, reference-spark, structured-streaming, or "
        "package.module:Factory. Default: the campaign file's, else reference-simulated.",
    ),
]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        metavar="MODULE:JOB",
        help="A StreamingJob of yours, instead of --system: your own query of Structured Streaming under test.",
    ),
]
ReplaySystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="NAME",
        autocompletion=completion.SYSTEMS,
        help="System under test: reference-simulated, reference-spark, structured-streaming, or "
        "package.module:Factory. Default: the recorded one, or reference-simulated for a plan without a record.",
    ),
]
StateBackendOption = Annotated[
    str | None,
    typer.Option(
        "--state-backend",
        metavar="NAME",
        autocompletion=completion.BACKENDS,
        help="State backend of the job: heap, rocksdb, or package.module:Factory. Default: the campaign "
        "file's, else heap.",
    ),
]
CheckpointStorageOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-storage",
        metavar="NAME",
        autocompletion=completion.STORAGES,
        help="Where checkpoints are kept: files, s3, hdfs (below the URL in BARRIER_TCK_HDFS), memory (the "
        "coordinator's), or package.module:Factory, which is given a directory and the job's name. Default: the "
        "campaign file's, else files.",
    ),
]
ClusterOption = Annotated[
    ClusterKind | None,
    typer.Option(
        "--cluster",
        help="Kind of Spark cluster, for systems that run on one: local, or docker for a container per host. Default: "
        "the campaign file's, else local.",
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Directory in which the new run directory is created.")
]


def listed(option: str, names: str) -> tuple[str, ...]:
    """Return the names of a list with commas; raises UsageProblem if there is none: that would mean all."""
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not found:
        raise UsageProblem(f"{option} is {names!r}, which names nothing; leave it out for all")
    return found
