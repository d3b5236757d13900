"""What a state store can do beyond the core: it declares nothing, so each is tried once."""

from __future__ import annotations

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


def lacks(processes: StoreProcesses, layout: StoreLayout) -> str:
    """Use each family of a layout once; return why that cannot be done, or an empty text."""
    try:
        executor = processes.executor(layout, processes.new_checkpoints(), SETTINGS)
        _use(executor, layout)
        executor.close()
    except Raised as error:
        return str(error)
    except Died as error:
        processes.replace()
        # Another program has ended the JVM, so it is not known yet what the store lacks.
        return lacks(processes, layout) if error.from_outside else str(error)
    return ""


def has_no_ids(processes: StoreProcesses) -> str:
    """Try format 2, in which each commit has an id; return why that cannot be done, or an empty text."""
    settings = SETTINGS | {FORMAT_VERSION: "2"}
    try:
        executor = processes.executor(LAYOUTS[PLAIN], processes.new_checkpoints(), settings)
        if not executor.has_commit_ids:
            return f"it is set to {FORMAT_VERSION}=1"
        _use(executor, LAYOUTS[PLAIN])
        executor.begin(1, commit_id=executor.commit_id)
        executor.abort()
        executor.close()
    except Raised as error:
        return str(error)
    except Died as error:
        processes.replace()
        return has_no_ids(processes) if error.from_outside else str(error)
    if executor.commit_id is None:
        return "its commits have no id"
    processes.has_commit_ids = True
    return ""


def _use(executor: StoreExecutor, layout: StoreLayout) -> None:
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
