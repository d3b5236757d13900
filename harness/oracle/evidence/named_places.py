"""Where something was seen, in the words of a finding: subtasks, and the channels and edges between them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.job_graph import JobPlan

SHOWN_MAX = 4
"""With more subtasks than these, a place says how many there are."""


def subtasks_named(texts: Iterable[str], context: TrialContext) -> str:
    """Return the subtasks that the first text names in which there are any; "" if none names one.

    Only names are looked for, and only for people: no verdict depends on a text.
    """
    names = context.every_subtask
    for text in texts:
        found = [name for name in names if re.search(rf"(?<![\w.-]){re.escape(name)}", text)]
        if found:
            more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
            return ", ".join(found[:SHOWN_MAX]) + more
    return ""


def way_to(job: JobPlan, operator: str, sender: str = "", receiver: str = "") -> str:
    """Return the channel or edge on which something comes to an operator, as ``sender->receiver``.

    ``sender`` and ``receiver`` are subtasks, as far as they are known; otherwise ``sender`` may be an operator or a
    vertex, and without it the way is known if only one edge leads there. It is empty if the way is not known, or within
    a chain.
    """
    target = vertex_of(job, operator)
    before, _, number = sender.partition("[")
    source = vertex_of(job, before)
    sources = [edge.source for edge in job.edges if edge.target == target]
    if not source and len(sources) == 1:
        source = sources[0]
    if not target or source not in sources:
        return ""
    return f"{source}{'[' if number else ''}{number}->{receiver or target}"


def last_step(path: str) -> str:
    """Return the last operator on the path of a record, with the number of its subtask if the path has it."""
    return re.sub(r"/[^\[]*", "", path.rpartition(">")[2])  # without the input of a join on which it came


def sinks_of(job: JobPlan) -> str:
    """Return the sinks of a job, and the edge that leads there if there is one only."""
    names = [vertex.name for vertex in job.sinks]
    return at_sink(job, names[0]) if len(names) == 1 else ", ".join(names)


def at_sink(job: JobPlan, sink: str) -> str:
    """Return a sink or a subtask of one, and the edge that leads there if there is one only."""
    way = way_to(job, sink.partition("[")[0], receiver=sink)
    return f"{sink}, on {way}" if way else sink


def vertex_of(job: JobPlan, operator: str) -> str:
    """Return the vertex of an operator, or of that name; "" if there is none."""
    return next(
        (
            vertex.name
            for vertex in job.vertices
            if operator == vertex.name or any(entry.name == operator for entry in vertex.operators)
        ),
        "",
    )
