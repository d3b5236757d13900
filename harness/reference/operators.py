"""Operators of the reference runtime for the kinds that a plan's vertices name: every module in ``kinds`` has one."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from barrier_tck.harness.plan.job_graph import JobPlan, OperatorPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.reference import kinds
from barrier_tck.harness.reference.operator_kind import ReferenceKind, Site
from barrier_tck.harness.support.errors import InternalError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.reference_impl.operators.graph import OperatorSpec


@lru_cache(maxsize=1)
def reference_kinds() -> Mapping[str, ReferenceKind]:
    """Return what the runtime knows of each kind that it has, by the kind's name, sorted."""
    names = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    return {name.rstrip("_"): _kind_in(name) for name in names}


def _kind_in(module_name: str) -> ReferenceKind:
    module = import_module(f"{kinds.__name__}.{module_name}")
    kind = getattr(module, "KIND", None)
    if not isinstance(kind, ReferenceKind):
        raise InternalError(f"{module.__name__} must define KIND, a ReferenceKind")
    return kind


def operator_spec(
    job: JobPlan, deployment: DeploymentPlan, vertex: VertexPlan, operator: OperatorPlan, workload: Workload
) -> OperatorSpec:
    """Return the runtime's operator for one in a vertex's chain; raises UsageProblem for a kind that does not
    exist."""
    kind = reference_kinds().get(operator.kind)
    if kind is None:
        raise UsageProblem(
            f"the operator {operator.name!r} is of kind {operator.kind!r}, which the reference runtime does not "
            f"have{nearest(operator.kind, reference_kinds())}"
        )
    keys = {edge.input: edge.key for edge in job.inputs_of(vertex.name)}
    # An operator chained behind another one has a single input: what the one before it emits.
    heads = operator.name == vertex.name
    inputs = tuple(keys[number] for number in sorted(keys)) if heads else (keys.get(0, ()),)
    return kind.make(Site(job, deployment, operator, inputs, workload))
