"""Fixtures of the suite. The option ``--system`` and the fixture ``system`` come from ``harness.pytest_plugin``."""

from __future__ import annotations

import pytest

from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.system.system_under_test import SystemUnderTest

DEFAULT_SEED = 20_260_101
"""Seed of generated plans when ``--hypothesis-seed`` names none, so that a session can be repeated."""


@pytest.fixture(scope="session")
def trials(
    request: pytest.FixtureRequest, system: SystemUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Trials:
    """Run plans on the chosen system, each in the scale of its world, once for the session; on the chosen backend."""
    given = request.config.getoption("--hypothesis-seed", default=None)
    seed = int(given) if given not in (None, "random") else DEFAULT_SEED
    backend = request.config.getoption("--state-backend")
    return Trials(system, tmp_path_factory.mktemp("trials"), seed, backend)
