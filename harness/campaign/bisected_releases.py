"""The released versions of a package between two, and how a plan is run with each of them.

pip says which there are and installs them, so whatever it is configured with holds: an index, a cache, certificates.
Each is installed into a temporary virtual environment that sees what is installed in this one, and has the release in
front of it (decision 0088).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import site
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from barrier_tck.harness.campaign.bisection import Outcome, PlanRuns, Tries, run_elsewhere
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.child_program import run_program
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.support.notices import notice
from barrier_tck.harness.support.third_party import shown
from barrier_tck.harness.support.work_directories import temporary_work_directory

OURS = "barrier-tck"
"""The package whose releases are tried if no other is named."""
_LISTED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
"""Every pip that can list versions prints this line; only those since 25.1 can print JSON."""
_BROKEN = re.compile(r"after connection broken by (.+)$", re.MULTILINE)
_FAILED = re.compile(r"^\s*error: (.+)$", re.MULTILINE | re.IGNORECASE)
_ADDRESS_IN_MEMORY = re.compile(r"<[^>]+>: ")
_NO_ERROR = ("WARNING:", "DEPRECATION:")
"""How the lines begin that pip writes whether or not anything is wrong."""
_ELSEWHERE = (
    "pip has installed it somewhere else than into the temporary environment; remove the setting that says so, for "
    "instance target, prefix or root, which pip config list shows"
)
_SHOWN_MAX = 12
"""How many versions a message lists."""
_UNSET = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN")
"""What would send an installation elsewhere, or let there be none."""
_SET = {"PIP_USER": "0", "PIP_QUIET": "0", "PIP_VERBOSE": "0"}
"""The same, and what would take away the line that is read; to be set, these win over a configuration file, too."""


@dataclass(frozen=True, slots=True)
class Release:
    """A released version of a package."""

    package: str
    version: Version

    @property
    def identifier(self) -> str:
        """The version."""
        return str(self.version)

    @property
    def kind(self) -> str:
        """What it is, as a noun."""
        return "release"

    def __str__(self) -> str:
        """Return package and version."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class ReleasePlace:
    """Where pip finds the releases; without either, where it is configured to look."""

    index: str | None = None
    """The URL of a package index, instead of the one that is configured."""
    folder: Path | None = None
    """A folder of wheels or source archives. Without an index, the releases are looked for there and nowhere else."""

    def options(self, *, only_here: bool) -> list[str]:
        """Return pip's options; ``only_here``: for the package itself, and not for what it depends on."""
        folder = [] if self.folder is None else ["--find-links", str(self.folder.absolute())]
        if self.index is not None:
            return ["--index-url", self.index, *folder]
        return [*folder, "--no-index"] if folder and only_here else folder


def releases_between(package: str, good: str, bad: str, place: ReleasePlace) -> tuple[Release, ...]:
    """Return the releases of a package from a good one to a bad one, in the order of their versions.

    Pre-releases are among them only if one of the two is a pre-release. Raises UsageProblem if there is no such package
    or release, or the good one is not the older one, and EnvironmentProblem if pip cannot say.
    """
    name = _name(package)
    first, last = (_version(text) for text in (good, bad))
    if place.index is not None and not _is_url(place.index):
        raise UsageProblem(
            f"--index is {shown(place.index)}, which is no URL of a package index; it begins with https://, http:// "
            "or file://"
        )
    if place.folder is not None and not place.folder.is_dir():
        raise UsageProblem(f"{place.folder} is no folder; name one that has the wheels of {name}")
    if first == last:
        raise UsageProblem(
            f"{good} and {bad} are the same release; name one that passes, and a later one that fails"
        )
    if first > last:
        raise UsageProblem(f"{first} is not older than {last}: name the older release first")
    notice(f"asking pip which releases of {name} there are")
    options = ["--pre"] if first.is_prerelease or last.is_prerelease else []
    done = run_program(
        [*_pip(sys.executable), "index", "versions", name, *options, *place.options(only_here=True)],
        _environment_of_pip(),
    )
    listed = _LISTED.search(done.stdout)
    if listed is None:
        raise EnvironmentProblem(
            f"pip finds no releases of {name}: {_said_by_pip(done.stderr)}; --package names the package, --index or "
            "--find-links says where it is"
        )
    versions = sorted(_comparable(listed[1].split(", ")))
    for version in (first, last):
        if version not in versions:
            raise UsageProblem(
                f"there is no release {version} of {name} for Python {sys.version_info[0]}.{sys.version_info[1]} on "
                f"this machine; take two of {_in_short(versions)}"
            )
    return tuple(Release(name, version) for version in versions if first <= version <= last)


@dataclass(frozen=True, slots=True)
class ReleaseEnvironment:
    """A virtual environment that has a release, and sees what is installed in this one."""

    python: Path
    variables: Mapping[str, str]
    """The environment variables with which its Python is run."""


def made_environment(
    release: Release, place: ReleasePlace, directory: Path, scratch: Path
) -> ReleaseEnvironment | str:
    """Make an environment with a release in a directory that is not there; return it, or why that failed.

    ``scratch``: a directory for what pip needs meanwhile.
    """
    python = _make_environment(directory)
    installed = _install(release, place, python, scratch)
    return installed if isinstance(installed, str) else ReleaseEnvironment(python, _variables(installed))


def environment_again(release: Release, directory: Path) -> ReleaseEnvironment | None:
    """Return the environment that was made with a release in a directory; None if there is none."""
    python = directory / "bin" / "python"
    installed = next(_installed(release, directory), None) if python.exists() else None
    return None if installed is None else ReleaseEnvironment(python, _variables(installed))


