"""The part of ``barrier-tck certify`` that is about Spark's own state stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console

from barrier_tck.harness.cli.certificate_output import certified, output_replay, print_outcome
from barrier_tck.harness.cli.printing import printable
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.certify.certificate import Certificate
    from barrier_tck.harness.certify.spark_stores.store_targets import StoreTarget


def names_in(listed: str) -> tuple[str, ...]:
    """Return the names of a list with commas; it may be empty."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def spark_store(target: str | None, jars: str, conf: Sequence[str]) -> StoreTarget | None:
    """Return the state store of Spark's that is named, or None if none is; raises UsageProblem."""
    from barrier_tck.harness.certify.spark_stores.store_targets import is_store_target, store_target

    if target is not None and is_store_target(target):
        return store_target(target, names_in(jars), conf)
    if jars or conf:
        raise UsageProblem("--jars and --conf are for spark:CLASS; a backend in Python is imported")
    return None


def certified_on_spark(
    store: StoreTarget,
    level: str,
    seed: int,
    path: Path,
    require: str,
    strength: bool,
    call_timeout_s: float,
    console: Console,
) -> Certificate:
    """Run the certifier of Spark's state stores."""
    from barrier_tck.harness.certify.spark_stores.planted_stores import measure_store_strength
    from barrier_tck.harness.certify.spark_stores.store_suite import certify_store

    def run(keep: Callable[[Certificate], None]) -> Certificate:
        return certify_store(
            store,
            level,
            seed,
            directory=path,
            call_s=call_timeout_s,
            require=names_in(require),
            progress=lambda outcome: print_outcome(console, outcome, f"{store.name}{store.arguments}", path),
            keep=keep,
        )

    return certified(run, (lambda: measure_store_strength(seed)) if strength else None, path, console)


def replay_on_spark(
    file: Path, store: StoreTarget, call_timeout_s: float, console: Console, as_json: bool
) -> NoReturn:
    """Play a replay file on a state store again and exit."""
    from barrier_tck.harness.certify.spark_stores.store_steps import description_of
    from barrier_tck.harness.certify.spark_stores.store_suite import read_store_failure, replay_on_store

    failure = read_store_failure(file)
    console.print(f"{failure.property}: {len(failure.steps)} steps", markup=False)
    violation = replay_on_store(
        failure,
        store,
        call_timeout_s,
        tell=lambda number, step: console.print(
            printable(f"    {number}. {description_of(step)}"), markup=False
        ),
    )
    raise typer.Exit(output_replay(failure.property, violation, failure.violation, console, as_json))
