"""What each supported release of Spark was tried with: runs it, and makes docs/releases.md of what came of it.

``run`` tries the release that is installed in its environment (tox has one for each line, ``tox -e spark40``) and adds
a line for each certificate and each campaign to ``--lines``. ``page`` prints the page from these lines:

    python tests/spark_releases.py run --out runs
    python tests/spark_releases.py page > docs/releases.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from barrier_tck.harness.cluster.spark_releases import TESTED, runs_reference
from barrier_tck.harness.support.version_numbers import release_numbers

ROOT = Path(__file__).resolve().parents[1]
LINES = Path(__file__).with_suffix(".jsonl")
_WRONG = 2
"""Exit codes of a command up to this one say what it found; higher ones that it could not run."""


@dataclass(frozen=True)
class Trying:
    """Something that a release is tried with."""

    name: str
    what: str
    command: tuple[str, ...]
    needs_reference: bool = False

    @property
    def is_certificate(self) -> bool:
        return self.command[0] == "certify"


def _certificate(target: str) -> Trying:
    command = ("certify", target, "--level", "crash", "--no-spark", "--no-strength")
    return Trying(f"certify {target}", "certificate of a state store that comes with Spark", command)


TRYINGS = (
    Trying(
        "structured_streaming",
        "a query of Structured Streaming while faults strike",
        ("campaign", "campaigns/structured_streaming.toml", "--no-store"),
    ),
    _certificate("spark:hdfs"),
    _certificate("spark:rocksdb"),
    _certificate("spark:rocksdb-changelog"),
    Trying(
        "flights",
        "the reference runtime on real input while faults strike",
        ("campaign", "campaigns/flights.toml", "--no-store"),
        needs_reference=True,
    ),
)


def line_of(trying: Trying, told: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """Return what is kept of one run: ``told`` is what the command printed with ``--json``."""
    if trying.is_certificate:
        outcomes = told["outcomes"]
        counts = {
            status: sum(one["status"] == status for one in outcomes)
            for status in ("passed", "failed", "skipped")
        }
        found = [
            f"{one['name']}: {one['reason']}"
            for one in outcomes
            if one["status"] not in ("passed", "skipped")
        ]
        lacks = sorted({one["reason"] for one in outcomes if one["status"] == "skipped" and one["reason"]})
        verdict = told["verdict"] if told["verdict"] != "certified" else f"certified: {told['level']}"
    else:
        counts = {verdict: told[verdict] for verdict in ("valid", "unknown", "invalid")}
        found = [f"{one['checker']}: {one['summary']}" for one in told["findings"]]
        lacks = list(told["notices"])
        verdict = told["verdict"]
    return {
        "release": told["environment"]["pyspark"],
        "tried": trying.name,
        "verdict": verdict,
        "counts": counts,
        "found": found,
        "lacks": lacks,
        "seconds": round(told["seconds"] if trying.is_certificate else told["wall_seconds"]),
        "seed": told["seed"],
        "commit": commit,
        "day": told["started_at"][:10],
    }


def run(only: Sequence[str], out: Path, lines: Path) -> int:
    """Try the installed release; return the number of what could not be run or is wrong."""
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD") or "unknown"
    problems = 0
    for trying in TRYINGS:
        if (only and trying.name not in only) or (trying.needs_reference and not runs_reference()):
            continue
        command = [
            sys.executable,
            "-m",
            "barrier_tck.harness.cli.main",
            *trying.command,
            "--json",
            "--out",
            str(out),
        ]
        print(f"pyspark {metadata.version('pyspark')}: {' '.join(trying.command)}", flush=True)
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        printed = done.stdout.strip().splitlines()
        if done.returncode > _WRONG or not printed:
            print(f"could not be run: exit code {done.returncode}", file=sys.stderr)
            problems += 1
            continue
        told = json.loads(printed[-1])
        line = line_of(trying, _whole(told, trying), commit)
        with lines.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{line['tried']}: {line['verdict']}, {line['seconds']} s", flush=True)
        problems += done.returncode != 0
    return problems


def _whole(told: Mapping[str, Any], trying: Trying) -> dict[str, Any]:
    """Return what a command wrote into its directory, of which it prints a part."""
    file = Path(told["certificate"]) if trying.is_certificate else Path(told["run_directory"], "report.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


# --- the page -----------------------------------------------------------------------------------------------

_HEAD = """\
# Releases of Spark

What the newest patch of each supported line of Spark was tried with, and what came of it. The reference runtime needs
Spark 4.0. Before 4.0, Spark has no data source that reads the state of a query, so the state in between is not judged
there; its state stores have one column family, and no ids of commits. `tox -e spark35` (to `spark43`) tries a release
again.

<!-- Generated: python tests/spark_releases.py page > docs/releases.md -->
"""


def newest(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the last line of each release and of what it was tried with."""
    return {(line["release"], line["tried"]): line for line in lines}


def page_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page in Markdown."""
    last = newest(lines)
    releases = sorted({release for release, _ in last}, key=release_numbers)
    parts = [_HEAD, "| tried | " + " | ".join(releases) + " |", "|---" * (len(releases) + 1) + "|"]
    for trying in TRYINGS:
        cells = [_cell(last.get((release, trying.name)), trying, release) for release in releases]
        parts.append(f"| `{trying.name}`: {trying.what} | " + " | ".join(cells) + " |")
    parts += ["", "## What was found", ""]
    found = [
        f"- {release}, `{name}`: {text}" for (release, name), line in last.items() for text in line["found"]
    ]
    parts += sorted(found) or ["Nothing."]
    parts += ["", "## What was not checked", ""]
    lacking = [
        f"- {release}, `{name}`: {text}" for (release, name), line in last.items() for text in line["lacks"]
    ]
    parts += sorted(lacking) or ["Nothing."]
    parts += [
        "",
        "## The runs",
        "",
        "| release | tried | day | commit | seed | took |",
        "|---|---|---|---|---|---|",
    ]
    parts += [
        f"| {release} | `{name}` | {line['day']} | {line['commit']} | {line['seed']} | {line['seconds']} s |"
        for (release, name), line in sorted(
            last.items(), key=lambda item: (release_numbers(item[0][0]), item[0][1])
        )
    ]
    return "\n".join(parts) + "\n"


def _cell(line: Mapping[str, Any] | None, trying: Trying, release: str) -> str:
    if line is None:
        return "not supported" if trying.needs_reference and release_numbers(release) < (4, 0) else "not run"
    counts = ", ".join(f"{number} {name}" for name, number in line["counts"].items() if number)
    return f"{line['verdict'].upper() if not trying.is_certificate else line['verdict']} ({counts})"


def read_lines(file: Path = LINES) -> list[dict[str, Any]]:
    """Return what is kept of all runs."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def untried(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each tested release without a line."""
    known = {line["release"] for line in lines}
    yield from (release for release in TESTED if release not in known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    trying = commands.add_parser("run", help="try the installed release")
    trying.add_argument("--out", type=Path, default=ROOT / "runs", help="the directory of run directories")
    trying.add_argument("--lines", type=Path, default=LINES, help="where a line for each run is added")
    trying.add_argument("--only", action="append", default=[], choices=[one.name for one in TRYINGS])
    commands.add_parser("page", help="print docs/releases.md")
    asked = parser.parse_args(arguments)
    if asked.command == "page":
        print(page_of(read_lines()), end="")
        return 0
    return min(1, run(asked.only, asked.out, asked.lines))


if __name__ == "__main__":
    sys.exit(main())
