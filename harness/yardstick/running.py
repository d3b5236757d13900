"""Runs the rounds of the yardstick: ``barrier-tck`` itself, in an environment with another release of PySpark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.version import Version

from barrier_tck.harness.campaign.bisected_releases import (
    Release,
    ReleaseEnvironment,
    ReleasePlace,
    environment_again,
    made_environment,
)
from barrier_tck.harness.campaign.bisection import PlanRuns, run_elsewhere
from barrier_tck.harness.certify.engine.verification import read_certificate
from barrier_tck.harness.record.run_directory import latest_run, trial_directory
from barrier_tck.harness.record.run_reader import read_campaign
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.child_program import run_program
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.first_line import first_line
from barrier_tck.harness.support.notices import notice
from barrier_tck.harness.support.processor_time import processor_seconds
from barrier_tck.harness.yardstick.bugs import CampaignLook, CertificateLook, KnownBug
from barrier_tck.harness.yardstick.looking import Looked
from barrier_tck.harness.yardstick.results import Finding, Played, Round

PACKAGE = "pyspark"
PLAYED = 3
"""How often a finding is played with a release: real time does not repeat itself."""
_COMMAND = "barrier_tck.harness.cli.main"
_JOBS = "barrier_tck.harness.yardstick.jobs"
_TRIALS = 100_000
"""More than there is time for."""
_SUMMARY_MAX = 400
_NO_TIME = "nothing was tried to its end in the time that there was"
_WALL_PER_PROCESSOR = 4
"""A round that waits more than it works is ended after so many times its processor time."""
_FINDINGS, _ENVIRONMENTS = "findings", "environments"
_GATEWAY = "py4j"
"""What PySpark needs of its own version."""


def address_of(look: CampaignLook) -> str:
    """Return ``module:name`` of the job with which a bug is looked for."""
    return f"{_JOBS}:{look.job}"


@dataclass
class InEnvironments:
    """Runs rounds in one environment for each release, which is made once and kept.

    Raises:
        EnvironmentProblem: the disk refuses what is written.
    """

    out: Path
    """Where the results are; the findings go beside them."""
    work: Path
    """A directory for environments and run directories, which may be deleted."""
    place: ReleasePlace = field(default_factory=ReleasePlace)
    """Where pip finds the releases."""
    _environments: dict[str, ReleaseEnvironment | str] = field(default_factory=dict, init=False)

    def look(self, bug: KnownBug, seed: int, seconds: float) -> Looked:
        """Run a round with the release that has the bug."""
        environment = self._environment(bug.pyspark)
        if isinstance(environment, str):
            return Looked(Round(seed, 0, 0.0, 0.0), environment)
        directory = self.work / "runs" / bug.id / str(seed)
        directory.mkdir(parents=True, exist_ok=True)
        began, used = time.monotonic(), processor_seconds()

        def over() -> bool:
            waited = time.monotonic() - began > _WALL_PER_PROCESSOR * seconds
            return waited or processor_seconds() - used > seconds

        done = _run(environment, _arguments(bug, seed, directory), over)
        spent, waited = processor_seconds() - used, time.monotonic() - began
        try:
            tried, found = _found(bug, directory)
        except UsageProblem:  # it has left nothing that can be read; what it said is the reason
            tried, found = 0, []
        findings = tuple(self._kept(bug, f"{seed}-{number}", *each) for number, each in enumerate(found))
        problem = "" if tried else _NO_TIME if over() else _said(done)
        return Looked(Round(seed, tried, round(spent, 1), round(waited, 1), findings), problem)

    def play(self, bug: KnownBug, finding: Finding, release: str) -> tuple[Played, str]:
        """Play a finding with a release, several times until it shows again."""
        environment = self._environment(release)
        if isinstance(environment, str):
            return Played.UNKNOWN, environment
        notice(f"playing {finding.file} with {PACKAGE} {release}")
        file = self.out / finding.file
        if isinstance(bug.look, CampaignLook):
            wanted = PlanRuns(file, address_of(bug.look), PLAYED)
            outcome = run_elsewhere(str(environment.python), environment.variables, wanted)
            shown = {Verdict.VALID: Played.GONE, Verdict.INVALID: Played.THERE}
            return shown.get(outcome.verdict, Played.UNKNOWN), outcome.why
        return _replayed(environment, bug, file)

    def _environment(self, release: str) -> ReleaseEnvironment | str:
        """Return the environment with a release, or why there is none."""
        if release not in self._environments:
            self._environments[release] = self._made(release)
        return self._environments[release]

    def _made(self, release: str) -> ReleaseEnvironment | str:
        """Make the environment with a release, or take the one that was made; write what pip must install for it."""
        needed = self.out / _ENVIRONMENTS / f"{release}.txt"
        needed.parent.mkdir(parents=True, exist_ok=True)
        if release == metadata.version(PACKAGE):
            needed.write_text(f"{_GATEWAY}=={metadata.version(_GATEWAY)}\n{PACKAGE}=={release}\n")
            return ReleaseEnvironment(Path(sys.executable), dict(os.environ))
        wanted = Release(PACKAGE, Version(release))
        directory, whole = (self.work / _ENVIRONMENTS / name for name in (release, f"{release}.whole"))
        again = environment_again(wanted, directory) if whole.is_file() else None
        if again is not None:
            return again
        shutil.rmtree(directory, ignore_errors=True)
        scratch = self.work / "pip"
        scratch.mkdir(parents=True, exist_ok=True)
        notice(f"installing {wanted} into {directory}; this takes minutes")
        made = made_environment(wanted, self.place, directory, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(made, ReleaseEnvironment):
            needed.write_text("".join(f"{line}\n" for line in _requirements(directory)))
            whole.touch()
        return made

    def _kept(self, bug: KnownBug, number: str, what: str, summary: str, file: Path) -> Finding:
        """Copy the file that repeats a finding to the results, and return the finding."""
        name = f"{_FINDINGS}/{bug.id}-{number}.json"
        (self.out / _FINDINGS).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, self.out / name)
        return Finding(what, summary, name, f"barrier-tck {' '.join(_again(bug, Path(name)))}")


def _requirements(directory: Path) -> Iterator[str]:
    """Yield what is installed in an environment itself, as pip wants it."""
    packages = metadata.distributions(
        path=[str(path) for path in directory.glob("lib/python*/site-packages")]
    )
    yield from sorted(f"{one.name}=={one.version}" for one in packages)


def _settings(bug: KnownBug) -> list[str]:
    return [part for key, value in bug.settings.items() for part in ("--conf", f"{key}={value}")]


def _arguments(bug: KnownBug, seed: int, directory: Path) -> list[str]:
    """Return the command of a round. It names the job or the store, and nothing of what is to happen to it."""
    where = ["--seed", str(seed), "--out", str(directory), "--json"]
    if isinstance(bug.look, CertificateLook):
        return ["certify", bug.look.target, *_settings(bug), "--no-strength", *where]
    alone = ["--trials", str(_TRIALS), "--controls", "0", "--fail-fast", "--no-shrink", "--no-store"]
    return ["campaign", "--query", address_of(bug.look), *alone, *where]


def _again(bug: KnownBug, file: Path) -> list[str]:
    """Return the command that repeats a finding."""
    if isinstance(bug.look, CertificateLook):
        return ["certify", bug.look.target, *_settings(bug), "--replay", str(file)]
    return ["replay", str(file), "--system", address_of(bug.look), "--times", str(PLAYED)]


def _run(
    environment: ReleaseEnvironment, arguments: Sequence[str], until: Callable[[], bool] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(environment.python), "-P", "-m", _COMMAND, *arguments]
    return run_program(command, environment.variables, until)


def _replayed(environment: ReleaseEnvironment, bug: KnownBug, file: Path) -> tuple[Played, str]:
    """Play the replay file of a certificate with a release."""
    for _ in range(PLAYED):
        done = _run(environment, [*_again(bug, file), "--json"])
        if done.returncode == 1:
            return Played.THERE, ""
        if done.returncode != 0:
            return Played.UNKNOWN, _said(done)
    return Played.GONE, ""


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command gave no verdict, in one line."""
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
        return first_line(str(answer["error"]))
    except (IndexError, KeyError, TypeError, ValueError):
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return said[-1] if said else f"it ended with exit code {done.returncode} and said nothing"


