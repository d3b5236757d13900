"""``relay``: passes rows on as they are."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.stateless import Map

KIND = ReferenceKind(lambda site: Map(site.operator.name, dict))
