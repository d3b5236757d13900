"""Documents are compared with the code, so that they cannot become outdated; grain: text.

``test_tidy.py`` checks that linked files exist, that a document has one title, and that the tox environments that it
names exist.
"""

from __future__ import annotations

import ast
import pydoc
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import typer
import yaml

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.certify.engine.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    ClauseResult,
    PropertyOutcome,
    Strength,
    TrialShown,
)
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.main import app, run
from barrier_tck.harness.record.history import History, Recorded
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.records import (
    CampaignRecord,
    FaultRecord,
    SnapshotRecord,
    TrialRecord,
    TrialSummary,
)
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, OperatorSnapshot, StateHandle
from tests.sample_output import SAMPLES, Sample, shape
from tests.test_tidy import FOLDERS, ROOT, markdown_files, name, python_files, tree_of

README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
RUN_DIRECTORY = (ROOT / "docs" / "run-directory.md").read_text()
DECISIONS = ROOT / "docs" / "decisions"
FOR_USERS = ("Three ways to start", "How to", "Reference")
"""The parts of the site's contents whose pages need no checkout."""
_CODE = re.compile(r"(```|~~~).*?\1", re.DOTALL)


def headings(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as code-hosting sites make them."""
    lines = _CODE.sub("", document.read_text()).splitlines()
    titles = [line.lstrip("#").strip() for line in lines if re.match(r"#+ \S", line)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@cache
def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def rows(document: str, first_cell: str) -> list[list[str]]:
    """Return the cells of the table rows whose first cell matches, without their code marks."""
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in document.splitlines()
        if line.startswith("|")
    ]
    return [row for row in cells if row and re.fullmatch(first_cell, row[0])]


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_anchors_of_links_exist(document: Path) -> None:
    dead = []
    for path, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", _CODE.sub("", document.read_text())):
        target = document.parent / path if path else document
        if "://" not in path and target.suffix == ".md" and anchor not in headings(target):
            dead.append(f"{path}#{anchor}")
    assert not dead, f"{name(document)} links to headings that do not exist: {dead}"


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_commands_in_documents_exist(document: Path) -> None:
    named = set(re.findall(r"\bbarrier-tck ([a-z]+)\b(?=[ `\n]|$)", _shell_text(document.read_text())))
    assert named <= set(commands()), f"{name(document)}: no such commands: {named - set(commands())}"


def _shell_text(text: str) -> str:
    """Return what a reader would type: inline code, and the lines in code blocks that begin with a prompt."""
    blocks = "\n".join(block[2] for block in re.finditer(r"```(sh|console)\n(.*?)```", text, re.DOTALL))
    inline = re.findall(r"`([^`\n]+)`", _CODE.sub("", text))
    return "\n".join([*re.findall(r"^\$? ?(barrier-tck .*)$", blocks, re.MULTILINE), *inline])


def options_of(command: Any) -> set[str]:
    """Return the options of a command, among them those that switch something off."""
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_every_command_is_listed_with_options_that_exist() -> None:
    listed = rows(COMMANDS, r"`barrier-tck .*`")
    assert sorted({row[0].split()[1].strip("`") for row in listed}) == sorted(commands())
    for row in listed:
        command = commands()[row[0].split()[1].strip("`")]
        known = options_of(command)
        assert set(re.findall(r"--[a-z-]+", row[0])) <= known, row[0]


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_options_in_examples_exist(document: Path) -> None:
    for line in re.findall(r"barrier-tck ([a-z-]+)((?: [^`\n]*)?)", _shell_text(document.read_text())):
        command, rest = line
        if command not in commands():
            continue  # the test above tells of it
        known = options_of(commands()[command])
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, line


def test_readme_tells_the_exit_codes_of_the_verdicts() -> None:
    for verdict, code in EXIT_CODES.items():
        assert [row[-1] for row in rows(README, verdict.value.upper())] == [str(code)]


@pytest.mark.parametrize("what", ["backend", "system"])
def test_init_writes_what_the_readme_names(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", what]) == 0
    (target,) = re.findall(rf"\bmy_{what}:\w+", README)
    assert target in capsys.readouterr().out
    assert (tmp_path / f"{target.partition(':')[0]}.py").is_file()


@pytest.mark.long
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.begins)
def test_sample_output_is_what_the_commands_print(sample: Sample, tmp_path: Path) -> None:
    shown, made = sample.block(), sample.made_again(tmp_path)
    assert sample.same(shown, made), f"{sample.document} is stale; run: python -m tests.update_docs\n{made}"


@pytest.mark.long
def test_a_stale_sample_output_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("Before.\n\n```console\n$ barrier-tck init\nold\n```\n\nAfter.\n")
    sample = Sample("page.md", "barrier-tck init", (r"\s*flights",))
    monkeypatch.setattr(Sample, "path", tmp_path / "page.md")
    assert sample.update()
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("Before.\n\n```console\n$ barrier-tck init\n") and text.endswith("```\n\nAfter.\n")
    assert "old" not in text and "flights" in text
    assert not sample.update()


def test_a_sample_with_older_numbers_is_written_again_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ barrier-tck campaign\n90 of 90 fired; 1.04 s\n```\n")
    monkeypatch.setattr(Sample, "path", page)
    monkeypatch.setattr(
        "tests.sample_output.printed_by", lambda command, directory: ["101 of 101 fired; 2.79 s"]
    )
    sample = Sample("page.md", "barrier-tck campaign")
    assert not sample.update() and "90 of 90" in page.read_text()
    assert sample.update(numbers=True) and "101 of 101" in page.read_text()


def test_lines_of_a_sample_differ_if_more_than_numbers_do() -> None:
    assert shape("10 of 12 fired; 1.28 s") == shape("9 of 9 fired; 853 ms")
    assert shape("10 of 12 fired") != shape("10 of 12 struck")


@pytest.mark.parametrize(
    ("text", "limit"), [(README, 85), (ARCHITECTURE, 110)], ids=["README", "ARCHITECTURE"]
)
def test_what_a_newcomer_reads_first_is_short(text: str, limit: int) -> None:
    assert len(text.splitlines()) <= limit, "move what is new to a page of docs/"


def test_names_in_the_glossary_exist_in_the_code() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", (ROOT / "docs" / "glossary.md").read_text()))
    assert len(named) > 30
    defines = re.compile(rf"\b(?:class (?:{'|'.join(named)})\b|(?:{'|'.join(named)}) = )")
    defined: set[str] = set()
    for path in python_files(*FOLDERS):
        if not defines.search(path.read_text()):
            continue  # most modules define none of them, and need not be parsed
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Assign):
                defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert named <= defined, f"the glossary names what does not exist: {sorted(named - defined)}"


def test_words_of_the_glossary_are_there_once() -> None:
    words: list[str] = []
    for row in rows((ROOT / "docs" / "glossary.md").read_text(), r"(?!word$|-+$).+"):
        words += [word.strip() for word in re.sub(r"\(.*?\)", "", row[0]).split(",")]
    assert len(words) == len(set(words))
    kept_apart = "barrier checkpoint snapshot savepoint subtask attempt decline abort expire subsume"
    harness = "history story trace trial campaign nemesis clause capability verdict"
    assert set(f"{kept_apart} {harness}".split()) <= set(words)


@pytest.mark.parametrize("document", markdown_files(), ids=name)
def test_clauses_named_in_documents_exist(document: Path) -> None:
    prefixes = {identifier.partition("-")[0] for identifier in CLAUSES}
    named = {
        identifier
        for identifier in re.findall(r"\b([A-Z]{3}-\d+)\b", document.read_text())
        if identifier.partition("-")[0] in prefixes
    }
    assert named <= set(CLAUSES), f"{name(document)} names no clauses: {sorted(named - set(CLAUSES))}"


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("campaign.json", CampaignRecord),
        ("trials.jsonl", TrialSummary),
        ("trials/00000/record.json", TrialRecord),
        ("trials/00000/faults.jsonl", FaultRecord),
        ("trials/00000/metrics.jsonl", SnapshotRecord),
        ("trials/00000/history.jsonl", Recorded),
    ],
)
def test_columns_of_the_run_directory_are_those_of_the_records(file: str, kind: type[msgspec.Struct]) -> None:
    (row,) = rows(RUN_DIRECTORY, re.escape(f"`{file}`"))
    assert _fields(row[1]) == set(kind.__struct_encode_fields__)


def test_outcome_file_holds_the_history_without_its_operations() -> None:
    (row,) = rows(RUN_DIRECTORY, re.escape("`trials/00000/outcome.json`"))
    assert _fields(row[1]) == set(History.__struct_fields__) - {"operations"}


def _fields(cell: str) -> set[str]:
    return {word for word in _columns(cell) if re.fullmatch("[a-z_]+", word)}


def _columns(cell: str) -> list[str]:
    return [word.strip() for code in re.findall(r"`([^`]+)`", cell) for word in code.split(",")]


def test_steps_of_the_trace_in_the_document_are_those_of_the_simulator() -> None:
    sources = "\n".join(path.read_text() for path in python_files("harness/reference/simulated"))
    taken = set(re.findall(r"_trace\(\"(\w+)\"", sources))
    taken |= set(re.findall(r"trace\.add\(\([^\n]*?, \"(\w+)\", ", sources))
    taken |= set(re.findall(r"\.receive_notice\(\"(\w+)\"", sources))
    taken |= set(re.findall(r"_note\(\(now, self\.name, \"(\w+)\"", sources))
    section = (ROOT / "docs" / "trace.md").read_text().partition("## `history.jsonl`")[0]
    listed = {row[0].strip("`") for row in rows(section, r"`\w+`")}
    assert listed == taken


def test_operations_of_the_history_in_the_document_are_the_structs() -> None:
    table = (ROOT / "docs" / "trace.md").read_text().partition("| kind | fields |")[2].partition("\n\n")[0]
    listed = {row[0].strip("`"): _columns(row[1]) for row in rows(table, r"`\w+`")}
    structs = {str(kind.__struct_config__.tag): list(kind.__struct_fields__) for kind in get_args(Operation)}
    assert listed == structs


@pytest.mark.parametrize(
    ("table", "fields"),
    [
        ("header", ["format", "version", "size", "checksum"]),
        ("body", list(CompletedCheckpoint.__struct_fields__)),
        ("operator", list(OperatorSnapshot.__struct_fields__)),
        ("handle", list(StateHandle.__struct_fields__)),
    ],
)
def test_fields_of_the_metadata_in_the_document_are_those_that_are_written(
    table: str, fields: list[str]
) -> None:
    page = (ROOT / "docs" / "checkpoint-files.md").read_text()
    part = re.split(rf"\| field of (?:the|an|a) {table} \| meaning \|", page)[1].partition("\n\n")[0]
    assert [name for row in rows(part, r"`.*`") for name in _columns(row[0])] == fields


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("a certificate", Certificate),
        ("an outcome", PropertyOutcome),
        ("a trial", TrialShown),
        ("a clause", ClauseResult),
        ("the strength", Strength),
    ],
)
def test_fields_of_the_certificate_in_the_document_are_those_that_are_written(
    table: str, kind: type[msgspec.Struct]
) -> None:
    page = (ROOT / "docs" / "certificate.md").read_text()
    assert f"version {CERTIFICATE_VERSION} of the format" in page
    part = page.partition(f"| field of {table} | meaning |")[2].partition("\n\n")[0]
    listed = [field for row in rows(part, r"`.*`") for field in _columns(row[0])]
    assert sorted(listed) == sorted(kind.__struct_fields__)


def pages_for_users() -> list[Path]:
    """Return the pages that somebody reads who has the package and not the repository."""
    contents = yaml.safe_load((ROOT / "docs" / "_toc.yml").read_text())["subtrees"]
    theirs = [part["entries"] for part in contents if part["caption"] in FOR_USERS]
    assert len(theirs) == len(FOR_USERS)
    return [ROOT / "docs" / f"{entry['file']}.md" for entries in theirs for entry in entries]


def test_the_site_begins_with_the_ways_to_start_of_the_readme() -> None:
    first, *_ = yaml.safe_load((ROOT / "docs" / "_toc.yml").read_text())["subtrees"]
    assert f"## {first['caption']}" in README.splitlines()
    ways = rows(README.partition(f"## {first['caption']}")[2].partition("\n## ")[0], r"(?!you want|---).*")
    assert len(ways) == 3
    listed = {f"docs/{entry['file']}.md" for entry in first["entries"]}
    for _, _, pages in ways:
        links = re.findall(r"\]\(([^)]+)\)", pages)
        assert links[0] in listed


def only_in_a_checkout(text: str) -> list[str]:
    """Return which files of the repository a page names, without a link to them.

    Examples are no such files if the page says how they are had.
    """
    text = re.sub(r"\[[^\]]*\]\([^)]*\)|<!--.*?-->", "", text, flags=re.DOTALL)
    folders = {*FOLDERS, "benchmarks", "campaigns", "docs", "examples", "tests"}
    named = re.findall(rf"(?<![\w./-])(?:\./)?((?:{'|'.join(sorted(folders))})/[\w./-]*)", text)
    had = {"examples"} if "barrier-tck init examples" in text else set[str]()
    return [path for path in named if path.partition("/")[0] not in had]


@pytest.mark.parametrize("page", pages_for_users(), ids=name)
def test_a_page_for_users_names_no_file_that_they_do_not_have(page: Path) -> None:
    assert not only_in_a_checkout(page.read_text()), "link to it, or name what the package has"


def test_what_only_a_checkout_has_is_found() -> None:
    assert only_in_a_checkout("`harness/plan/trial_plan.py`, campaigns/ci.toml\nexamples/echo_system") == [
        "harness/plan/trial_plan.py",
        "campaigns/ci.toml",
        "examples/echo_system",
    ]
    assert not only_in_a_checkout(
        "[its source](../harness/plan/trial_plan.py), /mnt/reports/x, runs/reports/y"
    )
    assert not only_in_a_checkout("`barrier-tck init examples` writes examples/echo_system")


def test_changelog_begins_with_what_is_unreleased_and_has_a_date_for_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}", sections[1])


def test_decisions_are_numbered_and_of_one_form() -> None:
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        assert record.read_text().startswith(f"# {record.name[:4]}: ")
        assert headings(record) >= {
            "context",
            "decision",
            "rejected",
            "consequences",
            "what-would-change-our-mind",
        }, record.name


def test_every_decision_is_listed_once_by_topic_with_its_status() -> None:
    listed = rows((DECISIONS / "README.md").read_text(), r"\[\d{4}\]\(.*\)")
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    assert sorted(row[0] for row in listed) == [f"[{record.name[:4]}]({record.name})" for record in records]
    for number, title, status in listed:
        record = DECISIONS / re.findall(r"\((.*)\)", number)[0]
        assert record.read_text().startswith(f"# {record.name[:4]}: {title}\n")
        assert re.match(r"(in force|replaced by \[|in part replaced)", status), record.name


def test_a_decision_that_replaces_another_is_named_in_the_status_of_that_one() -> None:
    listed = rows((DECISIONS / "README.md").read_text(), r"\[\d{4}\]\(.*\)")
    status = {row[0][1:5]: row[2] for row in listed}
    replaced: set[tuple[str, str]] = set()
    for record in sorted(DECISIONS.glob("[0-9]*.md")):
        for verb, older in re.findall(
            r"^(Supersedes|Replaces|Amends|Adds to)\b[^.]*?\b(\d{4})\b", record.read_text(), re.MULTILINE
        ):
            assert f"[{record.name[:4]}]" in status[older], f"{record.name} {verb.lower()} {older}"
            replaced.add((record.name[:4], older))
    assert len(replaced) >= 7
    # And back: no status names a decision that does not know of the older one.
    for older, text in status.items():
        for newer in re.findall(r"\[(\d{4})\]", text):
            (record,) = DECISIONS.glob(f"{newer}-*.md")
            (other,) = DECISIONS.glob(f"{older}-*.md")
            assert older in record.read_text() or newer in other.read_text(), f"{newer} and {older}"


def test_protocol_points_named_in_the_decisions_and_the_guide_exist() -> None:
    points = {point.name for point in ProtocolPoint}
    for document in markdown_files():
        named = set(re.findall(r"\bProtocolPoint\.([A-Z_]+)\b", document.read_text()))
        assert named <= points, name(document)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_tells_its_purpose_and_who_may_import_it(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    assert re.search(r"^## Who (may import it|imports what)$", text, re.MULTILINE)
    assert re.search(r"^## How to add ", text, re.MULTILINE)


REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
_MADE_OF = re.compile(r"<!-- of: (\S+)[^\n]* -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_a_reference_page_has_the_members_of_what_it_is_made_of(page: Path) -> None:
    """Whether it is what the source gives is compared where the site is built (``tests/reference_pages.py``)."""
    parts = _MADE_OF.findall(page.read_text())
    assert len(parts) > 5
    for of, content in parts:
        found = pydoc.locate(of)
        assert found is not None, of
        assert "### `" in content, of
        if isinstance(found, type):
            shown = set(re.findall(r"^- `(\w+)", content, re.MULTILINE))
            own = [one for one in getattr(found, "__annotations__", {}) if not one.startswith("_")]
            assert shown.issuperset(own), of
