"""A copy of the package with a user's patch in it, which a process of its own imports instead of the installed one.

So a patch may change whatever it likes, fields, tables of state machines and constants included, and holds in every
process that is started from there: the simulator, the harness, the driver on Spark and its executors' workers. The copy
lies first on their import path. Only the reference implementation is copied; all else are links.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import barrier_tck
from barrier_tck.harness.reference.bugs import patched_lines
from barrier_tck.harness.reference.bugs.bug_file import read_bug
from barrier_tck.harness.reference.bugs.diff import is_diff, sources_with_diff
from barrier_tck.harness.reference.bugs.patch import (
    ROOT,
    PatchProblem,
    parsed,
    patched_sources,
    product_source,
)
from barrier_tck.harness.support.errors import UsageProblem

_PATCH = "patch.txt"
"""File in a copy that holds its patch."""
_ALWAYS = "patched-lines-always-run"
"""File in a copy whose patch changes what importing runs."""
_IMPORT_LIMIT_S = 60.0
_ON_SPARK = "spark/"


def sources_with(patch: str, source: str) -> Mapping[str, str]:
    """Return file -> its text with a patch, a unified diff or a planted bug's file; raises PatchProblem."""
    sources = (
        sources_with_diff(patch, source)
        if is_diff(patch)
        else patched_sources(read_bug(patch, source).changes)
    )
    changed = {
        file: text
        for file, text in sources.items()
        if ast.dump(parsed(file, text)) != ast.dump(ast.parse(product_source(file)))
    }
    if not changed:
        raise PatchProblem(f"{source}: the patch changes nothing")
    return changed


def make_copy(patch: str, source: str, directory: Path, world: str | None = None) -> Mapping[str, str]:
    """Make a copy of the package below a directory; return the environment for a process that is to import it.

    Raises PatchProblem if the patch does not fit, cannot be imported, or changes only what the world never runs.
    """
    sources = sources_with(patch, source)
    if world == "simulated" and all(file.startswith(_ON_SPARK) for file in sources):
        raise PatchProblem(f"{source} changes only {', '.join(sources)}, which runs only with --world spark")
    installed = Path(barrier_tck.__file__).parent
    copy = directory / installed.name
    copy.mkdir()
    for entry in installed.iterdir():
        if entry.name == ROOT:
            shutil.copytree(entry, copy / ROOT)
        elif entry.is_dir():
            (copy / entry.name).symlink_to(entry.resolve(), target_is_directory=True)
        else:
            shutil.copy(entry, copy)
    complete = True
    for file, text in sources.items():
        with_calls, all_of_it = patched_lines.with_calls(product_source(file), text)
        (copy / ROOT / file).write_text(with_calls, encoding="utf-8")
        complete = complete and all_of_it
    (copy / ROOT / patched_lines.MODULE).write_text(patched_lines.SOURCE, encoding="utf-8")
    (copy / _PATCH).write_text(patch, encoding="utf-8")
    if not complete:
        (copy / _ALWAYS).touch()
    path = [str(directory), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    _import_all(source, environment)
    return environment


def _import_all(source: str, environment: Mapping[str, str]) -> None:
    """Import every module of a copy once; raises PatchProblem if that fails or does not end."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_IMPORT_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PatchProblem(f"{source}: to import the patched package takes no end") from error
    if done.returncode != 0:
        what = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise PatchProblem(f"{source}: the patched package cannot be imported: {what}")


@cache
def patch_of_this_process() -> str | None:
    """Return the patch with which this process's package was copied; None: it runs the product as it is installed."""
    file = Path(barrier_tck.__file__).with_name(_PATCH)
    return file.read_text(encoding="utf-8") if file.is_file() else None


@contextmanager
def with_patch(patch: str) -> Iterator[None]:
    """Run the body if this process runs a copy of the product with this patch; otherwise raises UsageProblem."""
    if patch_of_this_process() != patch:
        raise UsageProblem(
            "this plan carries a patch, which only a process of its own can have: run the plan with `barrier-tck "
            "replay --patch FILE`"
        )
    yield


def ran_since_asked() -> bool | None:
    """Return whether lines of this process's patch ran, here or on Spark, since it was asked last; None: not known."""
    package = Path(barrier_tck.__file__).parent
    if patch_of_this_process() is None or (package / _ALWAYS).exists():
        return None
    note = package / ROOT / patched_lines.NOTE
    ran = note.exists()
    note.unlink(missing_ok=True)
    return ran


def _import_modules() -> None:
    """Import each module of the product whose libraries are installed."""
    import importlib
    import pkgutil

    package = importlib.import_module(f"barrier_tck.{ROOT}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("barrier_tck"):
                raise


if __name__ == "__main__":
    _import_modules()
