"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cluster.cluster_config import ClusterKind
from barrier_tck.harness.support.errors import UsageProblem

DEFAULT_OUT = Path("runs")
"""The directory in which run directories are created."""
DEFAULT_LEVEL = "crash"
"""The level that a candidate is certified up to."""

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
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        autocompletion=completion.WORKLOADS,
        help="Workload, which gives input, jobs and their meaning: a name, or package.module:Factory. Default: the "
        "campaign file's, else keyed-totals.",
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


def _level_option(*levels: str) -> OptionInfo:
    option: OptionInfo = typer.Option(
        "--level",
        metavar="|".join(levels),
        autocompletion=completion.one_of(*levels),
        help=f"Level to certify; the levels below it are checked first. Default: {DEFAULT_LEVEL}.",
    )
    return option


LevelOption = Annotated[str | None, _level_option("contract", "crash", "chaos")]
"""The level of a certificate."""
LevelWithoutChaosOption = Annotated[str | None, _level_option("contract", "crash")]
"""The same for candidates that the level chaos does not exist for."""
StrengthOption = Annotated[
    bool,
    typer.Option(
        "--strength/--no-strength",
        help="Whether the suite also runs its planted bugs and writes on the certificate how many it caught.",
    ),
]


def _only_option(completed: completion.Completed) -> OptionInfo:
    option: OptionInfo = typer.Option(
        "--only",
        metavar="PROPERTY,...",
        autocompletion=completed,
        help="Check only these properties, for instance while one is mended; nothing is certified then.",
    )
    return option


OnlyPropertiesOption = Annotated[str | None, _only_option(completion.PROPERTIES)]
OnlyStoragePropertiesOption = Annotated[str | None, _only_option(completion.STORAGE_PROPERTIES)]


def listed(option: str, names: str) -> tuple[str, ...]:
    """Return the names of a list with commas; raises UsageProblem if there is none: that would mean all."""
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if not found:
        raise UsageProblem(f"{option} is {names!r}, which names nothing; leave it out for all")
    return found


def chosen_properties(only: str | None) -> tuple[str, ...]:
    """Return the only properties that are to be checked; empty if all are. Raises UsageProblem for an empty list."""
    return listed("--only", only) if only is not None else ()
