"""Code that data names runs only if the command line names it too.

A plan, a record or a run directory may come from an untrusted source, and each of them can name a system, a state
backend, a checkpoint storage or a workload as ``package.module:Factory``. Importing such a module runs it. So a command
that reads such data demands that the command line has the same name, or ``--trust``, which allows all of it to run. A
campaign file is different: its user wrote or chose it, like a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.catalogue import digest_of
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import is_target, shown

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.system.system_under_test import SystemUnderTest

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run whatever code the files name. Without it, a system, state backend, checkpoint storage or workload "
        "that is named package.module:Factory runs only if an option names it too.",
    ),
]


@dataclass(frozen=True, slots=True)
class UntrustedCode:
    """Code from outside the project that a file names."""

    what: str
    """``system``, ``state backend``, ``checkpoint storage``, ``workload`` or ``patch``. The option that names it is
    this text, with dashes between its words."""
    target: str
    """``package.module:Factory``; of a patch, which plans carry themselves, the digest."""

    @property
    def named(self) -> str:
        """Return what follows the option: the target, or the file that holds a patch."""
        return "FILE" if self.what == "patch" else self.target

    @property
    def option(self) -> str:
        """Return the option that names it on a command line."""
        return f"--{self.what.replace(' ', '-')}"


def code_of(plan: TrialPlan, system: str = "") -> Iterator[UntrustedCode]:
    """Yield the code from outside that a plan names, and the system that it is to run on if that is from outside."""
    named = (
        ("system", system),
        ("state backend", plan.state_backend),
        ("checkpoint storage", plan.checkpoints.storage),
        ("workload", plan.workload.name),
    )
    yield from (UntrustedCode(what, target) for what, target in named if is_target(target))
    if plan.patch is not None:
        yield UntrustedCode("patch", digest_of(plan.patch))


def code_of_campaign(configuration: CampaignConfiguration) -> Iterator[UntrustedCode]:
    """Yield the code from outside that a campaign names, wherever it names it."""
    mix = configuration.mix
    backends = [configuration.state_backend, *(trial.state_backend for trial in configuration.trial)]
    kept = [configuration.checkpoints, *(trial.checkpoints for trial in configuration.trial)]
    storages = [str(section.get("storage", "")) for section in kept]
    sections = [configuration.workload, *(trial.workload for trial in configuration.trial)]
    workloads = [str(section.get("name", "")) for section in sections]
    if mix is not None:
        backends += mix.state_backend
        workloads += mix.workload
    named = [("system", configuration.system.name)]
    named += [("state backend", name) for name in backends] + [("workload", name) for name in workloads]
    named += [("checkpoint storage", name) for name in storages]
    yield from (UntrustedCode(what, target) for what, target in dict.fromkeys(named) if is_target(target))


def code_of_profiles(system: SystemUnderTest) -> Iterator[UntrustedCode]:
    """Yield the workloads that the profiles of a system name: whoever runs the system draws plans with them."""
    from barrier_tck.harness.draw.plug_in_profiles import profiles_of

    names = dict.fromkeys(name for profile in profiles_of(system) for name in profile.workload.names)
    yield from (UntrustedCode("workload", name) for name in names if is_target(name))


def require_named(found: Iterable[UntrustedCode], given: Iterable[UntrustedCode] | None, source: str) -> None:
    """Raise UsageProblem for the first code that a file names and the command line does not.

    ``given`` is None if the command has no options that name code.
    """
    allowed = tuple(given or ())
    for code in found:
        if code not in allowed:
            naming = f"name it too: {code.option} {code.named} (or --trust, for all that the file names)"
            raise UsageProblem(
                f"{source} names code that would run: the {code.what} {shown(code.target)}. If you trust it, "
                f"{'give --trust' if given is None else naming}"
            )
