"""The part of ``barrier-tck certify`` that is about Spark's own state stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console

from barrier_tck.harness.cli.certificate_output import Asked, certified, output_replay
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.certificate import Certificate, Strength
    from barrier_tck.harness.certify.engine.planted_bugs import KeepStrength
    from barrier_tck.harness.certify.spark_store.targets import StoreTarget


def names_in(listed: str) -> tuple[str, ...]:
    """Return the names of a list with commas; it may be empty."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def spark_store(target: str | None, jars: str, conf: Sequence[str]) -> StoreTarget | None:
    """Return the Spark state store that is named, or None if none is; raises UsageProblem."""
    from barrier_tck.harness.certify.spark_store.targets import is_store_target, store_target

    if target is not None and is_store_target(target):
        return store_target(target, names_in(jars), conf)
    if jars or conf:
        raise UsageProblem("--jars and --conf are for spark:CLASS; a backend in Python is imported")
    return None


def certified_on_spark(store: StoreTarget, asked: Asked, console: Console) -> Certificate:
    """Run the certifier of Spark's state stores."""
    from barrier_tck.harness.certify.spark_store.planted_bugs import measure_strength
    from barrier_tck.harness.certify.spark_store.suite import certify

    def run(keep: Callable[[Certificate], None]) -> Certificate:
        return certify(
            store,
            asked.level,
            asked.seed,
            directory=asked.path,
            call_s=asked.call_timeout_s,
            require=asked.require,
            progress=asked.progress,
            keep=keep,
            only=asked.only,
            earlier=asked.earlier,
        )

    def measure(before: Strength, keep: KeepStrength) -> Strength:
        return measure_strength(asked.seed, before=before, keep=keep)

    return certified(run, measure if asked.strength else None, asked.path, console, asked.to_resume)


def replay_on_spark(
    file: Path, store: StoreTarget, call_timeout_s: float, console: Console, as_json: bool
) -> NoReturn:
    """Play a replay file on a state store again and exit."""
    from barrier_tck.harness.certify.spark_store.suite import read_failure, replay

    failure = read_failure(file)
    code = output_replay(
        failure,
        lambda watch: replay(failure, store, call_timeout_s, watch),
        console,
        as_json,
    )
    raise typer.Exit(code)
