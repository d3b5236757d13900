"""A shell completes every value that is known; grain: what the command's parameters offer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.completion import several_of
from barrier_tck.harness.cli.main import app

KNOWN_BY_NAME = re.compile(r"NAME|CLAUSE|PROPERTY|ID")
"""What the help calls a value that this project has names for, alone or in a list with commas."""
NAMES_OF_THE_USER = {("explain", "record")}
"""Ids of records, which only the trial knows."""


def parameters() -> Iterator[tuple[str, Any]]:
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield from ((name, parameter) for parameter in command.params)


def is_known(metavar: str | None) -> bool:
    """Return whether a value is one of a few words, or has a name that is known here."""
    if metavar is None:
        return False
    words = re.split(r"[|,]", metavar.replace(",...", ""))
    return all(KNOWN_BY_NAME.fullmatch(word) or re.fullmatch("[a-z][a-z-]*", word) for word in words)


def test_every_option_whose_values_are_known_completes_them() -> None:
    known = [
        (command, parameter)
        for command, parameter in parameters()
        if is_known(parameter.metavar) and (command, parameter.name) not in NAMES_OF_THE_USER
    ]
    assert {("campaign", "workload"), ("certify", "only"), ("scopes", "name"), ("mutants", "world")} <= {
        (command, parameter.name) for command, parameter in known
    }
    silent = [
        (command, parameter.name)
        for command, parameter in known
        if parameter._custom_shell_complete is None
        or not parameter._custom_shell_complete(None, parameter, "")
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("completed", "incomplete", "offered"),
    [
        (completion.WORKLOADS, "keyed-t", ["keyed-totals"]),
        (completion.CLAUSES, "SNK-1,REC-1", ["SNK-1,REC-1"]),
        (completion.PLANTED_BUGS, "AL-01,SO-02", ["AL-01,SO-02"]),
        (completion.PROPERTIES, "snapshots-are-i", ["snapshots-are-isolated"]),
        (completion.STORAGE_PROPERTIES, "state-files-are-r", ["state-files-are-read-as-written"]),
        (completion.CAPABILITIES, "ordered-scan,pre", ["ordered-scan,prefix-scan"]),
        (completion.COMPARED_SYSTEMS, "mine:M,reference-sp", ["mine:M,reference-spark"]),
        (completion.SCOPES, "line-un", ["line-unaligned"]),
        (completion.WORLDS, "si", ["simulated"]),
        (completion.KNOWN_BUGS, "SPARK-529", []),
        (completion.KNOWN_BUGS, "SPARK-5263", ["SPARK-52637"]),
    ],
)
def test_the_last_name_of_a_list_is_completed(
    completed: completion.Completed, incomplete: str, offered: list[str]
) -> None:
    assert completed(incomplete) == offered


def test_a_name_that_is_in_the_list_is_not_offered_again() -> None:
    assert several_of(lambda: ("one", "other"))("one,o") == ["one,other"]
