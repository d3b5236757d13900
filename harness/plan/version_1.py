"""Reads plans of version 1 as plans of today. Version 1 knew one shape only: sources, keyed subtasks, sinks."""

from __future__ import annotations

from typing import Any

_WIDTHS = {"sources": "source", "keyed": "totals", "sinks": "sink"}
"""Field of the old topology -> vertex. In the workload without shuffle, every vertex was as wide as the source."""
_DEPLOYMENT = ("max_parallelism", "executors", "write_through")
_OLD_DEFAULTS = {"sources": 2, "keyed": 2, "sinks": 1}


def upgraded(value: dict[str, Any]) -> dict[str, Any]:
    """Return a plan of version 1, as plain dictionaries, in the form of version 2.

    Mistakes are carried over unchanged, so that the plan is then refused under the mistake's own name.
    """
    changed = {key: part for key, part in value.items() if key != "topology"}
    changed["version"] = 2
    topology = value.get("topology", {})
    if not isinstance(topology, dict):
        changed["topology"] = topology
        return changed
    changed["deployment"] = {key: topology[key] for key in _DEPLOYMENT if key in topology}
    widths = {**_OLD_DEFAULTS, **{key: topology[key] for key in _WIDTHS if key in topology}}
    workload = value.get("workload", {})
    if isinstance(workload, dict) and workload.get("name") == "passthrough":
        job: dict[str, Any] = {"widths": dict.fromkeys(("source", "steps", "sink"), widths["sources"])}
    else:
        job = {"widths": {_WIDTHS[key]: width for key, width in widths.items()}}
        if topology.get("stateful_operators", 1) == 2:
            job["shape"] = "chained"
    changed["job"] = job
    unknown = {
        key: part
        for key, part in topology.items()
        if key not in (*_WIDTHS, *_DEPLOYMENT, "stateful_operators")
    }
    if unknown:
        changed["topology"] = unknown
    return changed
