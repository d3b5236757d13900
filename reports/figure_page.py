"""A page of figures and nothing else: self-contained, like the report."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from barrier_tck.reports.html import page_source, plotly_bundle, script_hash, templates
from barrier_tck.reports.timeline import Figure

LEGEND: Figure = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
"""A legend above its figure, whose width it leaves alone on a narrow screen."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure with its title."""

    title: str
    figure: Figure


def figure_page(title: str, lead: str, panels: Sequence[Panel]) -> str:
    """Return the page; its scripts run offline, and its policy admits no others."""
    plotly, script = plotly_bundle(), page_source("page.js")
    return (
        templates()
        .get_template("figures.html.j2")
        .render(
            title=title,
            lead=lead,
            panels=panels,
            style=Markup(page_source("page.css")),  # our own file
            script=Markup(script),  # our own file
            plotly=base64.b64encode(plotly).decode(),
            script_hashes=[script_hash(text) for text in (script, gzip.decompress(plotly).decode())],
        )
    )
