"""The error families of the harness. The family says who has to act.

* `UsageError`: the caller's input or machine; the message says what to change (exit code 3).
* `SystemBroke`: the system under test broke a rule of its own while a trial ran; the trial is INVALID (exit code 1).
* `OperatingError`: the world failed while a trial ran; the trial is UNKNOWN (exit code 2).
* `NondeterminismError`: a rerun of the same plan differed (exit code 2).
* `InternalError`: a bug of this project (exit code 4).

Exit code 0 (valid) and 1 (a property is violated) are verdicts, not errors.
"""

from __future__ import annotations

from typing import ClassVar


class HarnessError(Exception):
    """Base of all errors that the harness raises on purpose."""

    #: What the `barrier-tck` command exits with when this error ends it.
    exit_code: ClassVar[int] = 4


class UsageError(HarnessError):
    """The input or the machine does not allow what was asked; the message says what to change."""

    exit_code: ClassVar[int] = 3


class UsageProblem(UsageError):
    """A plan, a campaign file, an option or a run directory is wrong; the message names the key or the path."""


class NotJudgeable(UsageError):
    """The system under test cannot be judged as it is described, for instance a query that is not deterministic.

    The message says why, and what to say instead. It is raised before any fault strikes.
    """


class EnvironmentProblem(UsageError):
    """Something that the harness needs on this machine is missing, too old or already in use."""


class JavaMissing(EnvironmentProblem):
    """No Java was found, or the one found does not run."""


class JavaTooOld(EnvironmentProblem):
    """The Java found is older than Spark needs."""


class PortInUse(EnvironmentProblem):
    """The requested port is in use by another process."""


class AddressUnavailable(EnvironmentProblem):
    """A loopback address that the cluster needs cannot be bound."""


class ClusterDidNotStart(EnvironmentProblem):
    """A master or worker ended or stayed silent during start-up; the message holds the end of its log."""


class SystemBroke(HarnessError):
    """The system under test met what it holds to be impossible, and gave up; adapters raise this in ``run``.

    A user of such a system has a job that ended without having failed, so the trial is INVALID (REC-6).
    """

    exit_code: ClassVar[int] = 1


class SystemCrashed(SystemBroke):
    """A process of the system under test, or the whole of it, died of an exception of its own.

    The message says which process, what was raised, and where. An exception that the harness raised is none of these.
    """


class OperatingError(HarnessError):
    """The environment failed during a trial; nothing can be said about the system under test."""

    exit_code: ClassVar[int] = 2


class OutcomeRefused(OperatingError):
    """An adapter reported what cannot be, for instance a negative duration; the message names the field."""


class NondeterminismError(HarnessError):
    """The same plan did not do the same thing twice."""

    exit_code: ClassVar[int] = 2


class InternalError(HarnessError):
    """A bug in this project; please report it with the message."""


class LeftBehind(InternalError):
    """Stopping a cluster left processes or files; the message lists them."""
