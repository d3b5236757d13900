"""House rules about the tree itself; grain: text and syntax trees, nothing is imported.

The import-linter contracts in `pyproject.toml` enforce what they can; this file enforces the rest. A test that has
nothing to look at yet passes.
"""

from __future__ import annotations

import ast
import configparser
import graphlib
import io
import re
import shlex
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tox_file import environments

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("reference_impl", "faults", "harness", "conformance", "reports")
SOURCES = (*FOLDERS, "tests", "benchmarks", "examples")

#: Modules of the standard library that the protocol core may not use, and what to use instead.
BANNED_BELOW_THE_LINE = {
    "asyncio": "commands, which the runtime shell carries out",
    "concurrent": "commands, which the runtime shell carries out",
    "datetime": "times in events, in milliseconds of the world's clock",
    "io": "bytes in events; files are the storage layer's",
    "multiprocessing": "commands, which the runtime shell carries out",
    "os": "values in events; files are the storage layer's",
    "pathlib": "state handles; files are the storage layer's",
    "random": "choices in events; randomness belongs to the world",
    "secrets": "ids in events",
    "select": "events; channels belong to the runtime's ports",
    "selectors": "events; channels belong to the runtime's ports",
    "shutil": "commands; files are the storage layer's",
    "signal": "events",
    "socket": "events; channels belong to the runtime's ports",
    "subprocess": "commands",
    "sys": "values in events",
    "tempfile": "commands; files are the storage layer's",
    "threading": "events: a machine is used by one thread",
    "time": "times in events, in milliseconds of the world's clock",
    "uuid": "ids in events",
}
#: Builtins that it may not use for the same reason.
BANNED_CALLS_BELOW_THE_LINE = {
    "open": "commands; files are the storage layer's",
    "input": "events",
    "print": "events",
}

#: Modules that nothing imports because something else starts them, and what starts them.
STARTED_BY_OTHERS = {
    "barrier_tck.conformance.conftest": "pytest",
    "barrier_tck.faults.toxiproxy.parent_death_watch": "barrier_tck.faults.toxiproxy.server, as a process",
    "barrier_tck.harness.campaign.host_keeper": "barrier_tck.harness.campaign.process_of_trials, as a process",
    "barrier_tck.harness.campaign.trial_process": "barrier_tck.harness.campaign.trial_pool, as a process",
    "barrier_tck.harness.cluster.class_archive_maker": "barrier_tck.harness.cluster.class_sharing, as a process",
    "barrier_tck.harness.cluster.guard": "barrier_tck.harness.cluster.parent_death_watch, as a script",
    "barrier_tck.harness.certify.backend.candidate.worker": "barrier_tck.harness.certify.backend.pool, as a process",
    "barrier_tck.harness.certify.storage.candidate.worker": "barrier_tck.harness.certify.storage.suite, as a process",
    "barrier_tck.harness.reference.mutants.backend_bugs": "barrier_tck.harness.certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.mutants.held_out_file_bugs": "certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.mutants.chained_and_closed_bugs": "certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.mutants.dropped_and_deleted_bugs": "certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.mutants.hints_and_lives_bugs": "certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.mutants.rocksdb_bugs": "barrier_tck.harness.certify.backend.planted_bugs, by name",
    "barrier_tck.harness.reference.spark.spark_system": "barrier_tck.harness.system.system_names, by name",
    "barrier_tck.harness.reference.simulated.simulated_system": "barrier_tck.harness.system.system_names, by name",
    "barrier_tck.harness.streaming.driver.batch_judge": "harness.streaming.structured_streaming, as a process",
    "barrier_tck.harness.streaming.driver.query_driver": "barrier_tck.harness.streaming.query_run, as a process",
    "barrier_tck.harness.streaming.stock_job": "barrier_tck.harness.system.system_names, by name",
    "barrier_tck.reference_impl.spark.daemon": "Spark's executors, by the setting spark.python.daemon.module",
}
#: Places and people that the tree must not mention.
_PRIVATE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|home|root|Users)/\w")
# Spelled apart, so that this file does not find itself.
_UNFINISHED = re.compile(r"\b(FIX" + r"ME|TO" + r"DO|XX" + r"X)\b")


