"""The weighted choices for a campaign's drawn trials: the sections ``[mix]`` and ``[faults]`` of a campaign file.

Each table gives names with weights. Names are drawn without replacement, round by round: in a round, every name occurs
as often as its weight says, and the next round is shuffled anew. So even a campaign of a dozen trials keeps to the
weights, and no name can be missing by bad luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from random import Random
from typing import Annotated, TypeVar

import msgspec

from barrier_tck.faults.catalogue import KINDS, PACKAGES, FaultKind
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.notes import MIXED
from barrier_tck.harness.plan.trial_plan import OVERTAKING, CheckpointingMode, TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.workloads.workload_names import workload_names

WEIGHT_MAX = 1_000
FAULTS_MAX = 100
"""The most faults of a drawn trial."""

Weights = dict[str, Annotated[int, msgspec.Meta(ge=0, le=WEIGHT_MAX)]]
"""Name -> weight, 0 or more; at least one must be above 0."""

_Faults = Annotated[int, msgspec.Meta(ge=0, le=FAULTS_MAX)]
_Choice = TypeVar("_Choice")

LOCAL_RECOVERY = {"on": True, "off": False}
MODES: tuple[CheckpointingMode, ...] = ("exactly_once", "at_least_once", *OVERTAKING)


class MixSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[mix]``: for every drawn trial, one weighted choice from each table; an empty table changes nothing."""

    workload: Weights = {}
    mode: Weights = {}
    state_backend: Weights = {}
    local_recovery: Weights = {}
    """``on`` and ``off``."""


class FaultsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[faults]``: how many faults a drawn trial has, and of which packages."""

    per_trial: tuple[_Faults, _Faults] = (1, 2)
    """The smallest and the largest number, both included; all numbers are equally likely."""
    packages: Weights = {}
    """Packages of ``barrier_tck.faults.catalogue``; if empty, kinds by the weights of the profile."""
    kinds: Weights = {}
    """Single kinds instead of packages."""


@dataclass(frozen=True, slots=True)
class TrialMix:
    """What the mix chose for one drawn trial; None leaves the choice to the profile, or to the campaign's own value."""

    workload: str | None = None
    mode: CheckpointingMode | None = None
    state_backend: str | None = None
    local_recovery: str | None = None
    kinds: tuple[str, ...] | None = None
    """The kind of each fault, in order."""

    @property
    def note(self) -> str:
        """Return what was chosen as a phrase for the plan, for instance ``drawn: rocksdb; delay, executor``."""
        local = None if self.local_recovery is None else f"local recovery {self.local_recovery}"
        choices = [name for name in (self.workload, self.mode, self.state_backend, local) if name is not None]
        kinds = [] if self.kinds is None else [", ".join(self.kinds) or "no faults"]
        parts = [part for part in (", ".join(choices), *kinds) if part]
        return f"{MIXED}{'; '.join(parts)}" if parts else ""

    def profile(self, profile: Profile) -> Profile:
        """Return the profile from which this trial is drawn.

        A trial in at-least-once mode has several sources, one slow channel and many recoveries, as in the profile
        ``at-least-once``. Without these no record would count twice, and the mode would not be tested. A trial whose
        barriers overtake has a slow channel, and every second one a slow vertex, so that there are records to overtake.
        """
        if self.mode is None:
            return profile
        checkpoints = replace(profile.checkpoints, modes=(self.mode,))
        if self.mode == "exactly_once":
            return replace(profile, checkpoints=checkpoints)
        network = replace(profile.network, slow_channel_per_mille=1_000)
        if self.mode in OVERTAKING:
            return replace(profile, checkpoints=checkpoints, network=network).with_shares(slow_vertex=290)
        sources, batches = profile.job.sources, profile.workload.batches
        return replace(
            profile,
            checkpoints=checkpoints,
            job=replace(profile.job, sources=(max(2, sources[0]), max(2, sources[1]))),
            workload=replace(profile.workload, batches=(max(4, batches[0]), max(16, batches[1]))),
            network=replace(network, slow_channel_into_keyed=True),
            faults=replace(profile.faults, restore_per_mille=815),
        ).with_shares(tiny_inputs=0)

    def adjusted(self, plan: TrialPlan) -> TrialPlan:
        """Return a drawn plan with what was chosen."""
        if self.workload is not None:
            workload = msgspec.structs.replace(plan.workload, name=self.workload)
            plan = msgspec.structs.replace(plan, workload=workload)
        if self.state_backend is not None:
            plan = msgspec.structs.replace(plan, state_backend=self.state_backend)
        if self.local_recovery is not None:
            plan = msgspec.structs.replace(plan, local_recovery=LOCAL_RECOVERY[self.local_recovery])
        return msgspec.structs.replace(plan, note=self.note)


