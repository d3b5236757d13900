"""The maps of the project show what is there: folders, imports, seams, counts and lists are compared with the code.

Each comparison works in both directions, so neither the document nor the code can change alone; grain: text.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import barrier_tck.harness as public
from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.faults import faults_page
from barrier_tck.faults.catalogue import FAULTS, PACKAGES
from barrier_tck.faults.fault import Fault
from barrier_tck.harness.campaign.configuration import (
    SECTIONS,
    ClusterSection,
    configuration_from,
    read_configuration,
)
from barrier_tck.harness.certify.backend.planted_bugs import PLANTED_BUGS as BACKEND_BUGS
from barrier_tck.harness.certify.spark_store.planted_bugs import PLANTED_BUGS as STORE_BUGS
from barrier_tck.harness.certify.storage.planted_bugs import PLANTED_BUGS as STORAGE_BUGS
from barrier_tck.harness.cli.bench_command import BENCHMARKS
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.oracle import checkers_page
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs import page as bugs_page
from barrier_tck.harness.system.broken_recovery import BrokenRecovery
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.workloads.workload_names import workload_named, workload_names
from tests.test_docs import ARCHITECTURE, COMMANDS, RUN_DIRECTORY, commands, rows
from tests.test_tidy import FOLDERS, ROOT, markdown_files, name, python_files, tree_of

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
CAMPAIGNS = (ROOT / "docs" / "campaigns.md").read_text()
IMPORT_RULES = (ROOT / "docs" / "import-rules.md").read_text()
SEAMS = (ROOT / "docs" / "seams.md").read_text()
JUDGING = (ROOT / "docs" / "judging.md").read_text()
SCOPE = (ROOT / "docs" / "scope.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def table(document: str, header: str) -> list[list[str]]:
    """Return the rows of the only table whose header line begins with the given cells."""
    (text,) = re.findall(rf"^{re.escape(header)}.*\n\|[-|]+\|\n((?:\|.*\n)+)", document, re.MULTILINE)
    return rows(text, ".*")


def codes(cell: str) -> list[str]:
    """Return the texts in code marks, split at commas."""
    return [word.strip() for code in re.findall(r"`([^`]+)`", cell) for word in code.split(",")]


# --- folders ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_readme_of_a_folder_lists_what_is_in_it(folder: str) -> None:
    first_table = re.split(r"\n\|[-|]+\|\n", (ROOT / folder / "README.md").read_text())[1].partition("\n\n")[
        0
    ]
    listed = [entry for row in rows(first_table, "`.*") for entry in codes(row[0])]
    there = [
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / folder).iterdir()
        if path.name not in ("__init__.py", "__pycache__", "README.md")
        and (path.is_dir() or path.suffix == ".py")
        and not path.name.startswith("test_")
    ]
    assert sorted(entry for entry in listed if entry != "test_*.py") == sorted(there)


def defined(paths: Iterable[Path]) -> set[str]:
    """Return the names of the classes and functions at the top of modules."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for path in paths for node in tree_of(path).body if isinstance(node, kinds)}


@pytest.mark.parametrize("folder", ["reference_impl", "harness"])
def test_main_types_of_a_folder_are_defined_there(folder: str) -> None:
    for row in table((ROOT / folder / "README.md").read_text(), folder_header(folder)):
        (entry,) = codes(row[0])
        place = ROOT / folder / entry
        there = defined([place] if place.suffix else python_files(f"{folder}/{entry}"))
        assigned = {"CheckpointId", "AttemptNumber"} if entry == "ids.py" else set()
        assert {word for word in codes(row[2]) if word[0].isupper()} <= there | assigned, entry


def folder_header(folder: str) -> str:
    return (
        "| package | what it holds | main types |"
        if folder == "harness"
        else "| folder | what it holds | main types |"
    )