def python_files(*folders: str) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        found += [path for path in sorted((ROOT / folder).rglob("*.py")) if not hidden(path)]
    return found


def hidden(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part.startswith(".") or part in ("__pycache__", "build", "dist", "runs") for part in parts)


def markdown_files() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.md")) if not hidden(path)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in FOLDERS:
        parts = ("barrier_tck", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imported_modules(path: Path) -> tuple[str, ...]:
    """Return every module that an import in `path`, at any depth of nesting, may mean."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    return _imported_by(path.read_text(), package)


# Several rules look at the imports of all files. A text is kept for its hash only, a tree would be too large.
@cache
def _imported_by(text: str, package: str) -> tuple[str, ...]:
    return tuple(_imports(ast.parse(text), package))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_protocol_core_uses_no_clock_randomness_thread_socket_or_file() -> None:
    found = []
    for path in python_files("reference_impl/protocol"):
        for imported in imported_modules(path):
            top = imported.partition(".")[0]
            if top in BANNED_BELOW_THE_LINE:
                found.append(f"{name(path)} imports {top}: use {BANNED_BELOW_THE_LINE[top]}")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = node.func.id
                if called in BANNED_CALLS_BELOW_THE_LINE:
                    use = BANNED_CALLS_BELOW_THE_LINE[called]
                    found.append(f"{name(path)}:{node.lineno} calls {called}(): use {use}")
    assert not found, "\n".join(found)


def _begins_with_a_docstring(path: Path) -> bool:
    """Return whether the first statement is a text; what follows need not be parsed."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            return token.type == tokenize.STRING and bool(ast.literal_eval(token.string).strip())
    return False


def test_every_module_has_a_docstring() -> None:
    missing = [name(path) for path in python_files(*SOURCES) if not _begins_with_a_docstring(path)]
    assert not missing, f"modules without a docstring: {missing}"


def test_nothing_is_left_unfinished() -> None:
    found = []
    for path in python_files(*SOURCES):
        text = path.read_text()
        if not _UNFINISHED.search(text):
            continue  # only a comment or a text may not say so, but most files say it nowhere
        found += [
            f"{name(path)}:{token.start[0]}: finish it or write an issue"
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type in (tokenize.COMMENT, tokenize.STRING) and _UNFINISHED.search(token.string)
        ]
    assert not found, "\n".join(found)


def test_nothing_names_a_place_on_somebodys_machine() -> None:
    found = []
    for path in [*python_files(*SOURCES), *markdown_files(), *sorted((ROOT / "campaigns").rglob("*.toml"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if _PRIVATE_PATH.search(line):
                found.append(f"{name(path)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_document_has_one_title(document: Path) -> None:
    titles, fenced = [], False
    for line in document.read_text().splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and re.match(r"# \S", line):
            titles.append(line)
    assert len(titles) == 1, f"{name(document)} has {len(titles)} first-level headings: {titles}"


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(r"(```|~~~).*?\1", "", document.read_text(), flags=re.DOTALL)
    dead = [
        target
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in target
        and not target.startswith("mailto:")
        and not (document.parent / target).exists()
    ]
    assert not dead, f"{name(document)} links to files that do not exist: {dead}"


def imports_within(paths: list[Path]) -> dict[str, list[str]]:
    """Return module -> the others that it imports anywhere, even for types only or within functions."""
    modules = {module_name(path): path for path in paths}
    return {
        module: sorted({other for other in imported_modules(path) if other in modules} - {module})
        for module, path in modules.items()
    }


def circle_in(graph: dict[str, list[str]]) -> list[str]:
    """Return one circle of imports, with its first module at both ends; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    """What two modules both need belongs in a third one, or is passed in; a late import would only hide the circle."""
    circle = circle_in(imports_within(python_files(*FOLDERS)))
    assert not circle, "each is imported by the next one: " + ", ".join(circle)


def test_a_circle_is_found_however_it_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    package = tmp_path / "harness" / "plan"
    package.mkdir(parents=True)
    plain = "from barrier_tck.harness.plan import second\n"
    late = "def use():\n    from barrier_tck.harness.plan.third import Name\n"
    typed = "if TYPE_CHECKING:\n    import barrier_tck.harness.plan.first\n"
    for module, text in (("first", plain), ("second", late), ("third", typed), ("fourth", plain)):
        (package / f"{module}.py").write_text(text)
    circle = circle_in(imports_within(python_files("harness")))
    assert sorted(set(circle)) == [
        f"barrier_tck.harness.plan.{name}" for name in ("first", "second", "third")
    ]
    (package / "second.py").write_text("")
    assert not circle_in(imports_within(python_files("harness")))


LISTED_BY_CATALOGUES = ("draw/scenarios", "oracle/checkers", "reference/kinds", "workloads/kinds")
"""Folders of the harness whose modules a catalogue finds."""


def test_no_module_is_unused() -> None:
    imported = {
        module
        for path in python_files(*SOURCES)
        for module in imported_modules(path)
        if module != module_name(path)
    }
    # The public names of the harness are imported lazily, as its stub says.
    public = ast.parse((ROOT / "harness" / "__init__.pyi").read_text())
    imported |= {
        f"barrier_tck.harness.{node.module}" for node in ast.walk(public) if isinstance(node, ast.ImportFrom)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry_points = [*project["scripts"].values()]
    for group in project["entry-points"].values():
        entry_points += group.values()
    started = {entry.partition(":")[0] for entry in entry_points} | set(STARTED_BY_OTHERS)
    for module in started:
        assert (ROOT / "src" / Path(*module.split(".")).with_suffix(".py")).exists(), (
            f"{module} does not exist"
        )
    unused = []
    for path in python_files(*FOLDERS):
        module = module_name(path)
        # A package is used through its modules; a test is used by pytest; catalogues list their folders.
        if path.parent in [ROOT / "harness" / folder for folder in LISTED_BY_CATALOGUES]:
            continue
        if path.name in ("__init__.py", "__main__.py", "conftest.py") or path.name.startswith("test_"):
            continue
        if module not in imported | started:
            unused.append(module)
    assert not unused, f"nothing imports {unused}: use them, or remove them"


def test_every_tox_environment_named_in_a_document_exists() -> None:
    named = {
        environment
        for document in markdown_files()
        for match in re.finditer(r"\btox -e ([\w,-]+)", document.read_text())
        for environment in match[1].split(",")
    }
    unknown = sorted(named - set(environments()))
    assert not unknown, f"no such tox environments: {unknown}"
    readme = ROOT / "README.md"
    if readme.exists():
        for environment in ("campaign", "tests", "explore"):
            assert f"python3 -m tox -e {environment}" in readme.read_text()


def test_tox_runs_what_the_project_has() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    tools = {"ruff", "mypy", "lint-imports", "pytest", "tox", *scripts}
    for section in tox.sections():
        for line in tox.get(section, "commands", fallback="").strip().splitlines():
            if line and not line.startswith("#"):
                command, *rest = shlex.split(line.removeprefix("{[installed]bin}/"))
                own = command == "python" and (ROOT / rest[0].removeprefix("{toxinidir}/")).is_file()
                assert own or command in tools, f"[{section}] runs an unknown command: {line}"


def test_the_one_package_is_the_five_folders() -> None:
    """In a checkout they are links, and a wheel includes them; ``tests/test_installing.py`` installs both.

    Campaign files and examples are there too, as data.
    """
    inside = (*FOLDERS, "campaigns", "examples")
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    wheel = config["hatch"]["build"]["targets"]["wheel"]
    assert set(inside) <= set(wheel["only-include"])
    assert wheel["sources"] == {"src": ""} | {folder: f"barrier_tck/{folder}" for folder in inside}
    assert config["importlinter"]["root_package"] == "barrier_tck"
    package = ROOT / "src" / "barrier_tck"
    links = {entry.name: entry.resolve() for entry in package.iterdir() if entry.is_symlink()}
    assert links == {folder: ROOT / folder for folder in inside}


def test_nothing_imports_a_folder_by_its_bare_name() -> None:
    """A user may have packages of the same five names (decision 0017)."""
    found = [
        f"{name(path)}: {imported}"
        for path in python_files(*SOURCES)
        for imported in imported_modules(path)
        if imported.partition(".")[0] in FOLDERS
    ]
    assert not found, found
