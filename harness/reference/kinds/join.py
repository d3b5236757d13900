"""``join``: the runtime's join of two inputs."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.join import JOIN_STATES, Join


def _make(site: Site) -> OperatorSpec:
    parameters = site.operator.parameters
    left, right = (tuple(key) for key in parameters["keys"])
    return Join(site.operator.name, left, right, parameters["left"], parameters["right"])


KIND = ReferenceKind(_make, tuple(KeptState(side) for side in JOIN_STATES))