def layers_of(folder: str) -> list[str]:
    """Return the packages that are layers of a folder from the top down, as import-linter enforces them."""
    (layers,) = [
        contract["layers"]
        for contract in CONTRACTS
        if contract["type"] == "layers" and contract["containers"] == [f"barrier_tck.{folder}"]
    ]
    return [package.strip() for layer in layers for package in layer.split(":")]


def test_layers_of_the_harness_on_the_maps_are_those_of_the_contract_in_their_order() -> None:
    of_architecture = [package for row in table(ARCHITECTURE, "| package |") for package in codes(row[0])]
    assert of_architecture == layers_of("harness")
    readme = (ROOT / "harness" / "README.md").read_text()
    of_readme = [
        codes(row[0])[0].removesuffix("/").removesuffix(".py") for row in table(readme, "| package |")
    ]
    # The two at the top are in the same layer.
    assert [*sorted(of_readme[:2]), *of_readme[2:]] == layers_of("harness")


def test_folders_named_beside_a_layer_are_there() -> None:
    found = 0
    for row in table(ARCHITECTURE, "| package |"):
        for folder in [each for each in codes(row[1]) if each.endswith("/")]:
            places = (ROOT / "harness", *(ROOT / "harness" / package for package in codes(row[0])))
            assert any((place / folder).is_dir() for place in places), f"{row[0]}: {folder}"
            found += 1
    assert found >= 4


def test_every_page_is_listed_in_one_place() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r"\]\(([^)#]+)\)", (docs / "README.md").read_text())
    pages = [page for folder in (docs, docs / "guide") for page in folder.glob("*.md")]
    # Two are beginnings: of a forge's folder, and of the site.
    missing = {page.relative_to(docs).as_posix() for page in pages} - {"README.md", "index.md", *listed}
    assert not missing


def test_layers_of_the_reference_implementation_are_those_of_the_contract_in_their_order() -> None:
    listed = [layer for row in table(ARCHITECTURE, "| layer |") for layer in codes(row[0])]
    packages = [layer for layer in layers_of("reference_impl") if (ROOT / "reference_impl" / layer).is_dir()]
    assert listed == packages


# --- imports ------------------------------------------------------------------------------------------------

Arrow = tuple[str, str]
"""(importer, imported): dotted names below ``barrier_tck``."""


def allowed_by_contracts(folder: str) -> set[Arrow]:
    """Return which imports from a folder into the others the contracts allow."""
    own = [
        contract
        for contract in CONTRACTS
        if contract["type"] == "forbidden" and contract["source_modules"] == [f"barrier_tck.{folder}"]
    ]
    forbidden = {module for contract in own for module in contract["forbidden_modules"]}
    ignored = [line.split(" -> ") for contract in own for line in contract.get("ignore_imports", [])]
    free = {
        (folder, other) for other in FOLDERS if f"barrier_tck.{other}" not in forbidden and other != folder
    }
    exceptions = {
        (plain(source), plain(target)) for source, target in ignored if target.startswith("barrier_tck.")
    }
    return free | exceptions


def plain(module: str) -> str:
    return module.removeprefix("barrier_tck.").removesuffix(".**")


def told_by_the_map(cell: str, folder: str) -> set[Arrow]:
    told: set[Arrow] = set()
    for item in cell.split(";"):
        targets, _, sources = item.partition(" from ")
        told |= {
            (source.strip("/").replace("/", "."), target)
            for target in codes(targets)
            for source in codes(sources) or [folder]
        }
    return told


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_import_rules_on_the_map_are_those_of_the_contracts(folder: str) -> None:
    (row,) = rows(IMPORT_RULES, re.escape(f"`{folder}/`"))
    assert told_by_the_map(row[1], folder) == allowed_by_contracts(folder)


def test_contracts_are_listed_by_their_names() -> None:
    assert re.findall(r"^- (.*)$", IMPORT_RULES, re.MULTILINE) == [contract["name"] for contract in CONTRACTS]


# --- seams --------------------------------------------------------------------------------------------------


