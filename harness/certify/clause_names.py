"""The clauses that the state SPI shows, by what they say; and which of them a step that raises breaks."""

from __future__ import annotations

from barrier_tck.harness.certify import session_steps as steps

READS = "BCK-1"
"""Reads in every form give what was written last; what differs stays apart."""
RESTORED = "BCK-2"
"""A restored store holds exactly what the snapshots held."""
WHOLE = "BCK-3"
"""A snapshot is whole or fails, and the store goes on."""
REFUSED = "BCK-4"
"""What is no snapshot is refused."""
KEPT = "BCK-5"
"""Nothing is kept for snapshots that ended, nor after the end."""
DECLARED = "BCK-6"
"""What is declared holds."""
ISOLATED = "SNP-1"
"""Later changes never show in a snapshot."""
CANCELLED = "SNP-2"
"""A cancelled snapshot stops and leaves nothing."""

_SNAPSHOTS = (
    steps.Snapshot,
    steps.Run,
    steps.Start,
    steps.Finish,
    steps.Confirm,
    steps.AbortSnapshot,
    steps.Unseen,
)
_RESTORES = (steps.Verify, steps.Rescale, steps.Restart, steps.Layout)
_HELD = (steps.Crowd, steps.Steady, steps.Resources)


def of_step(step: steps.AnyStep | None) -> str:
    """Return the clause that is broken where a step raises what it must not; None: opening or closing stores."""
    if isinstance(step, _SNAPSHOTS):
        return WHOLE
    if isinstance(step, steps.Race):
        return ISOLATED
    if isinstance(step, steps.Cancel):
        return CANCELLED
    if step is None or isinstance(step, _RESTORES):
        return RESTORED
    if isinstance(step, steps.Damaged):
        return REFUSED
    if isinstance(step, steps.Promise):
        return DECLARED
    return KEPT if isinstance(step, _HELD) else READS
