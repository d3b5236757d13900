"""Outages of the service that holds the checkpoints: which kinds of faults they are."""

from __future__ import annotations

from barrier_tck.harness.draw.profile import Profile

OUTAGES = ("cut-object-store", "throttle-object-store")
"""The kinds of faults that keep the service from answering anything, from their trigger on."""


def has_outages(profile: Profile) -> bool:
    """Return whether plans of a profile may suffer an outage."""
    return any(weight for name, weight in profile.faults.kinds if name in OUTAGES)
