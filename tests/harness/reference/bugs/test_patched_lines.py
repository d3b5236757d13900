"""Calls before the lines that differ: where they stand, and when they cannot show everything. Grain: text."""

from __future__ import annotations

import textwrap

import pytest

from barrier_tck.harness.reference.bugs.patched_lines import with_calls

PRODUCT = '''
"""A module."""

from __future__ import annotations

import re

LIMIT = 3


class Box:
    size: int = 1

    def first(self, value):
        """Say something."""
        if value == 1:
            found = 2
        elif value == 2:
            found = 3
            found += 1
        else:
            found = (
                4,
                5,
            )
        try:
            return found
        except KeyError:
            return 0

    def second(self):
        return 1


def third():
    yield 1
    yield 2
'''


@pytest.mark.parametrize(
    ("before", "after", "called_before", "complete"),
    [
        ("found = 2", "found = 20", ["found = 20"], True),
        ("value == 1", "value == 9", ["if value == 9:"], True),
        ("elif value == 2", "elif value == 8", ["if value == 1:"], True),
        ("                5,\n", "                6,\n", ["found = ("], True),
        ("                5,\n", "", ["found = ("], True),
        ("            found += 1\n", "", ["else:"], True),
        ("            found = 3\n", "", ["found += 1"], True),
        (
            "        elif value == 2:\n            found = 3\n            found += 1\n",
            "",
            ["if value == 1:"],
            True,
        ),
        ("except KeyError", "except ValueError", ["try:"], True),
        ("    yield 1\n", "", ["yield 2"], True),
        ("    yield 2\n", "", ["(end)"], True),
        ("yield 1", "yield 3\n    if LIMIT:\n        yield 4", ["yield 3"], True),
        (
            "def third():\n    yield 1\n    yield 2\n",
            "def third():\n    yield 3\n\n\ndef fourth():\n    yield 4\n",
            ["yield 3", "yield 4"],
            True,
        ),
        ("found = 2", "found = 20  # more", ["found = 20  # more"], True),
        ("import re", "import os\nimport re", [], True),
        ("        if value == 1", "        # why\n        if value == 1", [], True),
        ("size: int = 1", "size: int = 2", [], False),
        ("LIMIT = 3", "LIMIT = 4", [], False),
        ("def second(self)", "def other(self)", [], False),
        ("def second(self):", "def second(self, value=1):", [], False),
        ("    def second(self):\n        return 1\n", "", [], False),
        ("class Box:", "class Box(dict):", [], False),
    ],
)
def test_calls_stand_before_what_differs(
    before: str, after: str, called_before: list[str], complete: bool
) -> None:
    assert PRODUCT.count(before) == 1
    patched = PRODUCT.replace(before, after)
    text, all_of_it = with_calls(PRODUCT, patched)
    lines = [line.strip() for line in text.splitlines()] + ["(end)"]
    calls = [number for number, line in enumerate(lines) if line == "_patched_lines_ran()"]
    assert [lines[number + 1] for number in calls] == called_before
    assert all_of_it is complete
    without = [line for line in text.splitlines() if "patched_lines" not in line]
    assert without == patched.splitlines()
    compile(text, "box.py", "exec")


def test_the_first_lines_of_a_module_stay_first() -> None:
    text, _ = with_calls(PRODUCT, PRODUCT.replace("yield 1", "yield 7"))
    head = textwrap.dedent(text).split("import re")[0]
    assert head.index("A module") < head.index("from __future__") < head.index("patched_lines")
