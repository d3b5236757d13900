"""What a campaign's configuration says, as lines for people: only what differs from the defaults, and no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.campaign.mix import FaultsSection, MixSection
    from barrier_tck.harness.draw.profile import Profile

_SHOWN_ELSEWHERE = ("name", "seed", "system", "trial", "trials", "budget", "mix", "faults", "cluster")
_MIXES = {
    "workload": "workloads",
    "mode": "checkpoint modes",
    "state_backend": "state backends",
    "local_recovery": "local recovery",
}
"""Table of ``[mix]`` -> what it mixes."""


def settings_of(configuration: CampaignConfiguration) -> dict[str, str]:
    """Return the names and values of all that the campaign sets, in the order of its file."""
    values, usual = msgspec.to_builtins(configuration), msgspec.to_builtins(type(configuration)())
    shown = {
        in_plain_text(name): in_plain_text(value)
        for name, value in values.items()
        if name not in _SHOWN_ELSEWHERE and value != usual[name]
    }
    if configuration.cluster is not None:
        cluster, plain = msgspec.to_builtins(configuration.cluster), type(configuration.cluster)()
        rest = {name: value for name, value in cluster.items() if value != getattr(plain, name)}
        rest.pop("name", None)
        sizes = [f"{value} {in_plain_text(name)}" for name, value in rest.items()]
        shown["cluster"] = ", ".join([configuration.cluster.name.value, *sizes])
    if configuration.mix is not None:
        shown |= _mixed(configuration.mix)
    if configuration.faults is not None:
        shown |= _faults(configuration.faults)
    return shown


def profile_line(profile: Profile, configuration: CampaignConfiguration) -> str:
    """Return the profile with its description, which may speak of another number of faults than the file gives."""
    line = f"{profile.name}: {profile.description}"
    if configuration.faults is None:
        return line
    return f"{line.removesuffix('.')}; but with the faults per trial that the campaign sets."


def in_plain_text(value: Any) -> str:
    """Return a value of a campaign file as people write it: names with their values, and lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{in_plain_text(name)} {_inside(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        separator = "; " if any(isinstance(part, dict) for part in value) else ", "
        return separator.join(map(in_plain_text, value))
    if value is None:
        return "none"
    return value.replace("_", " ") if isinstance(value, str) and value.isidentifier() else str(value)


def _inside(part: Any) -> str:
    """Return a value that stands beside others; one of several parts is in parentheses."""
    return f"({in_plain_text(part)})" if isinstance(part, dict | list | tuple) else in_plain_text(part)


def _mixed(mix: MixSection) -> dict[str, str]:
    return {
        f"mix of {what}": in_plain_text(weights)
        for table, what in _MIXES.items()
        if (weights := getattr(mix, table))
    }


def _faults(faults: FaultsSection) -> dict[str, str]:
    least, most = faults.per_trial
    return {
        "faults per trial": f"{least}" if least == most else f"{least} to {most}",
        **({"packages of faults": in_plain_text(faults.packages)} if faults.packages else {}),
        **({"kinds of faults": in_plain_text(faults.kinds)} if faults.kinds else {}),
    }
