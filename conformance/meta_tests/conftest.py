"""The tests of the suite itself need no system of their own: they run with the simulated reference only."""

from __future__ import annotations

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave them out when another system is certified: they say nothing about it."""
    return True if config.getoption("--system") != "reference-simulated" else None
