"""What of this machine a host sees: the files that Spark's processes need, read-only, and their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import barrier_tck
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import data_directory

SYSTEM = tuple(
    Path(name) for name in ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr", "/nix")
)
"""Where an operating system and what was installed with it lie. A base image brings its own."""
_INHERITED = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "PYTHONHASHSEED", "TZ")


def files_of_machine(java: Java, with_system: bool) -> tuple[Path, ...]:
    """Return the directories that a host sees under the same names, outermost first, none within another.

    ``with_system`` says whether the system's own directories are among them; if they are not, the image has to bring
    the same Java and the same Python at the same places, unless they lie elsewhere.
    """
    needed = [
        Path(sys.prefix),
        Path(sys.base_prefix),
        spark_home(),
        java.executable.resolve().parents[1],
        *(Path(entry) for entry in import_path().split(os.pathsep)),
        # In an editable installation the packages are links to other places.
        *(
            folder.resolve().parent
            for folder in sorted(Path(barrier_tck.__file__).parent.iterdir())
            if folder.is_dir()
        ),
    ]
    system = [place for place in SYSTEM if place.exists()]
    wanted = [place for place in needed if not any(place.is_relative_to(root) for root in SYSTEM)]
    return outermost([*(system if with_system else []), *wanted])


def outermost(places: Sequence[Path]) -> tuple[Path, ...]:
    """Return those places that lie within no other one, each once; the root directory is left out."""
    known = sorted(dict.fromkeys(place for place in places if place != Path("/")))
    return tuple(
        place for place in known if not any(place != other and place.is_relative_to(other) for other in known)
    )


def written_by_hosts() -> Path:
    """Return the data directory, which hosts may write: jobs prepare input there. It is made if need be."""
    directory = data_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def environment_of_host(wanted: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Return what of a wanted environment a host gets: what was set for it, and little of ``ours``.

    An engine shows a container's environment to all of its users.
    """
    own = {name: value for name, value in wanted.items() if ours.get(name) != value}
    kept = {name: wanted[name] for name in (*_INHERITED, "PATH", "PYTHONPATH") if name in wanted}
    return own | kept
