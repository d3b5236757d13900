"""What a state store can do beyond the core: it declares nothing, so each is tried once."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.certify.spark_store.executor import StoreExecutor
from barrier_tck.harness.certify.spark_store.java_process import Died, Raised
from barrier_tck.harness.certify.spark_store.layouts import (
    LAYOUTS,
    MANY,
    PLAIN,
    PREFIXED,
    RANGED,
    StoreLayout,
)
from barrier_tck.harness.certify.spark_store.processes import StoreProcesses
from barrier_tck.harness.certify.spark_store.session_settings import FORMAT_VERSION, SETTINGS

Use = Callable[[StoreExecutor, StoreLayout], str]
"""Uses a store; returns what it lacks, or an empty text."""


def lacks(processes: StoreProcesses, layout: StoreLayout) -> str:
    """Use each family of a layout once; return why that cannot be done, or an empty text."""
    return _tried(processes, layout, SETTINGS, _use)


def try_commit_ids(processes: StoreProcesses) -> str:
    """Try format 2, in which each commit has an id, and note in ``processes`` whether the store has it.

    Return why it has not, or an empty text.
    """
    problem = _tried(processes, LAYOUTS[PLAIN], SETTINGS | {FORMAT_VERSION: "2"}, _use_ids)
    processes.has_commit_ids = not problem
    return problem


def _tried(processes: StoreProcesses, layout: StoreLayout, settings: dict[str, str], use: Use) -> str:
    try:
        executor = processes.executor(layout, processes.new_checkpoints(), settings)
        problem = use(executor, layout)
        executor.close()
    except Raised as error:
        return str(error)
    except Died as error:
        processes.replace()
        # Another program has ended the JVM, so it is not known yet what the store lacks.
        return _tried(processes, layout, settings, use) if error.from_outside else str(error)
    return problem


def _use_ids(executor: StoreExecutor, layout: StoreLayout) -> str:
    if not executor.may_have_commit_ids:
        return "commits of this Spark have no ids"
    if not executor.has_commit_ids:
        return f"it is set to {FORMAT_VERSION}=1"
    _use(executor, layout)
    if executor.commit_id is None:
        return "its commits have no id"
    executor.begin(1, commit_id=executor.commit_id)
    executor.abort()
    return ""


def _use(executor: StoreExecutor, layout: StoreLayout) -> str:
    executor.begin(0)
    for family in layout.families:
        key = (1, "a")
        executor.put(family, key, "x")
        if family.kind == PREFIXED:
            executor.scan(family, 1)
        elif family.kind == RANGED:
            executor.range(family, key, None)
        elif family.kind == MANY:
            executor.merge(family, key, "y")
            executor.values(family, key)
        executor.iterate(family)
    executor.commit()
    return ""
