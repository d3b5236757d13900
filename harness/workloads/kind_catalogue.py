"""All kinds of operators, as they are found: every module in ``kinds`` defines one."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from barrier_tck.harness.plan.job_graph import VertexPlan
from barrier_tck.harness.support.errors import InternalError
from barrier_tck.harness.workloads import kinds
from barrier_tck.harness.workloads.operator_kind import OperatorKind, Place


@lru_cache(maxsize=1)
def operator_kinds() -> Mapping[str, OperatorKind]:
    """Return every kind by its name, sorted."""
    return {kind.name: kind for kind in map(_kind_in, sorted(_modules()))}


def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(kinds.__path__)]


def _kind_in(module_name: str) -> OperatorKind:
    """Return the kind that a module defines; a kind that is a word of Python has an underscore behind its file's name.

    Raises InternalError unless the module defines a kind, named for it.
    """
    module = import_module(f"{kinds.__name__}.{module_name}")
    kind = getattr(module, "KIND", None)
    if not isinstance(kind, OperatorKind) or kind.name != module_name.rstrip("_"):
        raise InternalError(f"{module.__name__} must define KIND, an OperatorKind named for the module")
    return kind


def kind_named(name: str) -> OperatorKind:
    """Return a kind; one that is not known here, as a workload from outside may have, has no meaning and no traits."""
    return operator_kinds().get(name) or OperatorKind(name=name)


def keeps_by_key(vertex: VertexPlan) -> bool:
    """Return whether an operator of a vertex keeps keyed state."""
    return any(kind_named(operator.kind).keeps_by_key for operator in vertex.operators)


def alike(name: str) -> tuple[OperatorKind, ...]:
    """Return the kinds that may stand for one: they emit the same."""
    return tuple(kind for kind in operator_kinds().values() if name in kind.stands_for)


@lru_cache(maxsize=len(Place))
def drawn_at(place: Place) -> tuple[OperatorKind, ...]:
    """Return the kinds that are drawn at a place, the simplest first."""
    found = [
        (kind.drawn.rank, kind.name, kind)
        for kind in operator_kinds().values()
        if kind.drawn is not None and kind.drawn.place is place
    ]
    return tuple(kind for *_, kind in sorted(found, key=lambda entry: entry[:2]))
