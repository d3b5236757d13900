"""``barrier-tck certify``: certify a state backend, or a Spark state store, and write its certificate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.certificate_output import (
    Asked,
    beginning,
    certified,
    output_certificate,
    output_replay,
    printed_outcomes,
    short,
)
from barrier_tck.harness.cli.certificate_resume import ResumeOption, command_to_resume, to_resume
from barrier_tck.harness.cli.certify_on_spark import (
    certified_on_spark,
    names_in,
    replay_on_spark,
    spark_store,
)
from barrier_tck.harness.cli.options import (
    DEFAULT_LEVEL,
    DEFAULT_OUT,
    JsonOption,
    LevelOption,
    OnlyPropertiesOption,
    OutOption,
    StrengthOption,
    chosen_properties,
)
from barrier_tck.harness.cli.printing import console_for
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.root_seed import root_seed
from barrier_tck.harness.support.third_party import is_target, shown

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.certificate import Certificate, Strength
    from barrier_tck.harness.certify.engine.planted_bugs import KeepStrength

_CALL_TIMEOUT_MAX_S = 86_400.0


def certify(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:NAME|spark:CLASS",
            autocompletion=completion.BACKENDS,
            help="Class or function that makes the backend; or heap, or rocksdb. With spark:, a Spark "
            "StateStoreProvider; or spark:rocksdb, spark:rocksdb-changelog, spark:hdfs.",
        ),
    ] = None,
    level: LevelOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed from which all examples are drawn. Default: a new one, which is printed first.",
        ),
    ] = None,
    out: OutOption = DEFAULT_OUT,
    resume: ResumeOption = None,
    require: Annotated[
        str,
        typer.Option(
            "--require",
            metavar="NAME,...",
            autocompletion=completion.CAPABILITIES,
            help="Capabilities that the backend must declare: asynchronous-snapshots, concurrent-snapshots, "
            "ordered-scan, local-files, deterministic-files, incremental-snapshots; or that a Spark state store must "
            "have: prefix-scan, range-scan, column-families, multiple-values, checkpoint-ids. Default: none.",
        ),
    ] = "",
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark",
            help="Whether the level chaos runs trials on a local Spark cluster; without them, crash is the highest "
            "level that can be reached.",
        ),
    ] = True,
    strength: StrengthOption = True,
    only: OnlyPropertiesOption = None,
    call_timeout: Annotated[
        float,
        typer.Option("--call-timeout", metavar="SECONDS", help="Time that one call to the backend may take."),
    ] = 20.0,
    jars: Annotated[
        str,
        typer.Option(
            "--jars", metavar="JAR,...", help="Jars or directories with the class that spark:CLASS names."
        ),
    ] = "",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY=VALUE",
            help="Setting of Spark for spark:CLASS; may be given several times.",
        ),
    ] = None,
    replay_file: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="FILE.json",
            help="Repeat the failing sequence in this file on the backend instead of certifying.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Certify a state backend, or a Spark state store.

    They are checked clause by clause, up to a level. The backend runs in a process of its own, a state store in a JVM
    of its own. Exit code 0 if the level was reached, 1 if a property failed, 2 if no verdict is possible, 3 if the
    target cannot be imported, is not a backend or lacks a required capability, or if Java is needed and cannot run
    Spark.

    \b
    Examples:
      barrier-tck certify heap
      barrier-tck certify rocksdb --level chaos
      barrier-tck certify spark:rocksdb
      barrier-tck certify spark:com.example.YourProvider --jars your.jar
      barrier-tck certify your_package.your_module:YourBackend --require ordered-scan
      barrier-tck certify heap --resume runs/certify-20260101-120000
      barrier-tck certify heap --replay runs/certify-20260101-120000/snapshots-are-isolated.json
    """
    from barrier_tck.harness.certify.backend.suite import require_target
    from barrier_tck.harness.certify.engine.levels import require_level
    from barrier_tck.harness.certify.spark_store.suite import require_store_level
    from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path

    console = console_for(as_json)
    store = spark_store(target, jars, conf or ())
    if replay_file is not None and store is not None:
        replay_on_spark(replay_file, store, call_timeout, console, as_json)
    if replay_file is not None:
        _replay(replay_file, target, console, as_json)
    chosen = chosen_properties(only)
    earlier = to_resume(resume, strength and not chosen)
    level = level or (DEFAULT_LEVEL if earlier is None else earlier.asked_level)
    if target is None:
        raise UsageProblem("name a backend as MODULE:NAME, for instance: barrier-tck certify heap")
    if store is None:
        require_target(target)
        require_level(level)
    else:
        require_store_level(level)
    if not 0 < call_timeout <= _CALL_TIMEOUT_MAX_S:
        raise UsageProblem(f"--call-timeout is {call_timeout:g}; give seconds above 0, up to a day")
    if earlier is not None:
        seed, chosen = earlier.seed if seed is None else seed, chosen or earlier.only
    drawn_from = root_seed(seed)
    path = resume or short(new_run_path(out, "certify", datetime.now()))
    if earlier is None:
        make_output_directory(path)
    named = target if store is None else f"{store.name}{store.arguments}"
    begins = f"certifying {target} up to {level}, seed {drawn_from}, in {path}"
    asked = Asked(
        level,
        drawn_from.value,
        path,
        names_in(require),
        chosen,
        strength and not chosen,
        call_timeout,
        printed_outcomes(console, beginning(begins, path, "certify", named, earlier), named, path, chosen),
        command_to_resume(context.obj, path),
        earlier,
    )
    if store is None:
        certificate = _certified(target, asked, spark, console)
    else:
        certificate = certified_on_spark(store, asked, console)
    raise typer.Exit(output_certificate(certificate, path, console, as_json))


def _certified(target: str, asked: Asked, spark: bool, console: Console) -> Certificate:
    """Run the certifier of backends in Python."""
    from barrier_tck.harness.certify.backend.planted_bugs import measure_strength
    from barrier_tck.harness.certify.backend.pool import Limits
    from barrier_tck.harness.certify.backend.suite import certify as run_suite

    def run(keep: Callable[[Certificate], None]) -> Certificate:
        return run_suite(
            target,
            asked.level,
            asked.seed,
            directory=asked.path,
            limits=Limits(call_s=asked.call_timeout_s),
            require=asked.require,
            spark=spark,
            progress=asked.progress,
            keep=keep,
            only=asked.only,
            earlier=asked.earlier,
        )

    def measure(before: Strength, keep: KeepStrength) -> Strength:
        return measure_strength(asked.seed, before, keep)

    return certified(run, measure if asked.strength else None, asked.path, console, asked.to_resume)


def _replay(file: Path, target: str | None, console: Console, as_json: bool) -> NoReturn:
    """Play a replay file again and exit."""
    from barrier_tck.harness.certify.backend.suite import read_failure, replay

    failure = read_failure(file)
    if target is None and is_target(failure.target):
        raise UsageProblem(
            f"{file} names code that would run: the backend {shown(failure.target)}. If you trust it, name it too: "
            f"barrier-tck certify {failure.target} --replay {file}"
        )
    code = output_replay(
        failure,
        lambda watch: replay(failure, target, watch=watch),
        console,
        as_json,
    )
    raise typer.Exit(code)
