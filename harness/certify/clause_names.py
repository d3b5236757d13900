"""The clauses of the state SPI, and which of them is broken when a step raises."""

from __future__ import annotations

from barrier_tck.harness.certify import session_steps as steps

READS = "BCK-1"
"""Every form of read returns what was written last; different names, key groups and keys stay separate."""
RESTORED = "BCK-2"
"""A restored store holds exactly what the snapshots held."""
WHOLE = "BCK-3"
"""A snapshot is complete or fails, and the store remains usable."""
REFUSED = "BCK-4"
"""Files that are not a snapshot are refused."""
KEPT = "BCK-5"
"""Nothing is kept for snapshots that have ended, and nothing after close."""
DECLARED = "BCK-6"
"""Declared capabilities are true."""
ISOLATED = "SNP-1"
"""Later changes never appear in a snapshot."""
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
_RESTORES = (steps.Verify, steps.Rescale, steps.Redistribute, steps.Restart, steps.Layout)
_HELD = (steps.Crowd, steps.Steady, steps.Resources)


def of_step(step: steps.AnyStep | None) -> str:
    """Return the clause that is broken if this step raises something it must not; ``step`` is None while stores are
    opened or closed.
    """
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
