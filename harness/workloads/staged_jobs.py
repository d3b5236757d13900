"""Job graphs that are made for one moment of the protocol: the suite waits for it, and planted bugs show in it."""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.workloads.kinds.again import KIND as AGAIN
from barrier_tck.harness.workloads.lineage import hashed, source


def meeting(first: str, second: EdgePlan) -> JobPlan:
    """Return a graph of ``lineage`` in which vertex ``met`` has a keyed input, and behind it state is kept by key.

    ``second`` leads to ``met`` from another source, which is one subtask.
    """
    return JobPlan(
        vertices=(
            source(first),
            source(second.source, 1),
            VertexPlan("met", "merge", 2),
            VertexPlan("kept", "keep", 2),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            hashed(first, "met"),
            second,
            hashed("met", "kept"),
            EdgePlan("kept", "out", Spread.REBALANCE),
        ),
    )


MEETS_BROADCAST = meeting("read", EdgePlan("told", "met", Spread.BROADCAST, input=1))
"""Barriers overtake on the keyed input of ``met``, and wait on the other one, which is a broadcast (UNA-5)."""


def short_cut(readers: int) -> JobPlan:
    """Return a graph of ``lineage`` in which two ways lead to ``both``.

    On the way that passes no other vertex, barriers overtake. On the other way, ``met`` reads up to them, behind a
    broadcast. ``readers`` is the parallelism of the source of both ways.
    """
    return JobPlan(
        vertices=(
            source("read", readers),
            source("told", 1),
            VertexPlan("met", "merge", 2),
            VertexPlan("both", "merge", 1),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            hashed("read", "met"),
            EdgePlan("told", "met", Spread.BROADCAST, input=1),
            hashed("read", "both"),
            hashed("met", "both", 1),
            EdgePlan("both", "out", Spread.REBALANCE),
        ),
    )


ONE_RECORD = WorkloadPlan("rounds", batches=1, batch_records=1, start_offset=20, records_per_second=300)
"""The input of ``FORKED``: record 20 alone, which goes round 20 times."""

FORKED = JobPlan(
    vertices=(
        source("read", 1),
        VertexPlan("hub", "keep", 1),
        VertexPlan("on", AGAIN.name, 1, {"turns": 22}),
        VertexPlan("off", AGAIN.name, 1, {"turns": 1}),
        VertexPlan("out", SINK, 1),
    ),
    edges=(
        hashed("read", "hub"),
        EdgePlan("hub", "on", Spread.REBALANCE),
        EdgePlan("on", "hub", Spread.HASH, ("key",), feedback=True),
        EdgePlan("hub", "off", Spread.REBALANCE),
        EdgePlan("off", "hub", Spread.HASH, ("key",), feedback=True),
        EdgePlan("hub", "out", Spread.REBALANCE),
    ),
)
"""A record goes round by way of ``on``. Each time a copy of it goes to ``off``, and ends there: it may hide that
something is under way."""

TWO_WAYS = JobPlan(
    vertices=(source("read", 1), VertexPlan("kept", "keep", 1), VertexPlan("out", SINK, 1)),
    edges=(
        hashed("read", "kept"),
        EdgePlan("read", "out", Spread.FORWARD),
        EdgePlan("kept", "out", Spread.FORWARD),
    ),
)
"""One way to the sink passes state, and the other one nothing."""
