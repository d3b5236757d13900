"""Puts instruments around the parts of a job: what observes them, or slows them down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barrier_tck.reference_impl.runtime.components import Components


def with_instruments(components: Components, **instruments: Any) -> Components:
    """Return the components with some instruments exchanged; the keywords are fields of ``Instruments``."""
    return replace(components, instruments=replace(components.instruments, **instruments))
