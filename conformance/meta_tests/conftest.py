"""The tests of the suite itself run only when the system is the simulated reference."""

from __future__ import annotations

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave these tests out for any other system: they say nothing about it."""
    return True if config.getoption("--system") != "reference-simulated" else None
