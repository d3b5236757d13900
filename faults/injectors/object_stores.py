"""Injects faults of an object store's server: kills it in an upload or lets it refuse requests, and proves it."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.connections import disturb
from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Impairment, ObjectStoreTarget, TargetGone, UploadMoment

_WHAT = "object store"


def kill_in_upload(
    store: ObjectStoreTarget | None, moment: UploadMoment, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Kill the server in the next upload; it heals by starting again with what it has stored."""
    if store is None:
        return skipped(_WHAT)
    description = store.description
    try:
        store.kill_in_upload(moment)
    except TargetGone as gone:
        return Injection("not_fired", description, f"there was no server to kill: {gone}")
    if not proved(store.is_dead, wait):
        store.start_again()
        return unproved(description, "nobody had uploaded anything in parts, and the server was still alive")
    return Injection("fired", description, heal=store.start_again)


def throttle(store: ObjectStoreTarget | None, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Let every request be refused, which is proved by one that was."""
    if store is None:
        return skipped(_WHAT)
    store.throttle()
    if not proved(store.has_throttled, wait):
        store.stop_throttling()
        return unproved(store.description, "nobody had asked for anything, so nothing was refused,")
    return Injection("fired", store.description, heal=store.stop_throttling)


def disturb_connections(
    store: ObjectStoreTarget | None, impairment: Impairment, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Disturb everybody's connections with the store."""
    return skipped(_WHAT) if store is None else disturb((store.link,), impairment, wait)