def test_seams_are_defined_where_the_map_says() -> None:
    for row in table(SEAMS, "| seam |"):
        (place,) = codes(row[1])
        there = defined(python_files(place) if place.endswith("/") else [ROOT / place])
        assert set(codes(row[0])) <= there, place


def test_every_public_interface_for_third_parties_is_on_the_map_of_seams() -> None:
    listed = {seam for row in table(SEAMS, "| seam |") for seam in codes(row[0])}
    interfaces = {each for each in public.__all__ if getattr(getattr(public, each), "_is_protocol", False)}
    assert len(interfaces) > 10
    assert interfaces <= listed


def test_ports_on_the_map_are_the_runtimes() -> None:
    (row,) = [row for row in table(SEAMS, "| seam |") if "runtime/ports.py" in row[1]]
    ports = tree_of(ROOT / "reference_impl" / "runtime" / "ports.py").body
    assert codes(row[0]) == [
        node.name
        for node in ports
        if isinstance(node, ast.ClassDef) and "Protocol" in [getattr(base, "id", "") for base in node.bases]
    ]


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_paths_in_documents_exist(document: Path) -> None:
    roots = "|".join((*FOLDERS, "tests", "docs", "campaigns", "examples", "benchmarks"))
    named = re.findall(rf"`((?:{roots})/[\w/.]*)`", document.read_text())
    # CONTRIBUTING shows how to write these files.
    shown = (
        "faults/kinds/kill_workers.py",
        "harness/draw/scenarios/lone_executor.py",
        "harness/oracle/checkers/attempts_numbered.py",
        "harness/reference/kinds/lengthen.py",
        "harness/workloads/kinds/lengthen.py",
    )
    missing = [path for path in named if not (ROOT / path).exists() and path not in shown]
    assert not missing, f"{name(document)} names paths that do not exist: {missing}"


# --- counts and lists ---------------------------------------------------------------------------------------


def shipped_workloads() -> list[str]:
    """Return the project's own workloads; other tests in the same process may have registered theirs."""
    return [
        each for each in workload_names() if type(workload_named(each)).__module__.startswith("barrier_tck.")
    ]


def test_counts_of_what_is_here_are_those_of_the_code() -> None:
    counts = {row[0]: int(row[1]) for row in table(SCOPE, "| what | how many |")}
    assert counts == {
        "clauses": len(CLAUSES),
        "faults": len(FAULTS),
        "workloads": len(shipped_workloads()),
        "profiles": len(PROFILES),
        "campaign files": len(list((ROOT / "campaigns").glob("*.toml"))),
        "planted bugs of state backends": len(BACKEND_BUGS),
        "planted bugs of Spark's state stores": len(STORE_BUGS),
        "planted bugs of checkpoint storages": len(STORAGE_BUGS),
    }


def test_page_of_faults_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert page == faults_page.as_markdown(), "run: python -m barrier_tck.faults.faults_page > docs/faults.md"


def test_packages_of_faults_are_listed() -> None:
    assert sorted(codes(row[0])[0] for row in table(CAMPAIGNS, "| package |")) == sorted(PACKAGES)


def test_profiles_are_listed_with_their_descriptions() -> None:
    listed = [(codes(row[0])[0], row[1]) for row in table(CAMPAIGNS, "| profile |")]
    assert listed == [(profile.name, profile.description) for profile in PROFILES]


def test_workloads_are_listed_with_their_shapes() -> None:
    listed = {codes(row[0])[0]: tuple(codes(row[1])) for row in table(CAMPAIGNS, "| workload |")}
    assert listed == {each: workload_named(each).shapes for each in shipped_workloads()}


def test_campaign_files_are_listed_with_their_world() -> None:
    listed = {codes(row[0])[0]: row[1].lower() for row in table(CAMPAIGNS, "| file |")}
    files = sorted((ROOT / "campaigns").glob("*.toml"))
    assert listed == {file.stem: open_system(read_configuration(file).system.name).world for file in files}


