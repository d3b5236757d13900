"""A progress bar on standard error for campaigns that take longer than a moment."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from barrier_tck.harness.campaign.budget import Budget

APPEARS_AFTER_SECONDS = 2.0
"""A quick campaign shows no bar at all."""


class CampaignProgress:
    """Use as a context manager; without a console it does nothing."""

    def __init__(self, console: Console | None, budget: Budget) -> None:
        """Take where to draw; the bar's length is the budget's."""
        self._console = console
        self._budget = budget
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._started = 0.0

    def __enter__(self) -> CampaignProgress:
        """Start the clock."""
        self._started = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: int, invalid: int, unknown: int) -> None:
        """Show where the campaign stands after a trial."""
        elapsed = time.monotonic() - self._started
        if self._console is None or elapsed < APPEARS_AFTER_SECONDS:
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("trials"),
                BarColumn(),
                MofNCompleteColumn() if self._budget.trials else TextColumn("{task.fields[done]}"),
                TextColumn("{task.fields[bad]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._progress.add_task("trials", total=self._total(), done=0, bad="")
            self._progress.start()
        completed = done if self._budget.trials is not None else elapsed
        bad = f"[red]{invalid} invalid[/red] {unknown} unknown" if invalid or unknown else "all valid"
        self._progress.update(self._task, completed=completed, done=done, bad=bad)

    def _total(self) -> float:
        return float(self._budget.trials or self._budget.seconds or 0)
