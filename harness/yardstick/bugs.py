"""The bugs of the yardstick as data: what each is, in which releases it was, and how it is looked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Literal

import msgspec
from packaging.version import Version

from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import convert, nearest, parse_toml

_FILE = "bugs.toml"
_SENTENCE = Annotated[str, msgspec.Meta(min_length=1)]
_RELEASE = Annotated[str, msgspec.Meta(pattern=r"^(\d+\.\d+\.\d+)?$")]
"""A release of PySpark; empty: there is none."""
_LINK = Annotated[str, msgspec.Meta(pattern=r"^(https://\S+)?$")]
_JOB = re.compile(r"[a-z_][a-z0-9_]*")


class CertificateLook(Bounded, frozen=True, tag="certificate"):
    """The bug is looked for with ``barrier-tck certify``."""

    target: Annotated[str, msgspec.Meta(pattern=r"^spark:[\w.$-]+$")]
    """The state store, as the command names it."""


class CampaignLook(Bounded, frozen=True, tag="campaign"):
    """The bug is looked for with ``barrier-tck campaign --query``."""

    job: str
    """The name of a ``StreamingJob`` in ``harness.yardstick.jobs``; empty if there can be none."""


class KnownBug(Bounded, frozen=True):
    """A bug that was in released versions of Spark."""

    id: Annotated[str, msgspec.Meta(pattern=r"^SPARK-\d+$")]
    title: _SENTENCE
    report: _LINK
    fix: _LINK
    """The pull request that mended it; empty: nobody has."""
    first_affected: _RELEASE
    """The first release with the bug, of those from 3.4.0 on."""
    last_affected: _RELEASE
    fixed_in: tuple[_RELEASE, ...]
    """The first release of each line in which it is mended."""
    versions_from: _SENTENCE
    """How it was made sure which releases have the bug."""
    pyspark: _RELEASE
    """The release in which it is looked for; empty if no release that can be installed has it."""
    compared: _RELEASE
    """A release without the bug, in which what was found must be gone."""
    seen: _SENTENCE
    """What a user sees."""
    chosen_by: Literal["the issue's list", "search"]
    """Why it is listed: before it was known whether it is found, in any case."""
    look: CertificateLook | CampaignLook
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark, as a user would write them: the job's ``conf``, or ``--conf`` of ``certify``."""
    cannot_run: str = ""
    """Why it cannot be looked for at all; empty if it can."""


class _BugFile(Bounded, frozen=True):
    bug: tuple[KnownBug, ...]


def known_bugs() -> tuple[KnownBug, ...]:
    """Return the bugs of the yardstick, in the order of their file."""
    text = resources.files("barrier_tck.harness.yardstick").joinpath(_FILE).read_text(encoding="utf-8")
    return read_bugs(text, _FILE)


def read_bugs(text: str, source: str) -> tuple[KnownBug, ...]:
    """Read a file of bugs; raises UsageProblem for whatever is wrong in it."""
    bugs = convert(parse_toml(text, source), _BugFile, source).bug
    seen = set()
    for bug in bugs:
        for problem in _problems(bug):
            raise UsageProblem(f"{source}: {bug.id}: {problem}")
        if bug.id in seen:
            raise UsageProblem(f"{source}: {bug.id} is listed twice")
        seen.add(bug.id)
    return bugs


def chosen_bugs(bugs: Sequence[KnownBug], only: Sequence[str]) -> tuple[KnownBug, ...]:
    """Return the bugs with some ids, in the order of their file; all if none is named. Raises UsageProblem."""
    by_id = {bug.id: bug for bug in bugs}
    for name in only:
        if name not in by_id:
            raise UsageProblem(f"the yardstick has no bug {name!r}{nearest(name, tuple(by_id))}")
    return tuple(bug for bug in bugs if not only or bug.id in only)


def settings_of(identifier: str) -> dict[str, str]:
    """Return the settings of a bug, for the job that is written for it."""
    (bug,) = chosen_bugs(known_bugs(), [identifier])
    return bug.settings


def _problems(bug: KnownBug) -> list[str]:
    """Return what contradicts itself in a bug."""
    problems = []
    if not bug.cannot_run:
        problems += [
            f"{name} is empty, and cannot_run does not say why"
            for name in ("first_affected", "last_affected", "pyspark", "compared")
            if not getattr(bug, name)
        ]
        if isinstance(bug.look, CampaignLook) and not _JOB.fullmatch(bug.look.job):
            problems.append(f"look.job is {bug.look.job!r}, and no name of a job")
    if problems or not bug.pyspark:
        return problems
    if not Version(bug.first_affected) <= Version(bug.pyspark) <= Version(bug.last_affected):
        problems.append(
            f"pyspark is {bug.pyspark}, which is not between {bug.first_affected} and {bug.last_affected}"
        )
    if bug.compared in (bug.pyspark, bug.last_affected, bug.first_affected):
        problems.append(f"compared is {bug.compared}, which has the bug")
    return problems
