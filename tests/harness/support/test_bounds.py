"""Every number that a person may write has a minimum and a maximum, so nothing can start that never ends.

Grain: the declarations of campaign files, plans and faults, and whole commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import inspect

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.fields import Number, meanings
from barrier_tck.faults.vocabulary import After, At
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.plan.trial_plan import TrialPlan


def unbounded(kind: inspect.Type, path: str, seen: set[type]) -> Iterator[str]:
    """Yield the integers without a minimum or a maximum; faults and triggers are checked separately."""
    match kind:
        case inspect.IntType(ge=least, le=most):
            if least is None or most is None:
                yield path
        case inspect.StructType(cls=struct, fields=fields):
            if struct not in seen and not issubclass(struct, (Fault, At, After)):
                seen.add(struct)
                for field in fields:
                    yield from unbounded(field.type, f"{path}.{field.name}", seen)
        case inspect.UnionType(types=kinds) | inspect.TupleType(item_types=kinds):
            for each in kinds:
                yield from unbounded(each, path, seen)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from unbounded(item, f"{path}[]", seen)
        case inspect.DictType(value_type=value):
            yield from unbounded(value, f"{path}.*", seen)


@pytest.mark.parametrize("struct", [CampaignConfiguration, TrialPlan])
def test_every_number_of_a_file_has_a_least_and_a_most(struct: type) -> None:
    found = list(unbounded(inspect.type_info(struct), struct.__name__, set()))
    # An unknown version is refused when it is read.
    assert [path for path in found if not path.endswith(".version")] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_every_number_of_a_fault_has_a_most(fault: type[Fault]) -> None:
    types = {field: kind for field, kind in meanings(fault).items() if kind is int}
    assert not types, "an integer without a unit has no bounds"
    for field, kind in meanings(fault).items():
        if isinstance(kind, Number):
            assert kind.least < kind.unit.most, field


HUGE = 10**12
PAUSE = "fault = { type = 'pause_worker', subtask = 'totals[0]'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"[deployment]\nmax_parallelism = {HUGE}",
            "max_parallelism is 1000000000000; it must be 32768 or less",
        ),
        (f"trials = {HUGE}", "trials is 1000000000000; it must be"),
        ("trials = 0", "trials is 0; it must be 1 or more"),
        (f"seed = {10**30}", "seed is 1000000000000000000000000000000; it must be"),
        ('budget = "99999999999h"', "budget is '99999999999h'; it must be a year or less"),
        (
            f"[faults]\nper_trial = [0, {HUGE}]",
            "faults.per_trial[1] is 1000000000000; it must be 100 or less",
        ),
        (f"[faults]\nkinds = {{ worker = {HUGE} }}", "faults.kinds.worker is 1000000000000; it must be"),
        (f"[mix]\nmode = {{ exactly_once = {HUGE} }}", "mix.mode.exactly_once is 1000000000000; it must be"),
        (f"[[trial]]\nrepeat = {HUGE}", "trial[0].repeat is 1000000000000; it must be"),
        (f"[cluster]\nworkers = {HUGE}", "cluster.workers is 1000000000000; it must be 100 or less"),
        ("[workload]\nbatches = 1000000\nbatch_records = 1000000", "that is 1,000,000,000,000 records"),
        (
            f"[[trial]]\nfaults = [{{ {PAUSE}, duration_ms = {HUGE} }}, trigger = {{ type = 'at', time_ms = 1 }} }}]",
            "duration_ms is 1000000000000; it must be 86400000 or less",
        ),
        (
            f"[[trial]]\nfaults = [{{ {PAUSE}, duration_ms = 9 }}, trigger = {{ type = 'at', time_ms = {HUGE} }} }}]",
            "time_ms is 1000000000000; it must be between 0 and 86400000",
        ),
    ],
)
def test_a_number_beyond_its_bounds_is_refused_by_its_key(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "huge.toml").write_text(text)
    assert cli.run(["campaign", str(tmp_path / "huge.toml"), "--out", str(tmp_path / "out")]) == 3
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trials", str(HUGE)], "trials is 1000000000000; it must be"),
        (["--trials", "0"], "trials is 0; it must be 1 or more"),
        (["--seed", "-1"], "seed is -1; it must be 0 or more"),
        (["--seed", str(10**30)], "it must be"),
        (["--budget", "9" * 400 + "h"], "it must be a year or less"),
    ],
)
def test_a_number_on_the_command_line_has_the_same_bounds(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["campaign", *options, "--out", str(tmp_path / "out")]) == 3
    assert words in capsys.readouterr().err
