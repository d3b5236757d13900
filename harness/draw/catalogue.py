"""Every scenario there is: each module below ``scenarios/`` has one, as ``SCENARIO``, under the module's name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from barrier_tck.harness.draw import scenarios
from barrier_tck.harness.draw.scenario import Scenario


@cache
def known_scenarios() -> dict[str, Scenario]:
    """Return the scenarios by name, in alphabetical order, in which they are applied."""
    names = sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))
    found: dict[str, Scenario] = {}
    for name in names:
        scenario = importlib.import_module(f"{scenarios.__name__}.{name}").SCENARIO
        assert isinstance(scenario, Scenario)
        found[name] = scenario
    return found
