"""Which settings a system takes: the free table ``system`` of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barrier_tck.harness.support.errors import UsageError
from barrier_tck.harness.system.optional_interfaces import TakesSettings
from barrier_tck.harness.system.system_under_test import SystemUnderTest


def why_settings_are_refused(system: SystemUnderTest, settings: Mapping[str, Any]) -> str | None:
    """Return why a system does not take settings, in words; None if it does. None are taken by every system that does
    not say otherwise."""
    if isinstance(system, TakesSettings):
        try:
            system.check_settings(settings)
        except (UsageError, ValueError, TypeError, LookupError) as error:
            return f"system: {error}"
    elif settings:
        keys = ", ".join(map(repr, settings))
        return f"system has {keys}, but {system.name} takes no settings; remove it"
    return None


def takes_settings(system: SystemUnderTest, settings: Mapping[str, Any]) -> bool:
    """Return whether a system takes settings."""
    return why_settings_are_refused(system, settings) is None
