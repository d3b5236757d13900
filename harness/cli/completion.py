"""What a shell completes as the value of an option or an argument.

Names are looked up when a shell asks for them, so that no command imports what it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Names = Callable[[], Iterable[str]]
Completed = Callable[[str], list[str]]


def one_of(*values: str) -> Completed:
    """Return what completes one of a few values."""
    return one_of_names(lambda: values)


def one_of_names(names: Names) -> Completed:
    """Return what completes one of the names."""

    def completed(incomplete: str) -> list[str]:
        return [value for value in names() if value.startswith(incomplete)]

    return completed


def several_of(names: Names) -> Completed:
    """Return what completes the last name of a list with commas; a name that is in the list is not offered again."""

    def completed(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [
            f"{before}{comma}{value}" for value in names() if value.startswith(last) and value not in given
        ]

    return completed


def campaign_names(incomplete: str) -> list[str]:
    """Complete the name of a campaign file that comes with the package; the shell completes paths itself."""
    from barrier_tck.harness.cli.shipped import shipped_campaigns

    return one_of(*shipped_campaigns())(incomplete)


def first_files(incomplete: str) -> list[str]:
    """Complete the name of a file that ``init`` can write."""
    from barrier_tck.harness.cli.shipped import SKELETONS

    return one_of(*SKELETONS, "examples")(incomplete) + campaign_names(incomplete)


def _workloads() -> Iterable[str]:
    from barrier_tck.harness.workloads.workload_names import workload_names

    return workload_names()


def _clauses() -> Iterable[str]:
    """Return the clauses that a checker judges; no other one can be asked for."""
    from barrier_tck.harness.oracle.catalogue import standard_checkers

    return sorted({clause for checker in standard_checkers() for clause in checker.covers})


def _planted_bugs() -> Iterable[str]:
    from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime

    return bugs_of_runtime()


def _known_bugs() -> Iterable[str]:
    from barrier_tck.harness.yardstick.bugs import known_bugs

    return (bug.id for bug in known_bugs())


def _scopes() -> Iterable[str]:
    from barrier_tck.harness.reference.exhaustive.scopes import SCOPES

    return SCOPES


def _capabilities() -> Iterable[str]:
    from barrier_tck.harness.certify.backend.capabilities import CAPABILITIES
    from barrier_tck.harness.certify.spark_store.layouts import CAPABILITIES as CAPABILITIES_OF_STORES

    return (*CAPABILITIES, *CAPABILITIES_OF_STORES)


def _properties() -> Iterable[str]:
    """Return the properties of state backends and of Spark's state stores: an option is completed by itself."""
    from barrier_tck.harness.certify.backend.chaos import CHAOS
    from barrier_tck.harness.certify.backend.properties import PROPERTIES
    from barrier_tck.harness.certify.spark_store.properties import PROPERTIES as PROPERTIES_OF_STORES

    of_backends = [one.name for one in (*PROPERTIES, *CHAOS)]
    return dict.fromkeys([*of_backends, *(one.name for one in PROPERTIES_OF_STORES)])


def _storage_properties() -> Iterable[str]:
    from barrier_tck.harness.certify.storage.properties import PROPERTIES

    return [one.name for one in PROPERTIES]


_REFERENCE = ("reference-simulated", "reference-spark")
_ALL_SYSTEMS = (*_REFERENCE, "structured-streaming")

SYSTEMS = one_of(*_ALL_SYSTEMS)
REFERENCE_SYSTEMS = one_of(*_REFERENCE)
COMPARED_SYSTEMS = several_of(lambda: _ALL_SYSTEMS)
BACKENDS = one_of("heap", "rocksdb")
STORAGES = one_of("files", "s3", "hdfs", "memory")
STRATEGIES = one_of("uniform", "swarm", "guided", "pct", "crossed")
WORLDS = one_of("simulated", "spark")
LEVELS = one_of("contract", "crash", "chaos")
WORKLOADS = one_of_names(_workloads)
CLAUSES = several_of(_clauses)
PLANTED_BUGS = several_of(_planted_bugs)
KNOWN_BUGS = one_of_names(_known_bugs)
PLANTED_BUG = one_of_names(_planted_bugs)
SCOPES = one_of_names(_scopes)
CAPABILITIES = several_of(_capabilities)
PROPERTIES = several_of(_properties)
STORAGE_PROPERTIES = several_of(_storage_properties)
