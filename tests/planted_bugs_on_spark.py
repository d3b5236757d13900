"""Every planted bug that Spark can show is caught there (CER-2); ``tox -e explore`` runs this file but for AT_NIGHT.

Trials on Spark mostly wait, so several processes share a machine, each with its own cluster. ``barrier-tck mutants
--world spark`` does the same one bug after the other, on one cluster, and runs the plan that shows a bug again; the
nightly runs it. The name keeps this file out of other commands.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.campaign.mutant_hunt import hunt
from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime
from barrier_tck.harness.system.system_under_test import SystemUnderTest

ON_SPARK = [bug.id for bug in bugs_of_runtime().values() if "spark" in bug.worlds]
ENDLESS = ("CO-06", "CO-11", "EL-09", "FS-02", "HB-01")
"""Their jobs never end, so that each trial lasts as long as it may: a minute and more."""
SLOW = ("CL-05", "CL-06", "MD-01", "SI-04", "TI-02")
"""They take up to a minute, and the same checkers catch other bugs on Spark before a merge."""
OF_EVENT_TIME = ("EJ-01", "ET-13", "ET-34", "ET-57", "ET-61", "ET-95")
"""Before a merge these are enough of event time: a join, a restore, watermarks that were overtaken, timers, a chain."""
EVENT_TIME_AT_NIGHT = tuple(
    name
    for name in ON_SPARK
    if bugs_of_runtime()[name].clause.startswith("EVT") and name not in OF_EVENT_TIME
)
AT_NIGHT = (*ENDLESS, *SLOW, *EVENT_TIME_AT_NIGHT)


@pytest.mark.long_on_clusters
@pytest.mark.parametrize(
    "identifier",
    [
        pytest.param(name, marks=pytest.mark.nightly_on_clusters if name in AT_NIGHT else ())
        for name in ON_SPARK
    ],
)
def test_a_planted_bug_is_caught_by_its_clause(
    system: SystemUnderTest, tmp_path: Path, identifier: str
) -> None:
    assert system.world == "spark", "run it with --system reference-spark"
    result = hunt(bugs_of_runtime()[identifier], system, tmp_path, replays_max=0)
    assert result.caught, f"{identifier} was missed in {result.trials} trials"
