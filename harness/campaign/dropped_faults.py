"""Counts the drawn faults that were dropped because their moment never came, and says when there are too many.

One in a hundred is an unlucky draw; more means that the system does not pass the points that it shows. What may be
dropped from a trial depends on the trials before it, so there is one count for a whole campaign.
"""

from __future__ import annotations

DROPPED_ONE_IN = 100
"""For each this many drawn faults that fired, one may be dropped because its moment never came."""
DROPPED_ANYWAY = 3
"""This many may be dropped in any campaign: bad luck may come first. A plan rarely has more faults."""


class DroppedFaults:
    """The count of a campaign."""

    def __init__(self) -> None:
        self._dropped = 0

    def add(self, faults: int) -> None:
        """Count faults of a trial, whether they were dropped or only could have been."""
        self._dropped += faults

    def allowed(self, faults_fired: int) -> bool:
        """Return whether as many may be dropped in a campaign in which so many fired."""
        return self._dropped <= max(DROPPED_ANYWAY, faults_fired // DROPPED_ONE_IN)
