"""Records in flight in checkpoints: which modes have any, where they may be, and what a broadcast promises.

That state and records in flight are together what lies before the barriers is judged by ``dataflow`` and
``snapshot_formula``, and that those in flight are the newest of their channel by ``record_routes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.sometimes import Sometimes, counted
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import InFlight, SnapshotView
from barrier_tck.harness.workloads.record_forms import RecordForm
from barrier_tck.harness.workloads.records import Bag

IN_FLIGHT = "in_flight"
"""The count of a finding that says how many records in flight were seen in checkpoints."""

SOMETIMES_IN_FLIGHT = Sometimes(
    name="sometimes-in-flight",
    clauses=("UNA-1", "CHL-1", "CHL-5"),
    seen=counted("records", IN_FLIGHT),
    things={"records": "with_records"},
    shown="{with_records} of {trials} trials whose checkpoints may hold records in flight had some, {records} in all",
    not_shown=(
        "no record was in flight in any checkpoint of the {trials} trials that may have some: it was not shown that "
        "what is in flight becomes part of a checkpoint; run more trials, and make a channel or a sink slow"
    ),
)
"""Where checkpoints may hold records in flight, some must: because barriers overtake, because channels are recorded, or
because of a loop."""


def edge_of(job: JobPlan, channel: InFlight) -> EdgePlan | None:
    """Return the edge to which a channel belongs; None if there is no such edge."""
    ends = channel.sender.rpartition("[")[0], channel.receiver.rpartition("[")[0]
    edges = [edge for edge in job.edges if (edge.source, edge.target) == ends]
    return edges[channel.edge] if channel.edge < len(edges) else None


def by_edge(view: SnapshotView, form: RecordForm) -> dict[tuple[str, str, int], Bag]:
    """Return (source, target, which of the edges between them) -> what is in flight there."""
    found: dict[tuple[str, str, int], Bag] = {}
    for channel in view.in_flight:
        edge = channel.sender.rpartition("[")[0], channel.receiver.rpartition("[")[0], channel.edge
        found.setdefault(edge, Counter()).update(map(form.read, channel.rows))
    return found


def in_flight_problems(plan: TrialPlan, view: SnapshotView) -> Iterator[Difference]:
    """Yield which records are in flight where none may be, and which broadcasts only some receivers have applied."""
    broadcasts: dict[tuple[str, str, int], dict[str, InFlight]] = {}
    for entry in view.in_flight:
        channel = f"{entry.sender}->{entry.receiver}"
        edge = edge_of(plan.job, entry)
        if entry.problem:
            yield Difference(Kind.IN_FLIGHT, f"records in flight on {channel}: {entry.problem}", channel)
        if edge is None:
            there = f"{len(entry.rows)} records are in flight on {channel}, and there is no such channel"
            yield Difference(Kind.WRONG_WAY, there, channel)
        elif plan.checkpoints.records_all:
            continue
        elif not plan.checkpoints.overtakes and not edge.feedback:
            there = f"{len(entry.rows)} records are in flight on {channel}, though every barrier is aligned"
            yield Difference(Kind.IN_FLIGHT, there, channel)
        elif edge.by is Spread.BROADCAST and not edge.feedback:
            broadcasts.setdefault((entry.sender, edge.target, entry.edge), {})[entry.receiver] = entry
    for (sender, target, _), held in broadcasts.items():
        receivers = plan.job.vertex(target).subtasks
        contents = {receiver: held[receiver].rows if receiver in held else () for receiver in receivers}
        if len({str(rows) for rows in contents.values()}) > 1:
            counts = ", ".join(f"{len(rows)} to {receiver}" for receiver, rows in contents.items())
            yield Difference(
                Kind.BROADCAST,
                f"of a broadcast of {sender}, {counts} are in flight: some receivers have applied what others have not "
                "(UNA-5)",
                f"{sender}->{target}",
            )
