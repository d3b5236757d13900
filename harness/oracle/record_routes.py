"""Routes: records went where the edges of the graph let them go, and stayed in order on their way (BAR-2, RSC-1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import SnapshotView, StateView

_STEP = re.compile(r"(?P<operator>[^\[\]/]+)(?:/[ab])?\[(?P<index>\d+)\]")


def route_problems(plan: TrialPlan, view: SnapshotView, ordered: bool) -> Iterator[str]:
    """Say which records of a checkpoint's state went a way that the graph does not have, or overtook another.

    ``ordered``: none was read twice, so that each stands where it was read.
    """
    operators = {operator.name: vertex.name for vertex in plan.job.vertices for operator in vertex.operators}
    for part in view.state:
        for path in dict.fromkeys(path for kept in part.entries.values() for _, _, path in kept):
            yield from _way_problems(plan.job, operators, path, part.subtask)
        if ordered:
            for kept in part.entries.values():
                yield from _overtaken(kept, part.subtask)


def placement_problems(plan: TrialPlan, view: SnapshotView) -> Iterator[str]:
    """Say which keys' state lies in a subtask that does not own their key group (RSC-1)."""
    operators = {operator.name: vertex.name for vertex in plan.job.vertices for operator in vertex.operators}
    for part in view.state:
        yield from _placed(plan, operators, part)


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


def _placed(plan: TrialPlan, operators: dict[str, str], part: StateView) -> Iterator[str]:
    """Say whether a key's state lies in a subtask that does not own its key group."""
    vertex = plan.job.vertex(operators[part.operator])
    groups, width = plan.deployment.max_parallelism, vertex.parallelism
    for key, group in part.groups.items():
        owner = f"{vertex.name}[{group * width // groups}]"
        if owner != part.subtask:
            yield (
                f"key {key} of {part.operator} is in {part.subtask}, but its key group {group} belongs to {owner}"
            )


def _way_problems(job: JobPlan, operators: dict[str, str], path: str, end: str) -> Iterator[str]:
    """Say whether a path makes a step that no edge has."""
    steps = [_STEP.fullmatch(step) for step in path.split(">")] if path else []
    if not all(steps):
        yield f"{path!r} is no path of subtasks"
        return
    ways = [(operators.get(step["operator"], ""), int(step["index"])) for step in steps if step is not None]
    vertex, _, index = end.rpartition("[")
    for (sender, i), (receiver, j) in zip(ways, [*ways[1:], (vertex, int(index.rstrip("]")))], strict=True):
        if sender == receiver:
            if i != j:
                yield f"a record went from {sender}[{i}] to {receiver}[{j}] within one chain"
            continue
        edges = [edge for edge in job.outputs_of(sender) if edge.target == receiver]
        if not edges:
            yield f"a record went from {sender}[{i}] to {receiver}[{j}], between which there is no edge"
        elif all(edge.by is Spread.FORWARD for edge in edges) and i != j:
            yield f"a record went from {sender}[{i}] to {receiver}[{j}], though the edge only leads to {receiver}[{i}]"
