"""Injects faults of the service that holds checkpoints: kills the server of an upload or lets requests be refused, and
proves it. Where the world stands still meanwhile, the fault lies in wait, and the proof is asked for in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.connections import disturb
from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Impairment, ObjectStoreTarget, TargetGone
from barrier_tck.faults.upload_moment import UploadMoment

_WHAT = "service that holds checkpoints"


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
    if store.strikes_later:
        return Injection("fired", description, heal=store.start_again, met=store.has_struck)
    if not proved(store.is_dead, wait):
        store.start_again()
        return unproved(description, "nothing had been uploaded in parts, and the server was still alive")
    return Injection("fired", description, heal=store.start_again)


def throttle(store: ObjectStoreTarget | None, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Let every request be refused, which is proved by one that was."""
    if store is None:
        return skipped(_WHAT)
    store.throttle()
    if store.strikes_later:
        return Injection("fired", store.description, heal=store.stop_throttling, met=store.has_struck)
    if not proved(store.has_throttled, wait):
        store.stop_throttling()
        return unproved(store.description, "no request had come, so none was refused,")
    return Injection("fired", store.description, heal=store.stop_throttling)


def fail_request(store: ObjectStoreTarget | None, nth: int, carried_out: bool) -> Injection:
    """Let one request get no answer, which is proved at the end of the run."""
    if store is None:
        return skipped(_WHAT)
    return Injection("fired", store.description, met=store.fail_request(nth, carried_out))


def disturb_connections(
    store: ObjectStoreTarget | None, impairment: Impairment, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Disturb all connections with the service."""
    return skipped(_WHAT) if store is None else disturb((store.link,), impairment, wait)