def draw_mix(
    mix: MixSection, faults: FaultsSection | None, seed: int, exposed: Iterable[str] | None = None
) -> Iterator[TrialMix]:
    """Yield choices without end; the same arguments give the same ones.

    ``exposed`` are the kinds of target that the system has (None: all); only kinds of a package that the system can
    suffer are chosen.
    """
    tables = ("workload", "mode", "state_backend", "local_recovery")
    workloads, modes, backends, local = (_weighted(getattr(mix, name), seed, name) for name in tables)
    for kinds in _weighted_kinds(faults, seed, exposed):
        named = next(modes)
        mode = next((known for known in MODES if known == named), None)
        yield TrialMix(next(workloads), mode, next(backends), next(local), kinds)


def _weighted_kinds(
    faults: FaultsSection | None, seed: int, exposed: Iterable[str] | None
) -> Iterator[tuple[str, ...] | None]:
    if faults is None or not (faults.packages or faults.kinds):
        while True:
            yield None
    known = None if exposed is None else tuple(exposed)
    lowest, highest = faults.per_trial
    counts = _shuffled_rounds(dict.fromkeys(range(lowest, highest + 1), 1), Random(f"{seed}/mix/per_trial"))
    singles = _kinds_of(faults, seed, known)
    while True:
        yield tuple(next(singles) for _ in range(next(counts)))


def _kinds_of(faults: FaultsSection, seed: int, exposed: tuple[str, ...] | None) -> Iterator[str]:
    """Yield kinds without end: listed kinds, or the kinds of each chosen package in turn."""
    if faults.kinds:
        yield from _shuffled_rounds(faults.kinds, Random(f"{seed}/mix/kinds"))
    within = {
        package: _shuffled_rounds(
            dict.fromkeys((kind.name for kind in kinds if _is_exposed(kind, exposed)), 1),
            Random(f"{seed}/mix/packages/{package}"),
        )
        for package, kinds in PACKAGES.items()
    }
    for name in _shuffled_rounds(faults.packages, Random(f"{seed}/mix/packages")):
        yield next(within[name])


def _is_exposed(kind: FaultKind, exposed: tuple[str, ...] | None) -> bool:
    return exposed is None or kind.fault.needs in exposed


def _weighted(weights: Weights, seed: int, name: str) -> Iterator[str | None]:
    if not weights:
        while True:
            yield None
    yield from _shuffled_rounds(weights, Random(f"{seed}/mix/{name}"))


def _shuffled_rounds(weights: Mapping[_Choice, int], random: Random) -> Iterator[_Choice]:
    """Yield the names of one shuffled round after another."""
    divisor = gcd(*weights.values())
    round_ = [name for name, weight in weights.items() for _ in range(weight // divisor)]
    while round_:
        yield from random.sample(round_, len(round_))


# --- checks -------------------------------------------------------------------------------------------------


def check_mix(mix: MixSection) -> None:
    """Raise UsageProblem for the first name that does not exist, or for an impossible weight.

    Names of state backends are checked elsewhere, because they may have to be imported.
    """
    _check_weights(mix.workload, workload_names(), "mix.workload")
    _check_weights(mix.mode, MODES, "mix.mode")
    _check_weights(mix.state_backend, None, "mix.state_backend")
    _check_weights(mix.local_recovery, LOCAL_RECOVERY, "mix.local_recovery")


def check_faults(faults: FaultsSection) -> None:
    """Raise UsageProblem for the first name that does not exist, or for an impossible number."""
    fewest, most = faults.per_trial
    if not 0 <= fewest <= most:
        raise UsageProblem(
            f"faults.per_trial is [{fewest}, {most}]; write the fewest and the most, for instance [1, 2]"
        )
    if faults.packages and faults.kinds:
        raise UsageProblem("faults.packages and faults.kinds are both given; keep one of the two")
    _check_weights(faults.packages, PACKAGES, "faults.packages")
    _check_weights(faults.kinds, list(KINDS), "faults.kinds")


def check_exposed(faults: FaultsSection, exposed: Iterable[str], system: str) -> None:
    """Raise UsageProblem if a package or kind has a weight but the system cannot suffer any of its faults."""
    known = tuple(exposed)
    for package, kinds in PACKAGES.items():
        if faults.packages.get(package) and not any(_is_exposed(kind, known) for kind in kinds):
            needs = " or ".join(dict.fromkeys(kind.fault.needs for kind in kinds))
            raise UsageProblem(
                f"faults.packages.{package}: {system} cannot suffer it (needs a target: {needs}); "
                "remove it, or choose another system"
            )
    for name, weight in faults.kinds.items():
        if weight and not _is_exposed(KINDS[name], known):
            raise UsageProblem(
                f"faults.kinds.{name}: {system} cannot suffer it (needs a target: {KINDS[name].fault.needs}); "
                "remove it, or choose another system"
            )


def _check_weights(weights: Weights, known: Iterable[str] | None, path: str) -> None:
    names = None if known is None else list(known)
    for name in weights:
        if names is not None and name not in names:
            raise UsageProblem(f"unknown key '{path}.{name}'{nearest(name, names)}")
    if weights and not any(weights.values()):
        raise UsageProblem(f"every weight of {path} is 0; leave one above 0, or remove the table")
