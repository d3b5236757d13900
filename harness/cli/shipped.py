"""Files that come with the package: campaign files, examples, and skeletons of what people bring."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest

_CAMPAIGN = "barrier-tck campaign {file}"


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A file to start from, which runs unchanged."""

    resource: Traversable
    file: str
    """The default name of the file; that of a module is its name, too."""
    description: str
    use: str
    """The command that uses it, with ``{file}``, ``{module}`` and ``{campaign}``."""
    campaign: Traversable | None = None
    """The campaign file that is written beside it, if it needs one."""

    def text(self) -> str:
        """Return the content of the file."""
        return self.resource.read_text(encoding="utf-8")

    def text_of_campaign(self, file: Path, module: str) -> str:
        """Return the content of the campaign file."""
        assert self.campaign is not None
        text = self.campaign.read_text(encoding="utf-8")
        return text.replace("{file}", file.name).replace("{module}", module)


def _resource(name: str) -> Traversable:
    return resources.files(__package__) / "skeletons" / name


SKELETONS = {
    "campaign": Skeleton(
        _resource("campaign.toml"),
        "campaign.toml",
        "a campaign file with every common key",
        _CAMPAIGN,
    ),
    "system": Skeleton(
        _resource("my_system.py.txt"),
        "my_system.py",
        "a system under test with a workload of its own, and a kill that it survives",
        "barrier-tck campaign --system {module}:MySystem --trials 50",
    ),
    "backend": Skeleton(
        _resource("my_backend.py.txt"),
        "my_backend.py",
        "a complete state backend",
        "barrier-tck certify {module}:MyBackend --level contract",
    ),
    "query": Skeleton(
        _resource("my_query.py.txt"),
        "my_query.py",
        "a query of Structured Streaming with its sink",
        "barrier-tck campaign --query {module}:job --trials 20",
    ),
    "workload": Skeleton(
        _resource("my_workload.py.txt"),
        "my_workload.py",
        "a workload: input, job graph and meaning, with a campaign file",
        "barrier-tck campaign {campaign}",
        _resource("my_workload.toml"),
    ),
    "storage": Skeleton(
        _resource("my_storage.py.txt"),
        "my_storage.py",
        "a checkpoint storage in a directory",
        "barrier-tck certify-storage {module}:my_storage --no-strength",
    ),
    "ci": Skeleton(
        _resource("ci.yml"),
        ".github/workflows/barrier-tck.yml",
        "a workflow for GitHub Actions, for the query that init query writes",
        "git add {file}",
    ),
}
"""Name on the command line -> skeleton."""


@dataclass(frozen=True, slots=True)
class ShippedCampaign:
    """A campaign file that comes with the package."""

    name: str
    file: Traversable

    @property
    def text(self) -> str:
        """Return the content of the file."""
        return self.file.read_text(encoding="utf-8")

    def as_skeleton(self) -> Skeleton:
        """Return it as a file to start from."""
        return Skeleton(self.file, f"{self.name}.toml", self.description, _CAMPAIGN)

    @property
    def system(self) -> str:
        """Return the system that it runs on."""
        return str(tomllib.loads(self.text)["system"])

    @property
    def description(self) -> str:
        """Return the first sentence of the comments in the file, which is that of its head."""
        head = [line.removeprefix("#").strip() for line in self.text.splitlines() if line.startswith("#")]
        return " ".join(head).partition(". ")[0].removesuffix(".")


EXAMPLES = "the systems, backends and jobs that the guide shows, in a folder"
"""What ``init examples`` writes."""


def shipped_examples() -> dict[Path, str]:
    """Return the content of each file of the examples, by its path in their folder."""

    def below(folder: Traversable, path: Path) -> Iterator[tuple[Path, str]]:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                yield from below(entry, path / entry.name)
            elif entry.name.endswith((".py", ".toml", ".md")):
                yield path / entry.name, entry.read_text(encoding="utf-8")

    return dict(below(resources.files("barrier_tck") / "examples", Path()))


def _directory() -> Traversable:
    return resources.files("barrier_tck") / "campaigns"


def shipped_campaigns() -> dict[str, ShippedCampaign]:
    """Return the campaign files, by name."""
    files = sorted(
        (file for file in _directory().iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return {name: ShippedCampaign(name, file) for file in files for name in [file.name.removesuffix(".toml")]}


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
