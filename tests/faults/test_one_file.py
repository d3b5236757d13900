"""A fault is one file and its line: nothing else knows a fault by name, except plans, which use it as data."""

from __future__ import annotations

import ast
import re

import pytest

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.fault import Fault, tag_of
from tests.test_tidy import FOLDERS, module_name, name, python_files, tree_of

CATALOGUE = "faults/catalogue.py"
PLANS = (
    "conformance/",  # tests, and the plans that they run
    "harness/certify/backend/chaos.py",  # one plan
    "harness/reference/exhaustive/scopes.py",  # plans, and the crashes that may happen at any time of them
    "harness/system/fault_kit.py",  # offers the names with which third parties write plans
)
"""Places in which plans are written out, with their faults."""

NAMES = re.compile("|".join(f"{fault.__name__}|{fault.__module__}|{tag_of(fault)}" for fault in FAULTS))
"""What a module that knows a fault has in its text; one without need not be parsed."""


def known_in(tree: ast.AST) -> list[str]:
    """Return the faults that a module knows by class, file or tag."""
    names: set[str] = set()
    texts: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=used) | ast.Attribute(attr=used) | ast.alias(name=used):
                names.add(used)
            case ast.ImportFrom(module=str(module)):
                names.add(module)
            case ast.Constant(value=str(text)):
                texts.add(text)
    known = [f for f in FAULTS if f.__name__ in names or f.__module__ in names or tag_of(f) in texts]
    return [fault.__name__ for fault in known]


@pytest.mark.long
def test_only_its_file_the_catalogue_and_plans_know_a_fault_by_name() -> None:
    knowing = {}
    for path in python_files(*FOLDERS):
        own = [fault.__name__ for fault in FAULTS if fault.__module__ == module_name(path)]
        known = known_in(tree_of(path)) if NAMES.search(path.read_text()) else []
        if name(path) != CATALOGUE and not name(path).startswith(PLANS) and known != own:
            knowing[name(path)] = known
    assert not knowing, "ask a trait of the fault, and add one if there is none"


@pytest.mark.parametrize(
    "line",
    [
        "from barrier_tck.faults.kinds.kill_worker import KillWorker",
        "import barrier_tck.faults.kinds.kill_worker",
        "isinstance(fault, kinds.KillWorker)",
        "match fault:\n    case KillWorker(): ...",
        "record.kind == 'kill_worker'",
    ],
)
def test_whoever_knows_a_fault_by_name_is_found(line: str) -> None:
    assert known_in(ast.parse(line)) == ["KillWorker"]


def test_every_fault_has_a_file_of_its_own_named_as_its_tag() -> None:
    files = [path for path in python_files("faults/kinds") if path.name != "__init__.py"]
    assert sorted(fault.__module__ for fault in FAULTS) == sorted(map(module_name, files))
    for fault in FAULTS:
        assert fault.__module__.rpartition(".")[2] == tag_of(fault)


def test_faults_of_a_connection_are_recognised_by_what_they_need_not_by_their_base() -> None:
    outside = [path for path in python_files(*FOLDERS) if not name(path).startswith("faults/")]
    knowing = [path for path in outside if ChannelFault.__name__ in path.read_text()]
    assert knowing == []


def test_a_fault_must_define_what_its_base_leaves_open() -> None:
    class Unfinished(Fault, frozen=True, tag="unfinished"):
        """Defines nothing."""

    with pytest.raises(NotImplementedError):
        Unfinished().description()
