"""Routes: records went where the edges of the graph let them go, and stayed in order on their way (BAR-2, RSC-1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.system.job_view import JobView

_STEP = re.compile(r"(?P<operator>[^\[\]/]+)(?:/[ab])?\[(?P<index>\d+)\]")


def route_problems(plan: JobPlan, job: JobView | None, view: SnapshotView, ordered: bool) -> Iterator[str]:
    """Say which records of a checkpoint's state went a way that the graph does not have, or overtook another.

    ``job`` is the plan's, as its system sees it. ``ordered``: none was read twice, so that each stands where it was
    read.
    """
    operators = {operator.name: vertex.name for vertex in plan.vertices for operator in vertex.operators}
    for part in view.state:
        for path in dict.fromkeys(path for kept in part.entries.values() for _, _, path in kept):
            yield from _way_problems(plan, operators, path, _place_of(part.subtask, job))
        if ordered:
            for kept in part.entries.values():
                yield from _overtaken(kept, part.subtask)


def placement_problems(job: JobView | None, view: SnapshotView) -> Iterator[str]:
    """Say which keys' state lies in a subtask that does not own their key group (RSC-1)."""
    for part in view.state:
        own = key_groups_of(part.subtask, job)
        for key, group in part.groups.items():
            if own is not None and group not in own:
                yield (
                    f"key {key} of {part.operator} is in {part.subtask}, which owns the key groups {own.start} to "
                    f"{own.stop - 1}, but its key group is {group}"
                )


def key_groups_of(subtask: str, job: JobView | None) -> range | None:
    """Return the key groups that a subtask owns (RSC-1); None if it owns none, or the system does not say."""
    view = job.by_name.get(subtask) if job is not None else None
    return range(*view.key_groups) if view is not None and view.key_groups is not None else None


def _overtaken(kept: Sequence[Any], subtask: str) -> Iterator[str]:
    """Say which records of one key stand behind others that were read later and came by the same way (BAR-2)."""
    latest: dict[tuple[int, str, int], int] = {}
    for number, identifier, path in kept:
        lane = (number, path, identifier // SPLIT_IDS)
        if identifier < latest.get(lane, -1):
            yield (
                f"record {identifier} is behind record {latest[lane]} in the state of {subtask}, though both came by "
                f"way of {path} and it was read first: one overtook the other"
            )
        latest[lane] = identifier


SPLIT_IDS = 100_000
"""Ids of one split of the workload ``lineage`` lie in one range of this length, in reading order."""


_Place = tuple[str, int]
"""A vertex of the plan's job, and the place of a subtask among those of the vertex."""


def _place_of(subtask: str, job: JobView | None) -> _Place | None:
    """Return where a subtask stands in the plan's job; None if the system does not say."""
    view = job.by_name.get(subtask) if job is not None else None
    if job is None or view is None or not view.vertex:
        return None
    return view.vertex, job.like(subtask).index(subtask)


def _way_problems(job: JobPlan, operators: dict[str, str], path: str, end: _Place | None) -> Iterator[str]:
    """Say whether a path makes a step that no edge has; the last one leads to where the record is kept."""
    steps = [_STEP.fullmatch(step) for step in path.split(">")] if path else []
    if not all(steps):
        yield f"{path!r} is no path of subtasks"
        return
    way = [(operators.get(step["operator"], ""), int(step["index"])) for step in steps if step is not None]
    way += [end] if end is not None else []
    for (sender, i), (receiver, j) in pairwise(way):
        if sender == receiver:
            if i != j:
                yield f"a record went from {sender}[{i}] to {receiver}[{j}] within one chain"
            continue
        edges = [edge for edge in job.outputs_of(sender) if edge.target == receiver]
        if not edges:
            yield f"a record went from {sender}[{i}] to {receiver}[{j}], between which there is no edge"
        elif all(edge.by is Spread.FORWARD for edge in edges) and i != j:
            yield f"a record went from {sender}[{i}] to {receiver}[{j}], though the edge only leads to {receiver}[{i}]"
