"""What exactly was certified: the distribution with its version, and a digest of each of its files (CER-3).

Nothing of the candidate is imported to find that out.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

_OURS = "barrier_tck"
_COMPILED = "__pycache__"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a candidate, as far as it could be found; the fields are those of ``Certificate``."""

    distribution: str = ""
    files: dict[str, str] = field(default_factory=dict)


def identity_of(target: str) -> Identity:
    """Return the identity of ``MODULE:NAME``: all files of its top-level package, or the one of its module.

    Of this project, it is the folder with the module.
    """
    names = target.partition(":")[0].split(".")
    # The candidate's process looks into its working directory first. To find a top-level package imports nothing.
    found = PathFinder.find_spec(names[0], [str(Path.cwd()), *sys.path]) or find_spec(names[0])
    if found is None:
        return Identity()
    places = [Path(place) for place in found.submodule_search_locations or ()]
    if names[0] == _OURS and len(names) > 1:
        places = [place / names[1] for place in places]
    if not places:
        origin = Path(found.origin) if found.origin is not None else None
        files = {} if origin is None or not origin.is_file() else {origin.name: digest_of(origin)}
    else:
        base = ".".join(names[:2]) if names[0] == _OURS else names[0]
        files = {f"{base.replace('.', '/')}/{name}": digest for name, digest in _below(places)}
    return Identity(_distribution_of(names[0]), files)


def identity_of_files(distribution: str, paths: Iterable[Path]) -> Identity:
    """Return the identity of a candidate that consists of these files and directories."""
    files: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            files |= {f"{path.name}/{name}": digest for name, digest in _below([path])}
        elif path.is_file():
            files[path.name] = digest_of(path)
    return Identity(distribution, files)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, as ``sha256sum`` prints it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _below(places: Iterable[Path]) -> list[tuple[str, str]]:
    found = [
        (path.relative_to(place).as_posix(), path)
        for place in places
        for path in place.rglob("*")
        if path.is_file() and _COMPILED not in path.parts
    ]
    return [(name, digest_of(path)) for name, path in sorted(found)]


def _distribution_of(package: str) -> str:
    names = metadata.packages_distributions().get(package, [])
    if package == _OURS and not names:
        names = ["barrier-tck"]
    try:
        return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))
    except metadata.PackageNotFoundError:
        return ""
