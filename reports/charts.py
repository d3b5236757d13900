"""Distributions as small histograms, binned here so that the page holds counts and not every value."""

from __future__ import annotations

from itertools import pairwise

from barrier_tck.reports.intervals import Series
from barrier_tck.reports.timeline import Figure
from barrier_tck.reports.wording import measurement, median

_BINS = 24


def histogram(series: Series) -> Figure:
    """Return a histogram of one series with its median marked; raises ValueError if it has no values."""
    low, high = min(series.values), max(series.values)
    # Equal values still need a bin with a width.
    width = (high - low) / _BINS or max(abs(high), 1.0) / _BINS
    counts = [0] * _BINS
    for value in series.values:
        counts[min(_BINS - 1, int((value - low) / width))] += 1
    middle = median(series.values)
    edges = [measurement(series.name, low + place * width) for place in range(_BINS + 1)]
    ranges = [f"{start} to {end}" for start, end in pairwise(edges)]
    return {
        "data": [
            {
                "type": "bar",
                "x": [round(low + (place + 0.5) * width, 6) for place in range(_BINS)],
                "y": counts,
                "width": width * 0.92,
                "marker": {"color": series.colour},
                "hovertext": ranges,
                "hovertemplate": "%{hovertext}: %{y}<extra></extra>",
            }
        ],
        "layout": {
            "height": 170,
            "showlegend": False,
            "margin": {"l": 40, "r": 12, "t": 8, "b": 34},
            "shapes": [
                {
                    "type": "line",
                    "x0": middle,
                    "x1": middle,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": "#8a93a0", "width": 1.5, "dash": "dash"},
                }
            ],
            "xaxis": {"nticks": 6, "zeroline": False, "fixedrange": True},
            "yaxis": {"nticks": 4, "rangemode": "tozero", "fixedrange": True},
        },
    }
