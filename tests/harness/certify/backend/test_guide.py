"""Each promise of the guide for authors of backends names the properties that check it, and each property is named."""

from __future__ import annotations

import re

from barrier_tck.harness.certify.backend.chaos import CHAOS
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from tests.test_tidy import ROOT

PAGE = (ROOT / "docs" / "guide" / "state-backend.md").read_text()
NAMES = [one.name for one in (*PROPERTIES, *CHAOS)]
_NAMED = re.compile(r"(?P<promise>.*\S) \((?P<names>`[a-z0-9-]+`(, `[a-z0-9-]+`)*)\)\.")
"""A promise of a list: its sentence, with the properties in parentheses before the full stop."""
_DECLARED = re.compile(r"\| `[A-Z_]+` \| (?P<promise>[^|]+) \| (?P<names>`[a-z0-9-]+`(, `[a-z0-9-]+`)*) \|")
"""A row of the table of capabilities."""


def section(page: str, title: str) -> str:
    """Return the text below a heading of the second level."""
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return str(found)


def items(text: str) -> list[str]:
    """Return the items of its lists, each as one line."""
    found = re.findall(r"^- (.*?)(?=\n- |\n\n|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return [re.sub(r"\s+", " ", item) for item in found]


def problems(page: str) -> list[str]:
    """Return which promises name no property, or one that there is not, and which properties no promise names."""
    promised, declared = section(page, "What you promise"), section(page, "Capabilities")
    rows = [line for line in declared.splitlines() if line.startswith("| `")]
    found, named = list[str](), dict[str, None]()
    for pattern, texts in ((_NAMED, [*items(promised), *items(declared)]), (_DECLARED, rows)):
        for text in texts:
            match = pattern.fullmatch(text)
            if match is None:
                found.append(f"no property: {text}")
                continue
            names = re.findall(r"`([a-z0-9-]+)`", match["names"])
            named.update(dict.fromkeys(names))
            found += [f"there is no {name}: {match['promise']}" for name in names if name not in NAMES]
    return found + [f"no promise: {name}" for name in NAMES if name not in named]


def test_each_promise_of_the_guide_names_what_checks_it_and_each_property_is_named_by_a_promise() -> None:
    assert problems(PAGE) == []
    assert len(items(section(PAGE, "What you promise"))) > 25


def test_what_a_backend_promises_is_in_lists_and_not_beside_them() -> None:
    blocks = section(PAGE, "What you promise").strip().split("\n\n")
    beside = [block for block in blocks if not block.startswith(("### ", "- "))]
    assert len(beside) == 1 and beside[0].startswith("Behind each promise are the properties")


def test_a_promise_without_a_property_and_a_property_without_a_promise_are_found() -> None:
    assert problems(PAGE.replace(" (`nothing-is-left-behind`).", ".")) == [
        "no property: It releases files, threads and memory.",
        "no promise: nothing-is-left-behind",
    ]
    assert problems(PAGE.replace("(`nothing-is-left-behind`)", "(`something-is-left`)")) == [
        "there is no something-is-left: It releases files, threads and memory",
        "no promise: nothing-is-left-behind",
    ]
    assert (
        problems(PAGE.replace("| `scans-are-ordered` |", "| tests |"))[-1] == "no promise: scans-are-ordered"
    )
