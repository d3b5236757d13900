"""The parts of the runtime that a plan chooses: its state backend, and where its checkpoints are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.checkpoint_storages import storage_of
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

_OWN_BACKEND = TrialPlan().state_backend
"""The default backend of a plan, which is that of the components themselves."""


def components_of(
    plan: TrialPlan, external_storage: Callable[..., CheckpointStorage] | None = None
) -> Components:
    """Return the parts from which a plan's runtime is built; raises UsageProblem if its state backend is unknown.

    ``external_storage`` makes the checkpoint storage if the plan does not keep checkpoints in files.
    """
    components = Components()
    if plan.checkpoints.storage != "files":
        components = replace(components, checkpoint_storage=storage_of(plan, external_storage))
    if plan.state_backend == _OWN_BACKEND:
        return components
    return replace(components, state_backend=require_state_backend(plan.state_backend))
