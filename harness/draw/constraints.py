"""For what plans are drawn, and what every step of drawing one plan needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import at_narrowest, widths_of_sources
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.system.job_view import JobView, ViewOf
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.barrier_jobs import barrier_view, reading_at_every_width
from barrier_tck.harness.workloads.workload_names import filled

Adjust = Callable[[TrialPlan], TrialPlan]
"""Changes a plan."""
Takes = Callable[[Mapping[str, Any]], bool]
"""Whether a system takes these settings."""


def _as_it_is(plan: TrialPlan) -> TrialPlan:
    return plan


def _any_settings(_: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Constraints:
    """For what plans are drawn: what a system can suffer, and what a campaign prescribes for every plan."""

    view: ViewOf = barrier_view
    """Returns the job that a system would run for a plan: the system's ``job``."""
    capabilities: frozenset[Capability] = frozenset(Capability)
    """What the system can do. Faults that it cannot suffer are not drawn."""
    adjust: Adjust = _as_it_is
    """Applies a campaign's overrides to a plan before its faults are drawn, so that their aims fit the new plan."""
    fit: Adjust = _as_it_is
    """Removes from a plan what the system does not use."""
    takes: Takes = _any_settings
    """Which settings the system takes. A profile may be drawn for another system than the one that it was made for."""

    def fitted(self, plan: TrialPlan) -> TrialPlan:
        """Return a plan as the campaign prescribes it and the system uses it."""
        return self.fit(self.adjust(plan))


ANYWHERE = Constraints()
"""A barrier-based system that can suffer everything, and no campaign."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a plan is drawn with: the source of choices, the ranges, and the constraints."""

    draw: st.DrawFn
    profile: Profile
    constraints: Constraints

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the system can do."""
        return self.constraints.capabilities

    def filled(self, plan: TrialPlan) -> FilledPlan:
        """Return the plan as the campaign and the system would have it, with its job filled in."""
        return filled(self.constraints.fitted(plan))

    def view(self, plan: TrialPlan) -> JobView:
        """Return the job as it starts."""
        return self.constraints.view(plan)

    def lasting(self, plan: TrialPlan) -> JobView:
        """Return the job with only those subtasks that are there until the end of the trial.

        They are sure to read only the batches that are assigned to them in every job of the trial.
        """
        view = self.constraints.view(at_narrowest(plan))
        return reading_at_every_width(view, plan, widths_of_sources(plan))
