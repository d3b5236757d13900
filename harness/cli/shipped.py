"""Files that come with the package: campaign files, and skeletons of a campaign, a system and a backend."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A file to start from, which runs unchanged."""

    resource: str
    file: str
    """The default name of the file, which is also the name of the module in it."""
    description: str
    use: str
    """The command that uses it, with ``{file}`` and ``{module}``."""

    def text(self) -> str:
        """Return the content of the file."""
        return (resources.files(__package__) / "skeletons" / self.resource).read_text(encoding="utf-8")


SKELETONS = {
    "campaign": Skeleton(
        "campaign.toml",
        "campaign.toml",
        "a campaign file with every common key",
        "barrier-tck campaign {file}",
    ),
    "system": Skeleton(
        "my_system.py.txt",
        "my_system.py",
        "a system under test with a workload of its own, and a kill that it survives",
        "barrier-tck campaign --system {module}:MySystem --trials 50",
    ),
    "backend": Skeleton(
        "my_backend.py.txt",
        "my_backend.py",
        "a complete state backend",
        "barrier-tck campaign --state-backend {module}:MyBackend --trials 50",
    ),
}
"""Name on the command line -> skeleton."""


@dataclass(frozen=True, slots=True)
class ShippedCampaign:
    """A campaign file that comes with the package."""

    name: str
    text: str

    @property
    def system(self) -> str:
        """Return the system that it runs on."""
        return str(tomllib.loads(self.text)["system"])

    @property
    def description(self) -> str:
        """Return the first sentence of the comments in the file, which is that of its head."""
        head = [line.removeprefix("#").strip() for line in self.text.splitlines() if line.startswith("#")]
        return " ".join(head).partition(". ")[0].removesuffix(".")


def _directory() -> Traversable:
    return resources.files("barrier_tck") / "campaigns"


def shipped_campaigns() -> dict[str, ShippedCampaign]:
    """Return the campaign files, by name."""
    files = sorted(
        (file for file in _directory().iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return {
        name: ShippedCampaign(name, file.read_text(encoding="utf-8"))
        for file in files
        for name in [file.name.removesuffix(".toml")]
    }


def found_campaign(given: Path) -> Path:
    """Return ``given``, or the shipped file of that name if no file ``given`` exists.

    Raises UsageProblem for a name, without a folder, that is neither.
    """
    if given.exists() or given.name != str(given):
        return given
    shipped = Path(str(_directory())) / f"{given}.toml"
    if not shipped.is_file():
        hint = nearest(given.stem, shipped_campaigns())
        raise UsageProblem(
            f"{given} does not exist, and no campaign file of that name comes with the package{hint}"
        )
    return shipped