def test_sections_of_campaign_files_are_listed_with_their_fields() -> None:
    listed = {codes(row[0])[0].strip("[]"): codes(row[1]) for row in table(CAMPAIGNS, "| section |")}
    plan = TrialPlan()
    fields = {section: list(type(getattr(plan, section)).__struct_fields__) for section in SECTIONS}
    assert listed == fields
    (cluster,) = re.findall(r"`\[cluster\]` .*?: `([^`]+)`", CAMPAIGNS)
    assert cluster.split(", ") == list(ClusterSection.__struct_fields__)


def test_ways_to_break_recovery_are_listed_with_their_clauses() -> None:
    listed = [(codes(row[0])[0], row[1], tuple(row[2].split(", "))) for row in table(CAMPAIGNS, "| broken |")]
    assert listed == [(how.value, how.description, how.clauses) for how in BrokenRecovery]


def test_examples_of_campaign_files_can_be_read() -> None:
    examples = re.findall(r"```toml\n(.*?)```", CAMPAIGNS, re.DOTALL)
    assert len(examples) >= 3
    for example in examples:
        configuration_from(tomllib.loads(example), "docs/campaigns.md")


def test_page_of_planted_bugs_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "planted-bugs.md").read_text()
    assert page == bugs_page.as_markdown().rstrip("\n") + "\n", (
        "run: python -m barrier_tck.harness.reference.bugs.page > docs/planted-bugs.md"
    )


@pytest.mark.long
@pytest.mark.parametrize("campaign", ["wide-diamond", "two-inputs"])
def test_examples_of_jobs_run(campaign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(rf'```toml\n(name = "{campaign}".*?)```', CAMPAIGNS, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(text)
    assert run(["campaign", "job.toml"]) == 0


def test_page_of_checkers_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "checkers.md").read_text()
    command = "python -m barrier_tck.harness.oracle.checkers_page > docs/checkers.md"
    assert page == checkers_page.as_markdown(), f"run: {command}"


def test_traits_of_faults_are_listed() -> None:
    listed = {trait for row in table(CONTRIBUTING, "| trait |") for trait in codes(row[0])}
    listed -= {"faults/fields.py"}
    traits = {each for each in vars(Fault) | Fault.__annotations__ if not each.startswith("_")}
    derived = {
        "heals_after_ms",
        "link",
        "subtasks",
        "named",
        "numbers",
        "renamed",
        "scaled",
        "magnitudes",
        "simpler",
    }
    assert listed == traits - derived


def test_benchmarks_in_the_list_are_those_of_the_command() -> None:
    (listed,) = re.findall(r"`barrier-tck bench ([^`]+)`", COMMANDS)
    assert listed.split("\\|") == list(BENCHMARKS)


def test_commands_in_contributing_exist_with_their_options() -> None:
    for row in table(CONTRIBUTING, "| grain |"):
        for line in re.findall(r"`barrier-tck ([^`]+)`", row[1]):
            word, *rest = line.split()
            known = {option for parameter in commands()[word].params for option in parameter.opts}
            assert {each for each in rest if each.startswith("--")} <= known, line


def test_files_of_a_run_directory_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(["campaign", "--trials", "1", "--seed", "1", "--out", "runs"])
    (directory,) = (tmp_path / "runs").iterdir()
    written = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    listed = {each for row in table(RUN_DIRECTORY, "| file | content |") for each in codes(row[0])}
    assert "trials/00000/record.json" in written
    assert written <= listed
    sometimes = {"tried_first.jsonl", "learned.jsonl", "issues/01-SNK-1-exactly-once-output.md"}
    sometimes |= {"shrunk/00012.json", "controls/00012-read-again.json", "trials/00000/logs/"}
    sometimes |= {"trials.parquet/part-00001000.parquet", "alternatives/00012/"}
    assert listed - written == sometimes
