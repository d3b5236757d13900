"""The page of one cut; every text in it is untrusted and escaped."""

from __future__ import annotations

from markupsafe import Markup

from barrier_tck.reports.cuts import CutView
from barrier_tck.reports.html import page_source, templates
from barrier_tck.reports.loading import ReportedRun


def render_cut(run: ReportedRun, view: CutView) -> str:
    """Return the page of one cut."""
    record = run.details[view.wanted.trial]
    return (
        templates()
        .get_template("cut.html.j2")
        .render(
            run=run,
            view=view,
            record=record,
            verdict=record.verdict,
            style=Markup(page_source("page.css") + page_source("cut.css")),  # our own files
        )
    )
