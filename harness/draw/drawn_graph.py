"""Draws the job of a plan: a named shape of its workload in some widths, or a graph."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import JobRanges, Range
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.dataflow_model import windows_of
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.workload import DrawsJobs, Workload
from barrier_tck.harness.workloads.workload_names import filled, workload_named


def with_job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a drawn job, unless the campaign prescribes the job.

    Rescales that the campaign prescribes may not fit what is drawn: then it is the workload's standard job. Raises
    UsageProblem if they do not fit that, either.
    """
    if plan.job != JobPlan():
        return plan
    try:
        return _with_drawn_job(drawing, plan)
    except ValueError:
        if not plan.rescales:
            raise
        return filled(plan)


def _with_drawn_job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    draw, ranges = drawing.draw, drawing.profile.job
    workload = workload_named(plan.workload.name)
    if isinstance(workload, DrawsJobs) and chance(draw, ranges.drawn_per_mille):
        job = workload.draw_job(lambda least, most: draw(numbers(least, most)), ranges.subtasks_max)
        return msgspec.structs.replace(plan, job=job)
    # A scenario leaves shapes out of workloads that it does not know, too: another shape may not be left.
    shapes = shapes_of(workload, ranges, with_lists=False) or tuple(workload.shapes)
    return with_shape(drawing, plan, shapes)


def shapes_of(workload: Workload, ranges: JobRanges, with_lists: bool) -> list[str]:
    """Return the shapes that are drawn: those whose operators keep lists, or all others.

    Those that hold records back are left out: scenarios make them of any shape.
    """
    jobs = {
        shape: workload.job(shape, {}) for shape in workload.shapes if shape not in ranges.shapes_left_out
    }
    return [shape for shape, job in jobs.items() if keeps_lists(job) is with_lists and not windows_of(job)]


def keeps_lists(job: JobPlan) -> bool:
    """Return whether an operator of a job keeps a list without keys."""
    return any(
        kind_named(operator.kind).keeps_lists for vertex in job.vertices for operator in vertex.operators
    )


def with_shape(drawing: Drawing, plan: TrialPlan, shapes: Sequence[str]) -> TrialPlan:
    """Return the plan with one of the shapes of its workload, in drawn widths."""
    draw, workload = drawing.draw, workload_named(plan.workload.name)
    shape = draw(st.sampled_from(shapes))
    wished = workload.job(shape, {})
    widths = {
        vertex.name: between(draw, _width_of(drawing.profile.job, vertex)) for vertex in wished.vertices
    }
    if plan.workload.batches * plan.workload.batch_records == 1:  # exactly one record: one source only
        widths |= dict.fromkeys([vertex.name for vertex in wished.sources], 1)
    return msgspec.structs.replace(plan, job=workload.job(shape, widths))


def _width_of(ranges: JobRanges, vertex: VertexPlan) -> Range:
    return {SOURCE: ranges.sources, SINK: ranges.sinks}.get(vertex.kind, ranges.keyed)
