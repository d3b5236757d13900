"""Money that moves between accounts in a loop: accounts and channels of every global snapshot hold the same total.

It is the example of Chandy and Lamport. In a snapshot that is no consistent cut, or that lacks a message of a channel,
the total is too large or too small. No model of the run is needed to see this.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.shapes import Parts, Shapes, job_among
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.drawn_splits import drawn_splits
from barrier_tck.harness.workloads.kinds.account import KIND as ACCOUNT
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("account", pa.string()),
        ("carries", pa.int64()),
        ("pays", pa.int64()),
        ("route", pa.string()),
    ]
)
"""The columns of an order and of a payment: see ``payments``."""

_HOPS = 5
"""The most payments that follow from an order."""
_AMOUNTS = (1, 400)


class Money:
    """Generated orders ``id, account, carries, pays, route``. The output holds every payment."""

    name = "money"
    description = (
        "Each order makes its `account` pay the amount `pays` to the first account of its `route`; that one keeps a "
        "quarter and pays the rest to the next one, until the route ends. A payment travels round the loop as a row of "
        "the same columns, with the money that it `carries`. Accounts may go below zero. Write every payment to an "
        "output that is visible exactly once."
    )
    spec = None
    shapes = ("bank", "banks", "exchange")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        return job_among(_SHAPES, shape, widths)

    def problem_of(self, job: JobPlan) -> str | None:
        """Return why a job is none of the shapes; None if it is one of them."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the orders."""
        return {vertex.name: SCHEMA for vertex in job.sources}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the orders. Each bank has as many accounts as the plan has keys."""
        job = job_of_plan(self, plan)
        banks = banks_of(job)

        def orders(
            first: int, count: int, draws: random.Random, plan: TrialPlan, _vertex: VertexPlan
        ) -> list[Row]:
            return [_order(first + number, draws, banks, plan.workload.keys) for number in range(count)]

        return drawn_splits(plan, job, self.name, orders)


def banks_of(job: JobPlan) -> tuple[str, ...]:
    """Return the vertices that hold accounts, in the order in which payments pass them."""
    return tuple(vertex.name for vertex in job.vertices if vertex.kind == ACCOUNT.name)


def _order(number: int, draws: random.Random, banks: Sequence[str], accounts: int) -> Row:
    """Return an order whose payments go from bank to bank."""
    passed = [
        f"{banks[hop % len(banks)]}/{draws.randrange(accounts)}" for hop in range(1 + draws.randint(1, _HOPS))
    ]
    return {
        "id": number,
        "account": passed[0],
        "carries": 0,
        "pays": draws.randint(*_AMOUNTS),
        "route": ">".join(passed[1:]),
    }


# --- shapes -------------------------------------------------------------------------------------------------


def _payments(start: str, end: str, feedback: bool = False) -> EdgePlan:
    return EdgePlan(start, end, Spread.HASH, ("account",), feedback=feedback)


def _bank() -> Parts:
    """The subtasks of one bank pay each other, and themselves."""
    vertices = (
        VertexPlan("orders", SOURCE, 2),
        VertexPlan("bank", ACCOUNT.name, 3),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _payments("orders", "bank"),
        _payments("bank", "bank", feedback=True),
        EdgePlan("bank", "out", Spread.REBALANCE),
    )


def _banks() -> Parts:
    """Two banks, each of which pays the other."""
    vertices = (
        VertexPlan("orders", SOURCE, 2),
        VertexPlan("east", ACCOUNT.name, 2),
        VertexPlan("west", ACCOUNT.name, 3),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _payments("orders", "east"),
        _payments("east", "west"),
        _payments("west", "east", feedback=True),
        EdgePlan("east", "out", Spread.REBALANCE),
        EdgePlan("west", "out", Spread.REBALANCE),
    )


def _exchange() -> Parts:
    """Payments go back through the sources of the orders, so every process but the sink reaches every other one."""
    vertices = (
        VertexPlan("orders", SOURCE, 2),
        VertexPlan("bank", ACCOUNT.name, 3),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _payments("orders", "bank"),
        EdgePlan("bank", "orders", Spread.REBALANCE, feedback=True),
        EdgePlan("bank", "out", Spread.REBALANCE),
    )


_SHAPES: Shapes = {"bank": _bank, "banks": _banks, "exchange": _exchange}
