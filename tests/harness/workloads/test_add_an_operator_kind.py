"""CONTRIBUTING's "Add an operator kind" is followed to the letter: two files, and drawn graphs have it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from barrier_tck.harness.reference.operators import reference_kinds
from barrier_tck.harness.workloads.kind_catalogue import operator_kinds
from barrier_tck.harness.workloads.operator_kind import OperatorKind
from tests.test_maps import CONTRIBUTING, codes, table
from tests.test_tidy import ROOT

SECTION = CONTRIBUTING.partition("## Add an operator kind\n")[2].partition("\n## ")[0]

DRAWS_AND_RUNS = """
import json
import sys
from pathlib import Path
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import Constraints, draw_plans
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute

def has_it(plan):
    return any(operator.kind == sys.argv[1] for vertex in plan.job.vertices for operator in vertex.operators)

system, found = ReferenceSimulated(), {}
for name in sys.argv[2:]:
    plans = draw_plans(5, 90, profile_named(name), Constraints(system.job, system.capabilities))
    having = [plan for plan in plans if has_it(plan)]
    found[name] = [execute(plan, system, Path("trial")).record.verdict for plan in having[:2]]
print(json.dumps(found))
"""


DOUBLE = """
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import visit

KIND = OperatorKind(
    name="double",
    emits=lambda operator, record: (visit(record, operator.name),) * 2,
    drawn=Drawn(Place.ONE_INPUT, multiplies=True),
)
"""
MAKES_DOUBLE = """
from barrier_tck.harness.reference.lineage import marking
from barrier_tck.harness.reference.operator_kind import ReferenceKind

KIND = ReferenceKind(lambda site: marking(site, lambda _, row, step: (step(row), step(row))))
"""


@pytest.mark.long
def test_an_operator_kind_is_added_with_two_files_and_default_graphs_have_it(tmp_path: Path) -> None:
    shown = re.findall(
        r"`(harness/\w+/kinds/\w+\.py)`:\n\n *```python\n(.*?)^ *```$", SECTION, re.DOTALL | re.MULTILINE
    )
    assert len(shown) == SECTION.count("```python") == 2, "a new kind is two files"
    require_valid("lengthen", shown, tmp_path, ("graphs", "loops", "rescale"))


@pytest.mark.nightly
def test_an_operator_may_emit_the_same_record_twice(tmp_path: Path) -> None:
    files = [
        ("harness/workloads/kinds/double.py", DOUBLE),
        ("harness/reference/kinds/double.py", MAKES_DOUBLE),
    ]
    require_valid("double", files, tmp_path, ("graphs",))


def require_valid(
    kind: str, files: Sequence[tuple[str, str]], directory: Path, profiles: Sequence[str]
) -> None:
    """Run drawn trials of a copy of the package that has these files, too: those with the kind are VALID."""
    original, package = ROOT / "src" / "barrier_tck", directory / "src" / "barrier_tck"
    copied = dict.fromkeys(parent for path, _ in files for parent in Path(path).parents)
    for folder in sorted(copied):
        (package / folder).mkdir(parents=True)
        for entry in (original / folder).iterdir():
            if folder / entry.name not in copied and entry.name != "__pycache__":
                (package / folder / entry.name).symlink_to(entry.resolve())
    for path, text in files:
        (package / path).write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "-c", DRAWS_AND_RUNS, kind, *profiles],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = json.loads(done.stdout)
    assert list(verdicts) == list(profiles)
    for profile, of_trials in verdicts.items():
        assert of_trials and set(of_trials) == {"valid"}, (profile, of_trials)


def test_fields_of_kinds_are_listed() -> None:
    listed = [field for row in table(SECTION, "| field |") for field in codes(row[0])]
    assert listed == [field.name for field in dataclasses.fields(OperatorKind)]


def test_the_reference_makes_every_kind_that_is_drawn() -> None:
    """Only a source is no operator there: the runtime has sources apart."""
    assert [name for name in operator_kinds() if name not in reference_kinds()] == ["source"]
