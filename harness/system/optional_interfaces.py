"""What a system may add to ``SystemUnderTest``: each protocol is one more thing that it can do or say about itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from barrier_tck.harness.cluster.cluster_config import ClusterConfig
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.system_under_test import SystemUnderTest


@runtime_checkable
class StartsSlowly(Protocol):
    """A system that starts something costly before its first trial, for instance a cluster."""

    def prepare(self) -> None:
        """Start it now; raises EnvironmentProblem if this machine cannot run it.

        Called after everything that was asked for is checked, and before anything is written.
        """


@runtime_checkable
class HasCluster(Protocol):
    """A system that starts its own cluster; the section ``[cluster]`` of a campaign file says which, and its shape."""

    def use_cluster(self, config: ClusterConfig) -> None:
        """Use another cluster, before anything is started; ``harness.cluster.cluster_choice`` makes it."""


@runtime_checkable
class KeepsLogs(Protocol):
    """A system whose processes write logs, which are kept with every trial that was not valid."""

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs so far into a directory, which need not exist; raises OSError if they cannot be written."""


@runtime_checkable
class UsesFieldsOfPlans(Protocol):
    """A system that ignores some fields of a plan.

    The fields that it does not use are never drawn, and are refused if they are set.
    """

    @property
    def uses(self) -> Collection[str]:
        """Return the fields of a plan that it uses, for instance ``restart`` or ``checkpoints.interval_ms``.

        The input (``workload`` but for its rate and start offset), faults and ``system`` are always used.
        """


@runtime_checkable
class ProvidesOwnJob(Protocol):
    """A system that runs a job of its user's: of a workload it takes the input alone.

    No model of a workload then says what the output should be. The system brings the checker that does.
    """

    @property
    def output_judge(self) -> str:
        """Return the name of that checker."""


@runtime_checkable
class HasWordsForFaults(Protocol):
    """A system whose users have other words for its parts than plans have, which must fit any system."""

    def in_own_words(self, fault: FaultRecord) -> FaultRecord:
        """Return what became of a fault, with ``label`` and ``trigger`` in the words of its users."""


@runtime_checkable
class TakesSettings(Protocol):
    """A system with its own settings: the free table ``system`` of a plan, ``[system]`` in a campaign file."""

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError, with a sentence that names the key, if it does not understand the settings.

        Called for every plan before it runs, even if the table is empty.
        """


@runtime_checkable
class TracesMessages(Protocol):
    """A system that can log what passes its channels around barriers, but does so only if it is asked."""

    def tracing_messages(self) -> SystemUnderTest:
        """Return a system like this one, whose outcomes hold these notes; trials take the same steps with it."""


@runtime_checkable
class ShowsCoverage(Protocol):
    """A system that can name what its protocol came through, but does so only if it is asked, because it takes time."""

    def showing_coverage(self) -> SystemUnderTest:
        """Return a system like this one, whose outcomes have names in ``reached``; trials take the same steps with it.

        Guided drawing looks for plans whose trials reach names that few others reached.
        """


@runtime_checkable
class CanBeBroken(Protocol):
    """A system whose recovery can be broken on purpose, so that a campaign can show that its VALID is not vacuous."""

    def broken(self, plan: TrialPlan, how: BrokenRecovery) -> TrialPlan | None:
        """Return a plan like this one, with which the system breaks its recovery in this way; None if it cannot.

        For instance with a setting in ``system`` that only the system knows. The plan is used for controls alone.
        """
