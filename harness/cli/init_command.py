"""``barrier-tck init``: write a first file of what people bring, or a shipped campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.shipped import (
    EXAMPLES,
    SKELETONS,
    Skeleton,
    shipped_campaigns,
    shipped_examples,
)
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown


def init(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="campaign|system|backend|query|workload|storage|ci|examples|NAME",
            autocompletion=completion.first_files,
            help="What to write; NAME is a campaign file that comes with barrier-tck. Without it, all are listed.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The file (or folder of examples) to write, which must not exist. Default: its usual name.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a first file, which runs unchanged.

    \b
    Examples:
      barrier-tck init                        list what can be written
      barrier-tck init campaign               campaign.toml
      barrier-tck init system                 my_system.py
      barrier-tck init backend                my_backend.py
      barrier-tck init query                  my_query.py, for a query of Structured Streaming
      barrier-tck init workload               my_workload.py, and my_workload.toml, which runs it
      barrier-tck init storage                my_storage.py
      barrier-tck init ci                     .github/workflows/barrier-tck.yml
      barrier-tck init examples               examples, a folder with all that the guide shows
      barrier-tck init graphs                 graphs.toml, a campaign file that comes with barrier-tck
    """
    console = console_for(as_json)
    if what is None:
        _list(console, as_json)
        return
    if what == "examples":
        _write_examples(file or Path(what), console, as_json)
        return
    skeleton = _chosen(what)
    path = file if file is not None else Path(skeleton.file)
    if skeleton.file.endswith(".py") and not (path.suffix == ".py" and path.stem.isidentifier()):
        raise UsageProblem(
            f"{path} could not be imported: a module's name has letters, digits and _ only, and ends with .py"
        )
    campaign = path.with_suffix(".toml")
    contents = {path: skeleton.text()}
    if skeleton.campaign is not None:
        contents[campaign] = skeleton.text_of_campaign(campaign, path.stem)
    for each in contents:
        if each.exists():
            raise UsageProblem(f"{each} exists already; name another file, or move it away")
    if file is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    if not path.absolute().parent.is_dir():
        raise UsageProblem(f"{path.parent} is not a directory; create it first")
    for each, text in contents.items():
        write_atomically(each, text.encode())
    use = skeleton.use.format(file=path, module=path.stem, campaign=campaign)
    console.print(f"wrote {' and '.join(map(str, contents))}; to use it: {use}")
    emit(as_json, {"file": str(path), "use": use})


def _write_examples(folder: Path, console: VerdictConsole, as_json: bool) -> None:
    """Write the folder of examples, which is a package in the working directory."""
    if folder.exists():
        raise UsageProblem(f"{folder} exists already; name another folder, or move it away")
    if not folder.name.isidentifier():
        raise UsageProblem(f"{folder} could not be imported: a package's name has letters, digits and _ only")
    for path, text in shipped_examples().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / path, text.encode())
    use = f"python -m {folder.name}.echo_system.echo"
    console.print(f"wrote {folder}; to run the first one: {use}")
    emit(as_json, {"file": str(folder), "use": use})


def _chosen(what: str) -> Skeleton:
    """Return the skeleton of that name, or a shipped campaign file as one."""
    if what in SKELETONS:
        return SKELETONS[what]
    campaigns = {_own_name(name): campaign for name, campaign in shipped_campaigns().items()}
    if what not in campaigns:
        raise UsageProblem(
            f"there is no file {shown(what)} to write{nearest(what, [*SKELETONS, 'examples', *campaigns])}"
        )
    return campaigns[what].as_skeleton()


def _own_name(campaign: str) -> str:
    """Return by which name a shipped campaign can be written: another first file may have its name."""
    return f"{campaign}.toml" if campaign in SKELETONS else campaign


def _list(console: VerdictConsole, as_json: bool) -> None:
    """Print which files can be written."""
    campaigns = shipped_campaigns()
    descriptions = {
        **{name: skeleton.description for name, skeleton in SKELETONS.items()},
        "examples": EXAMPLES,
        **{
            _own_name(name): f"{campaign.description} ({campaign.system})"
            for name, campaign in campaigns.items()
        },
    }
    width = max(map(len, descriptions))
    for name, description in descriptions.items():
        console.print(f"{name:{width}} {description}")
    emit(
        as_json,
        {
            "skeletons": list(SKELETONS),
            "campaigns": {
                name: {"system": entry.system, "about": entry.description}
                for name, entry in campaigns.items()
            },
        },
    )
