"""How the suite treats cancelling: of the backend's snapshots, and of the suite itself with Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.session import Session
from barrier_tck.harness.certify.backend.stage import check


@pytest.mark.long
def test_ctrl_c_in_the_middle_of_a_call_is_no_failure_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply to the interrupted request must not be taken for the reply to the next one."""
    one = next(entry for entry in PROPERTIES if entry.name == "reads-see-the-writes")
    calls, send = [0], Session.call

    def interrupted(session: Session, request: wire.AnyRequest) -> Any:
        calls[0] += 1
        if calls[0] == 40:
            assert session.candidate is not None
            session.candidate.post(request)  # then the reply is never read
            raise KeyboardInterrupt
        return send(session, request)

    monkeypatch.setattr(Session, "call", interrupted)
    pool = Pool("heap", total_s=600.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            check(one, pool, 1)
    finally:
        pool.close()
    assert calls == [40], "the process was asked nothing more"


def test_sigterm_from_outside_is_no_failure_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(entry for entry in PROPERTIES if entry.name == "reads-see-the-writes")
    calls, send = [0], Session.call

    def ended(session: Session, request: wire.AnyRequest) -> Any:
        calls[0] += 1
        if calls[0] == 40:
            assert session.candidate is not None
            os.kill(session.candidate.pid, signal.SIGTERM)
        return send(session, request)

    monkeypatch.setattr(Session, "call", ended)
    pool = Pool("heap", total_s=60.0)
    try:
        outcome, failure = check(one, pool, 1)
    finally:
        pool.close()
    assert (outcome.status, outcome.violated, failure) == ("unknown", "", None)
    assert "SIGTERM" in outcome.reason and "says nothing about the candidate" in outcome.reason


@pytest.mark.long
def test_a_snapshot_that_was_cancelled_before_it_began_does_not_run() -> None:
    one = next(entry for entry in PROPERTIES if entry.name == "a-cancelled-snapshot-stops")
    pool = Pool("tests.harness.certify.backend.deaf_backend:Deaf", total_s=600.0)
    try:
        outcome, _ = check(one, pool, 1)
    finally:
        pool.close()
    assert outcome.status == "failed"
    assert "was cancelled before it began, but ran" in outcome.reason
