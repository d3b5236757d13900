"""How soon drawn plans show a planted bug is written into its file (``tests/measure_drawn_bugs``)."""

from __future__ import annotations

from tests.measure_drawn_bugs import written


def test_what_was_measured_is_written_in_place_of_what_was_there_ahead_of_the_changes() -> None:
    text = 'id = "X"\n{}\n[[change]]\nat = "ids.py"\n'
    line = 'drawn = { profile = "event-time", median = 4, most = 9 }\n'
    before = 'drawn = { profile = "standard", median = 1, most = 1 }\n'
    assert written(text.format(""), "event-time", [4, 9, 1]) == text.format(line)
    assert written(text.format(before), "event-time", [4, 9, 1]) == text.format(line)
