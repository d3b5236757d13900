"""``sink``: files that become visible in transactions."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.sinks import FileSink

OUTPUT = "output"
"""Directory of the committed output, below the trial's file system root."""

KIND = ReferenceKind(lambda site: FileSink(OUTPUT, uid=site.operator.name))
