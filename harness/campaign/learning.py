"""Tells a campaign's strategy what its trials reached, and writes down what the strategy took from that: the campaign
may be interrupted, and its summaries do not say it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from barrier_tck.harness.campaign.tried_plans import TriedPlan
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem

LEARNED = "learned.jsonl"
"""The file of a run directory with what the strategy learned: a line for each trial from which it learned something."""


class _Line(msgspec.Struct, frozen=True):
    """What was learned from one trial."""

    trial: int
    seldom: tuple[str, ...]
    """What it reached that was seldom reached before."""
    promising: bool
    """Whether plans like its plan may be tried."""


class Learning:
    """What one campaign learns. If the strategy does not learn, nothing is passed to it, and no file is written."""

    def __init__(self, search: Search, directory: Path) -> None:
        self._search = search
        self._path = directory / LEARNED
        self._before = 0
        self._lines: dict[int, _Line] = {}

    @property
    def wanted(self) -> bool:
        """Whether the strategy wants to know what trials reach."""
        return self._search.learns

    def begin(self, before: int) -> None:
        """Say how many trials of the campaign come before those whose plans are drawn."""
        self._before = before

    def waits_before(self, trial: int) -> bool:
        """Return whether the plan of a trial follows from results that are not known yet."""
        return trial >= self._before and self._search.waits_before(trial - self._before)

    def take(self, tried: TriedPlan) -> None:
        """Learn from a trial that is over; trials come in their order."""
        record = tried.result.record
        number = record.trial - self._before
        if not self.wanted or number < 0:
            return
        # If it lost faults whose moment never came, plans like its plan would lose some, too.
        promising = tried.fitted is None and record.verdict is not Verdict.UNKNOWN
        seldom = self._search.learn(number, tried.reached, promising)
        if seldom:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(_Line(record.trial, seldom, promising)) + b"\n")

    def take_over(self, finished: int) -> None:
        """Read what was learned from the finished trials of an interrupted campaign, and remove the rest.

        Raises UsageProblem if the file cannot be read.
        """
        if not self.wanted or not self._path.is_file():
            return
        whole = self._path.read_bytes().rpartition(b"\n")[0].splitlines()
        try:
            lines = [msgspec.json.decode(line, type=_Line) for line in whole]
        except msgspec.MsgspecError as error:
            raise UsageProblem(f"{self._path} cannot be read: {error}; run the campaign anew") from error
        self._lines = {line.trial: line for line in lines if line.trial < finished}
        write_atomically(
            self._path, b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines.values())
        )

    def again(self, trial: int) -> None:
        """Learn from a finished trial what was learned from it before the interruption."""
        if self.wanted and trial >= self._before:
            line = self._lines.get(trial, _Line(trial, (), False))
            self._search.learn(trial - self._before, line.seldom, line.promising)
