"""The progress of a campaign, on standard error: a bar on a terminal, one line for each trial in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from barrier_tck.harness.campaign.budget import Budget
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict

APPEARS_AFTER_SECONDS = 2.0
"""A quick campaign shows no bar at all."""


class CampaignProgress:
    """Use as a context manager; without a console it does nothing.

    ``slow`` says that a trial takes seconds: then progress is shown before the first one has ended.
    """

    def __init__(self, console: Console | None, budget: Budget, before: int = 0, slow: bool = False) -> None:
        self._console = console
        # ``is_terminal`` is not used, because a log that shows colours claims to be a terminal.
        self._draws = console is not None and console.file.isatty()
        self._budget = budget
        self._before = before
        self._slow = slow
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._started = 0.0

    def __enter__(self) -> CampaignProgress:
        self._started = time.monotonic()
        if self._console is not None and self._slow and self._budget.allows(self._before, 0.0):
            if self._draws:
                self._draw(self._before, 0, 0, 0.0)
            else:
                self._console.print(f"trial {self._before} runs; {self._standing(self._before, 0.0)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, record: TrialRecord, done: int, invalid: int, unknown: int) -> None:
        """Show the progress after a trial; the counts are those of all trials so far."""
        if self._console is None:
            return
        elapsed = time.monotonic() - self._started
        if not self._draws:
            self._console.print(f"{_of_trial(record)}; {self._standing(done, elapsed)}")
        elif elapsed >= APPEARS_AFTER_SECONDS:
            self._draw(done, invalid, unknown, elapsed)

    def _draw(self, done: int, invalid: int, unknown: int, elapsed: float) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("trials"),
                BarColumn(),
                MofNCompleteColumn() if self._budget.trials else TextColumn("{task.fields[done]}"),
                TextColumn("{task.fields[bad]}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task("trials", total=self._total(), done=0, bad="", left="")
            self._progress.start()
        completed = done if self._budget.trials is not None else elapsed
        bad = "all valid" if done > self._before else ""
        if invalid or unknown:
            bad = f"[red]{invalid} invalid[/red] {unknown} unknown"
        left = self._left(done, elapsed)
        self._progress.update(self._task, completed=completed, done=done, bad=bad, left=left)

    def _total(self) -> float:
        return float(self._budget.trials or self._budget.seconds or 0)

    def _standing(self, done: int, elapsed: float) -> str:
        """Return how many trials are done, and how long the campaign will take if the next trials are similar."""
        counted = f"{done} done" if self._budget.trials is None else f"{done} of {self._budget.trials} done"
        return ", ".join(filter(None, (counted, self._left(done, elapsed))))

    def _left(self, done: int, elapsed: float) -> str:
        """Return how long the campaign will take yet; empty if it is done."""
        if self._budget.trials is None:
            return f"{_rounded(max(0.0, self._total() - elapsed))} left"
        rest = self._budget.trials - done
        if done == self._before:
            return ""  # nothing is known yet of how long a trial takes
        return f"about {_rounded(rest * elapsed / (done - self._before))} left" if rest else ""


def _of_trial(record: TrialRecord) -> str:
    """Return a trial's number, verdict and time and, if it was not valid, the checkers that reported it."""
    worst = [f.checker for f in record.findings if f.verdict is record.verdict is not Verdict.VALID]
    checkers = f" ({', '.join(worst)})" if worst else ""
    return f"trial {record.trial}: {record.verdict.value.upper()}{checkers}, {_rounded(record.wall_seconds)}"


def _rounded(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
