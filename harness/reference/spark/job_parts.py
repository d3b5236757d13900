"""The parts of a job on Spark that follow from its plan. The harness and the driver's process each make their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.external_storage import ExternalStorage
from barrier_tck.harness.reference.jobs import build_graph, parquet_sources
from barrier_tck.harness.reference.planned_components import components_of
from barrier_tck.harness.reference.slow_vertex import slowed_down
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.support.third_party import imported
from barrier_tck.harness.workloads.workload_names import workload_named
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.state.backend import StateBackend


def graph_of(plan: TrialPlan, source: Path) -> JobGraph:
    """Return the job that reads its input below a directory."""
    workload = workload_named(plan.workload.name)
    return build_graph(plan, workload, parquet_sources(plan, workload, source))


def parts_of(
    plan: TrialPlan, backend: str | None, external_storage: ExternalStorage | None = None
) -> Components:
    """Return the runtime's parts, with the candidate's state backend if there is one.

    ``external_storage`` makes checkpoint storage if the plan does not keep checkpoints in files.
    """
    deployment = plan.deployment
    parts = components_of(plan) if external_storage is None else components_of(plan, external_storage)
    components = slowed_down(parts, deployment.slow_vertex, deployment.slow_batch_ms)
    if backend is None:
        return components
    factory: Callable[[], StateBackend] = imported(backend, "state backend")  # type: ignore[assignment]
    return replace(components, state_backend=factory)


def name_of(factory: Callable[[], StateBackend]) -> str:
    """Return the name by which another process imports a factory; raises UsageError if it has none."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<nameless>")
    if module is None or "<" in name:
        raise UsageError(
            f"the state backend factory {factory!r} cannot be imported by another process; name it at the top level of "
            "its module"
        )
    return f"{module}:{name}"
