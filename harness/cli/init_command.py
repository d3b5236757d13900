"""``barrier-tck init``: write a first file: a campaign, a system, a backend, or a shipped campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.shipped import SKELETONS, shipped_campaigns
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown


def init(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="campaign|system|backend|NAME",
            help="What to write; NAME is a campaign file that comes with barrier-tck. Without it, all are listed.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The file to write, which must not exist. Default: the usual name of such a file.",
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
      barrier-tck init graphs                 graphs.toml, a campaign file that comes with barrier-tck
    """
    console = console_for(as_json)
    if what is None:
        _list(console, as_json)
        return
    name, use, text = _chosen(what)
    path = file if file is not None else Path(name)
    if path.exists():
        raise UsageProblem(f"{path} exists already; name another file, or move it away")
    module = name.endswith(".py")
    if module and not (path.suffix == ".py" and path.stem.isidentifier()):
        raise UsageProblem(
            f"{path} could not be imported: a module's name has letters, digits and _ only, and ends with .py"
        )
    if not path.absolute().parent.is_dir():
        raise UsageProblem(f"{path.parent} is not a directory; create it first")
    write_atomically(path, text.encode())
    use = use.format(file=path, module=path.stem)
    console.print(f"wrote {path}; to use it: {use}")
    emit(as_json, {"file": str(path), "use": use})


def _chosen(what: str) -> tuple[str, str, str]:
    """Return the file's usual name, the command that uses it, and its text."""
    if what in SKELETONS:
        skeleton = SKELETONS[what]
        return skeleton.file, skeleton.use, skeleton.text()
    campaigns = shipped_campaigns()
    if what not in campaigns:
        raise UsageProblem(
            f"there is no file {shown(what)} to write{nearest(what, [*SKELETONS, *campaigns])}"
        )
    return f"{what}.toml", SKELETONS["campaign"].use, campaigns[what].text


def _list(console: VerdictConsole, as_json: bool) -> None:
    """Print which files can be written."""
    campaigns = shipped_campaigns()
    for name, skeleton in SKELETONS.items():
        console.print(f"{name:16} {skeleton.description}")
    for name, campaign in campaigns.items():
        console.print(f"{name:16} {campaign.description} ({campaign.system})")
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