@contextlib.contextmanager
def trying_releases(wanted: PlanRuns, place: ReleasePlace) -> Iterator[Tries[Release]]:
    """Give what runs a plan with a release; whatever it installs is removed before the next one, and at the end."""
    with temporary_work_directory("releases") as name:
        directory = Path(name)

        def tries(release: Release) -> Outcome:
            notice(f"installing {release} into a temporary environment; a large package takes minutes")
            environment = directory / "environment"
            try:
                made = made_environment(release, place, environment, directory)
                if isinstance(made, str):
                    return Outcome(Verdict.UNKNOWN, made)
                notice(f"running the plan with {release}")
                return run_elsewhere(str(made.python), made.variables, wanted)
            finally:
                shutil.rmtree(environment, ignore_errors=True)

        yield tries


def _name(package: str) -> str:
    try:
        return canonicalize_name(package, validate=True)
    except InvalidName as error:
        raise UsageProblem(
            f"{package!r} is no name of a package; name one as pip knows it, like pyspark"
        ) from error


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise UsageProblem(
            f"{text!r} is no version; name a released version, like 0.1.0, or leave --releases out if it is a commit"
        ) from error


def _comparable(texts: list[str]) -> Iterator[Version]:
    """Give those of some versions that have an order: an old pip also lists what is none today, like 2004d."""
    for text in texts:
        with contextlib.suppress(InvalidVersion):
            yield Version(text)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.netloc if parts.scheme in ("http", "https") else parts.scheme == "file" and parts.path)


def _in_short(versions: list[Version]) -> str:
    """Return the newest of some versions as a text."""
    newest = ", ".join(map(str, versions[-_SHOWN_MAX:]))
    return f"..., {newest}" if len(versions) > _SHOWN_MAX else newest


def _make_environment(directory: Path) -> Path:
    """Make a virtual environment that also sees what is installed in this one; return its Python.

    An environment that was made with access to "the system" would see the system's packages and not those of the
    virtual environment that this process runs in.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    seen = [*site.PREFIXES, *([site.getuserbase()] if site.ENABLE_USER_SITE else [])]
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    # A prefix that Python knows of is one whose packages need no PYTHONPATH, which would put them before the release's.
    lines = [
        f"import site; site.PREFIXES += {seen!r}",
        *(f"import site; site.addsitedir({folder!r})" for folder in folders),
    ]
    (_packages(directory) / "packages_of_the_caller.pth").write_text("\n".join(lines) + "\n")
    return directory / "bin" / "python"


def _packages(environment: Path) -> Path:
    """Return the directory in which an environment has its packages."""
    place = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", "venv", vars=place))


def _install(
    release: Release, place: ReleasePlace, python: Path, directory: Path
) -> metadata.Distribution | str:
    """Install a release, and what it needs and this environment does not have; return it, or why that failed.

    The release itself is always installed: one of the same version may be here that is no release, a checkout.
    """
    install = [
        *_pip(str(python)),
        "install",
        "--no-compile",
        "--no-warn-script-location",
        "--no-warn-conflicts",
    ]
    exactly = f"{release.package}=={release.version}"
    alone = ["--no-deps", "--ignore-installed", *place.options(only_here=True)]
    # An interrupted pip may leave what it was building.
    scratch = directory / "pip"
    scratch.mkdir(exist_ok=True)
    found: metadata.Distribution | str = _ELSEWHERE
    for options in (alone, place.options(only_here=False)):
        done = run_program([*install, *options, exactly], {**_environment_of_pip(), "TMPDIR": str(scratch)})
        if done.returncode != 0:
            return f"pip cannot install it: {_said_by_pip(done.stderr)}"
        # Looked for after each call: the second one would put still more where it does not belong.
        found = next(_installed(release, python.parent.parent), _ELSEWHERE)
        if isinstance(found, str):
            break
    return found


def _installed(release: Release, environment: Path) -> Iterator[metadata.Distribution]:
    """Give the release if an environment itself has it."""
    for found in metadata.distributions(name=release.package, path=[str(_packages(environment))]):
        if release.version in _comparable([found.version]):
            yield found


def _pip(python: str) -> list[str]:
    return [python, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _environment_of_pip() -> dict[str, str]:
    """Return the variables for pip: a user's own, so that an index or a proxy holds, but for a place to install to."""
    return {**{name: value for name, value in os.environ.items() if name not in _UNSET}, **_SET}


def _said_by_pip(stderr: str) -> str:
    """Return the line of pip's messages that says what is wrong: with no connection, the last one does not."""
    if "No module named pip" in stderr:
        return "pip is not installed in this environment; run python -m ensurepip"
    if broken := _BROKEN.search(stderr):
        why = _ADDRESS_IN_MEMORY.sub("", broken[1])
        return f"no connection to the package index ({why}); check the network, --index and the proxy"
    failed = _FAILED.search(stderr)
    if failed:
        return failed[1]
    lines = [line.strip() for line in stderr.splitlines()]
    errors = [line for line in lines if line and not line.startswith(_NO_ERROR)]
    return errors[-1] if errors else "it did not say why"


def _variables(installed: metadata.Distribution) -> Mapping[str, str]:
    """Return the environment variables with which a plan is run."""
    # Scripts are among a release's files, too, by a path that leads out of the packages.
    files = [path for path in installed.files or () if path.suffix == ".py" and os.pardir not in path.parts]
    modules = {path.parts[0] for path in files}
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {
        **os.environ,
        # What has the package's modules would hide the release.
        "PYTHONPATH": os.pathsep.join(
            entry for entry in entries if not any((Path(entry) / module).exists() for module in modules)
        ),
    }
