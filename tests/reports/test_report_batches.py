"""Reports of systems that take no checkpoints: they count committed batches. Grain: an invented campaign."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from rich.console import Console

from barrier_tck.reports import html
from barrier_tck.reports.github import step_summary
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.summary import print_run
from tests.reports.synthetic_run import record_of, write_run


def test_a_system_without_checkpoints_has_committed_batches(tmp_path: Path) -> None:
    records = [
        msgspec.structs.replace(record_of(trial), checkpoints=(), batches_committed=trial + 2)
        for trial in range(3)
    ]
    run = load_run(write_run(tmp_path / "run", records))
    assert run.went_on == (9, "batches committed")
    page = html.render(run)
    assert "batches committed" in page
    assert '<th class="n">Batches</th>' in page
    assert '<td class="n" data-name="batches">4' in page
    assert "batches committed: 9;" in step_summary(run)
    printed = io.StringIO()
    print_run(load_run(tmp_path / "run"), Console(file=printed, width=200))
    assert "batches committed: 9;" in printed.getvalue()
