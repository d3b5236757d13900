"""Which cells of the matrix of phases and faults a campaign hit, counted trial by trial, without keeping any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barrier_tck.faults.vocabulary import PHASE_OF_POINT, ProtocolPoint
from barrier_tck.harness.record.records import CampaignRecord, FaultRecord, TrialSummary


@dataclass(frozen=True, slots=True)
class HitCells:
    """The cells of a campaign, each a phase of the protocol and a kind of fault."""

    hit: tuple[tuple[str, str], ...]
    """In which at least one fault fired, in order."""
    possible: int
    """How many the system can reach."""


def phase_of(fault: FaultRecord) -> str | None:
    """Return the phase of a fault; if its record names none, that of the point it was aimed at."""
    if fault.phase is not None:
        return fault.phase
    known = [point for point in ProtocolPoint if point.value == fault.point]
    return PHASE_OF_POINT[known[0]].value if known else None


def hit_cells(campaign: CampaignRecord, trials: Iterable[TrialSummary]) -> HitCells:
    """Return the cells that the trials of a campaign hit."""
    hit: dict[tuple[str, str], None] = {}
    for trial in trials:
        for fault in trial.faults:
            phase = phase_of(fault) if fault.outcome == "fired" else None
            if phase is not None:
                hit[phase, fault.kind] = None
    declared = [(phase, kind) for phase in campaign.fault_phases for kind in campaign.fault_kinds]
    return HitCells(tuple(sorted(hit)), len(dict.fromkeys((*declared, *hit))))