def _found(bug: KnownBug, directory: Path) -> tuple[int, list[tuple[str, str, Path]]]:
    """Return how much a round has tried, and for each finding what it is, its summary, and the file that repeats it."""
    if isinstance(bug.look, CertificateLook):
        return _of_certificate(directory)
    path = latest_run(directory)
    record = read_campaign(path)
    found = []
    for group in record.groups:
        plan = trial_directory(path, group.smallest_trial) / "plan.json"
        if plan.is_file():
            found.append((f"{group.checker} ({group.clause})", group.summary, plan))
    return record.trials, found


def _of_certificate(directory: Path) -> tuple[int, list[tuple[str, str, Path]]]:
    """Return the same of what a certification has written, to its end or not."""
    files = sorted(directory.glob("*/certificate.json"))
    if not files:
        return 0, []
    certificate = read_certificate(files[-1])
    failed = [one for one in certificate.outcomes if one.status == "failed" and one.replay]
    return sum(one.examples for one in certificate.outcomes), [
        (f"{one.name} ({one.violated})", _in_short(one.reason), files[-1].parent / str(one.replay))
        for one in failed
    ]


def _in_short(reason: str) -> str:
    """Return a reason as one line: the first one of Spark's may say nothing."""
    line = " ".join(reason.split())
    return line if len(line) <= _SUMMARY_MAX else f"{line[:_SUMMARY_MAX]}…"
