"""The package as others install it, in a project that has its own packages with all five names (decision 0017).

Grain: real installs into fresh environments, offline. Python, the command, pytest and a type checker find the
project's packages under their bare names, and ours below ``barrier_tck``.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_tidy import FOLDERS, ROOT

#: As tox and pip install it, through the source distribution, and as developers install it.
INSTALLS = ("wheel", pytest.param("editable", marks=pytest.mark.long))
#: Files that a wheel needs besides modules.
DATA = (
    "barrier_tck/py.typed",
    "barrier_tck/campaigns/flights.toml",
    "barrier_tck/examples/my_streaming_job/pyproject.toml",
    "barrier_tck/harness/cluster/containers/Dockerfile",
    *(
        f"barrier_tck/harness/cli/skeletons/{path.name}"
        for path in sorted((ROOT / "harness" / "cli" / "skeletons").iterdir())
    ),
    "barrier_tck/reports/templates/page.html.j2",
    "barrier_tck/reports/templates/page.css",
    "barrier_tck/reports/templates/page.js",
    "barrier_tck/reports/templates/plotly-basic.min.js.gz",
    "barrier_tck/reports/templates/certificate.html.j2",
    "barrier_tck/harness/certify/spark_store/planted_java/PlantedStores.java",
    "barrier_tck/harness/streaming/java/DisturbedWrites.java",
)

IMPORTS = f"""
import importlib, json
names = {list(FOLDERS)}
print(json.dumps({{
    "theirs": [importlib.import_module(name).OWNER for name in names],
    "ours": [importlib.import_module("barrier_tck." + name).__file__ for name in names],
    "mixed": [hasattr(importlib.import_module("barrier_tck." + name), "OWNER") for name in names],
}}))
"""
THEIR_TEST = """
import faults, harness, reports
from barrier_tck.harness import CheckpointPlan, TrialPlan, Verdict, WorkloadPlan


def test_both_are_there(run_trial):
    assert {harness.OWNER, faults.OWNER, reports.OWNER} == {"the project"}
    plan = TrialPlan(workload=WorkloadPlan(name="keyed-totals", batches=2, batch_records=2))
    assert run_trial(plan).verdict is Verdict.VALID
"""
TYPED = """
from barrier_tck.harness import TrialPlan
from harness import OWNER

owner: str = OWNER
seed: int = TrialPlan().seed
reveal_type(TrialPlan().seed)
"""


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a program that knows nothing about this checkout, and return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built(target: str, directory: Path) -> Path:
    """Build a distribution of this checkout with the build tools that are installed here."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", directory, cwd=ROOT)
    (found,) = directory.iterdir()
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with five packages that have our names, and with its own test."""
    directory = tmp_path_factory.mktemp("project")
    for name in FOLDERS:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text('OWNER = "the project"\n')
    (directory / "tests").mkdir()
    (directory / "tests" / "test_theirs.py").write_text(THEIR_TEST)
    (directory / "typed.py").write_text(TYPED)
    return directory


@dataclass(frozen=True)
class Installed:
    """An environment in which the package is installed."""

    python: Path
    home: Path
    """The directory below which our modules lie."""
    cache: Path
    """The type checker's cache, shared because most of what it reads is the same."""


@pytest.fixture(scope="module")
def type_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("types")


@pytest.fixture(scope="module", params=INSTALLS)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, type_cache: Path
) -> Installed:
    """Install the package into a fresh environment."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory / "venv", with_pip=False)
    interpreter = directory / "venv" / "bin" / "python"
    site = next((directory / "venv" / "lib").glob("python*/site-packages"))
    # Our dependencies are found where they are installed, after everything that the environment itself contains.
    needed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site / "zzz_needed.pth").write_text("\n".join(sorted(needed)) + "\n")
    editable = request.param == "editable"
    what = ["--editable", str(ROOT)] if editable else [str(built("sdist", directory / "dist"))]
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    run(sys.executable, "-m", "pip", "--python", interpreter, *install, *what, cwd=directory)
    return Installed(interpreter, ROOT / "src" if editable else site, type_cache)


@pytest.mark.long
def test_both_sides_import_their_own(installed: Installed, project: Path) -> None:
    found = json.loads(run(installed.python, "-c", IMPORTS, cwd=project))
    assert found["theirs"] == ["the project"] * len(FOLDERS)
    assert found["mixed"] == [False] * len(FOLDERS)
    assert all(Path(path).is_relative_to(installed.home) for path in found["ours"]), found


@pytest.mark.long
def test_the_command_runs_in_such_a_project_and_writes_its_reports(
    installed: Installed, project: Path, tmp_path: Path
) -> None:
    command = installed.python.with_name("barrier-tck")
    printed = run(
        command, "campaign", "--trials", "2", "--seed", "0", "--out", tmp_path, "--json", cwd=project
    )
    result = json.loads(printed.splitlines()[-1])
    assert (result["verdict"], result["trials"]) == ("valid", 2)
    assert "<html" in (Path(result["run_directory"]) / "report.html").read_text()


@pytest.mark.long
def test_their_tests_use_our_plugin(installed: Installed, project: Path) -> None:
    printed = run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=project)
    assert "1 passed" in printed


@pytest.mark.nightly
def test_a_type_checker_sees_both(installed: Installed, project: Path) -> None:
    options = ["--strict", f"--python-executable={installed.python}", f"--cache-dir={installed.cache}"]
    printed = run(sys.executable, "-m", "mypy", *options, "typed.py", cwd=project)
    assert re.search(r'Revealed type is "(builtins\.)?int"', printed), printed


@pytest.mark.long
def test_a_wheel_holds_the_same_whatever_it_is_built_of(tmp_path: Path) -> None:
    """A source distribution has no links, so a wheel must not need them."""
    source = built("sdist", tmp_path / "source")
    run("tar", "xf", source, cwd=tmp_path)
    unpacked = tmp_path / source.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=unpacked)
    (again,) = (tmp_path / "again").iterdir()
    first = built("wheel", tmp_path / "wheel")
    says_where_its_documents_are(first)
    names = [set(zipfile.ZipFile(wheel).namelist()) for wheel in (first, again)]
    assert names[0] == names[1]
    modules = {
        f"barrier_tck/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    assert modules | set(DATA) <= names[0]
    tops = {name.partition("/")[0] for name in names[0]}
    assert tops == {"barrier_tck", next(top for top in tops if top.endswith(".dist-info"))}


def says_where_its_documents_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(file))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == project["version"]
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert urls == project["urls"]
    # Each page that is named below a branch is there.
    pages = [url.partition("/main/")[2] for url in urls.values() if "/main/" in url]
    assert pages == ["docs", "CHANGELOG.md"] and all((ROOT / page).exists() for page in pages)
    assert str(metadata.get_payload()).startswith("# barrier-tck\n")
