"""What a plan says about the runtime on Spark: how long its channels are, and how soon silence counts as a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.reference_impl.spark.spark_options import SparkOptions

HEARTBEAT_TIMEOUT_MS = 4_000
"""Used in trials in which processes are paused or out of reach; it bounds the time that such a fault costs."""

SETTINGS: Mapping[str, type] = {
    "heartbeat_interval_ms": int,
    "deployment_timeout_ms": int,
    "connect_timeout_ms": int,
    "warm_executors": bool,
}
"""The options that the table ``system`` of a plan may give, and of which type."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ValueError, with a sentence that names the key, for a setting that is no option, or of another type."""
    for key, value in settings.items():
        if key not in SETTINGS:
            raise ValueError(f"{key} is no setting; known: {', '.join(SETTINGS)}")
        if type(value) is not SETTINGS[key]:
            raise ValueError(f"{key} must be of type {SETTINGS[key].__name__}, not {value!r}")


def options_of(plan: TrialPlan) -> SparkOptions:
    """Return the runtime's options: channels as the plan has them, and shorter timeouts if faults silence processes, so
    that this is noticed sooner."""
    options = SparkOptions(channel_batches=plan.network.channel_capacity)
    if plan.network.buffer_bytes is not None and plan.checkpoints.overtakes:
        options = replace(options, channel_bytes=plan.network.buffer_bytes * options.channel_batches)
    given = {name: value for name, value in plan.system.items() if name in SETTINGS}
    if given:
        options = replace(options, **given)
    if any(planned.fault.heals_after_ms is not None for planned in plan.faults):
        options = replace(
            options,
            heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS,
            isolation_timeout_ms=2 * HEARTBEAT_TIMEOUT_MS,
        )
    return options
