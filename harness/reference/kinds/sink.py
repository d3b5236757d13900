"""``sink``: files that become visible in transactions."""

from __future__ import annotations

from dataclasses import replace

from barrier_tck.harness.reference.operator_kind import ReferenceKind, Site
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.sinks import FileSink

OUTPUT = "output"
"""Directory of the committed output, below the trial's file system root."""


def _make(site: Site) -> OperatorSpec:
    gathered = site.deployment.sink_buffer_records
    sink = FileSink(OUTPUT, uid=site.operator.name)
    return sink if gathered is None else replace(sink, buffer_records=gathered)


KIND = ReferenceKind(_make)
