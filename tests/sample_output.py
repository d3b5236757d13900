"""The output that documents show below a command, and how it is made again: ``python -m tests.update_docs``.

Where plans are drawn, numbers are not compared: which plans a seed draws is up to Hypothesis' version, and times are
those of a machine.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.test_tidy import ROOT

LEFT_OUT = "…"
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Sample:
    """A block of commands in a document, and which lines of what they print are shown."""

    document: str
    begins: str
    """The first command of the block."""
    shown: tuple[str, ...] = ()
    """Regular expressions: a line that begins with one of them is shown. Empty: as many lines as are shown now."""
    files: Callable[[str], dict[str, str]] = lambda _: {}
    """The document's text -> the files that a reader has saved before, by name."""
    exact: bool = False
    """Whether numbers are compared, too."""

    @property
    def path(self) -> Path:
        return ROOT / self.document

    def block(self) -> str:
        """Return the text of the block, without its fences."""
        (found,) = re.findall(
            rf"^```console\n(\$ {re.escape(self.begins)}\n.*?)^```$",
            self.path.read_text(),
            re.MULTILINE | re.DOTALL,
        )
        return str(found)

    def made_again(self, directory: Path) -> str:
        """Run the commands of the block in an empty directory; return the block with what they print now."""
        for name, content in self.files(self.path.read_text()).items():
            (directory / name).write_text(content)
        lines: list[str] = []
        for command, below in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", self.block(), re.MULTILINE):
            command = with_todays_run(command, directory)
            printed = printed_by(command, directory)
            shown = self._shown_of(printed) if self.shown else printed[: len(below.splitlines())]
            lines += [f"$ {command}", *shown]
        return "\n".join(lines) + "\n"

    def same(self, block: str, other: str) -> bool:
        """Return whether two texts of the block say the same."""
        return block == other if self.exact else shape(block) == shape(other)

    def _shown_of(self, printed: list[str]) -> list[str]:
        lines: list[str] = []
        for line in printed:
            if any(re.match(pattern, line) for pattern in self.shown):
                lines.append(line.rstrip())
            elif lines and lines[-1] != LEFT_OUT:
                lines.append(LEFT_OUT)
        return lines[:-1] if lines and lines[-1] == LEFT_OUT else lines

    def update(self, numbers: bool = False) -> bool:
        """Write the block again if it is stale, and with ``numbers`` if only numbers differ; return whether it was."""
        before = self.block()
        with tempfile.TemporaryDirectory() as directory:
            after = self.made_again(Path(directory))
        if before == after or (not numbers and self.same(before, after)):
            return False
        self.path.write_text(self.path.read_text().replace(before, after))
        return True


def diamonds(page: str) -> dict[str, str]:
    """Return the plan that the page on judging shows, with each of the two bugs that it plants in it."""
    (text,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert text.count("SI-04") == 1
    return {"diamond.json": text, "diamond-uc.json": text.replace("SI-04", "UC-03")}


SAMPLES = (
    Sample(
        "README.md",
        "barrier-tck campaign --trials 50 --seed 1",
        (
            r"✓ VALID",
            r"Every property",
            r"\d+ trials: ",
            r"self-check: ",
            r"clause ",
            r"BAR-1 ",
            r"report: ",
        ),
    ),
    Sample(
        "README.md",
        "barrier-tck mutants --only SO-02",
        (
            r"SO-02 caught",
            r"  replays: ",
            r"runs/mutants-",
            r"  ran twice ",
            r"  exactly-once-output: ",
            r"    duplicated: id 0 ",
        ),
    ),
    Sample("docs/judging.md", "barrier-tck replay diamond.json", files=diamonds, exact=True),
    Sample("docs/judging.md", "barrier-tck replay diamond-uc.json", files=diamonds, exact=True),
    Sample("docs/guide/01-echo.md", "python -m examples.echo_system.echo", exact=True),
    Sample("docs/guide/02-lose-one.md", "python -m examples.echo_system.echo --lossy", exact=True),
)


def with_todays_run(command: str, directory: Path) -> str:
    """Return the command with the run directory that an earlier command of the block has made."""
    for named in re.findall(r"\S*/[a-z]+-\d{8}-\d{6}/\S*", command):
        (found,) = directory.glob(re.sub(r"\d{8}-\d{6}", "*", named))
        command = command.replace(named, found.relative_to(directory).as_posix())
    return command


def printed_by(command: str, directory: Path) -> list[str]:
    """Return what a command prints to its standard output in a directory, whatever its exit code is."""
    program, *arguments = shlex.split(command)
    installed = Path(sys.executable).parent / program
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [str(installed), *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode in (0, 1), finished.stderr
    return finished.stdout.splitlines()


def shape(block: str) -> list[str]:
    """Return the lines with every number, and every unit of time, replaced."""
    return [
        re.sub(r"\b[0-9a-f]{16}\b|\d[\d.,:-]*( m?s\b)?", "N", " ".join(line.split()))
        for line in block.splitlines()
    ]
