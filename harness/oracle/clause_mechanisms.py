"""What a system must declare so that a clause can be said to hold: the mechanism that it is about, or that its
checkpoints can be opened.

A checker that compares whole states can see many clauses broken. But a system without barriers keeps no promise about
barriers, whatever its states look like, and of checkpoints that cannot be opened nothing is seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barrier_tck.harness.system.system_under_test import Capability

_OF_GROUPS: Mapping[str, tuple[Capability, ...]] = {
    "BAR": (Capability.BARRIERS,),
    "UNA": (Capability.UNALIGNED_CHECKPOINTS,),
    "CHL": (Capability.CHANDY_LAMPORT, Capability.LOOPS),
    "SNP": (Capability.SNAPSHOT_INSPECTION,),
    "STA": (Capability.SNAPSHOT_INSPECTION,),
    "COO": (Capability.CHECKPOINTS,),
    "LOC": (Capability.LOCAL_RECOVERY,),
    "RSC": (Capability.RESCALING, Capability.ELASTIC),
}
"""The letters of a clause -> capabilities, one of which a system must declare."""
_OF_CLAUSES: Mapping[str, tuple[Capability, ...]] = {
    "ALN-1": (Capability.BARRIERS,),
    "ALN-2": (Capability.SNAPSHOT_INSPECTION,),
    "ALN-3": (Capability.BARRIERS,),
    "ALO-1": (Capability.BARRIERS,),
    "CHL-2": (Capability.CHANDY_LAMPORT, Capability.LOOPS, Capability.UNALIGNED_CHECKPOINTS),
    "COO-1": (Capability.BARRIERS,),
    "BAR-2": (Capability.FIFO_CHANNELS, Capability.BARRIERS),
}
"""The same for single clauses."""


def mechanism_of(clause: str) -> tuple[Capability, ...]:
    """Return the capabilities of which a system must declare one for a clause to be claimed; none: it always is."""
    return _OF_CLAUSES.get(clause, _OF_GROUPS.get(clause.partition("-")[0], ()))


def lacks_mechanism(clause: str, declared: Collection[str]) -> bool:
    """Return whether a clause is not claimed of a system; ``declared`` are the names of its capabilities."""
    needed = mechanism_of(clause)
    return bool(needed) and not any(each.name in declared for each in needed)
