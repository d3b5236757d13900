"""The stages in which a plan is drawn. Who records the choices of a plan learns from them what a choice is about."""

from __future__ import annotations

from enum import StrEnum

from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData


class Stage(StrEnum):
    """What is drawn next."""

    SCENARIOS = "scenarios"
    SEED = "seed"
    """The seed of the simulator's latencies and choices."""
    SETTINGS = "settings"
    """Everything but the job, its network and its faults."""
    JOB = "job"
    LOAD = "load"
    """Key groups, network, and what decides how long checkpoints take."""
    LATER_JOBS = "later jobs"
    FAULTS = "faults"
    REST = "rest"


class _Begins(st.SearchStrategy[None]):
    """Draws nothing, and tells the source of choices, if it wants to know, which stage begins."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def do_draw(self, data: ConjectureData) -> None:
        begins = getattr(data.provider, "begins", None)
        if begins is not None:
            begins(self._stage)


_BEGINS = {stage: _Begins(stage) for stage in Stage}


def begins(draw: st.DrawFn, stage: Stage) -> None:
    """Say that a stage begins; for faults, that of each fault."""
    draw(_BEGINS[stage])
