"""Waiting for another thread: Ctrl-C is noticed whoever takes the signal, and errors come through."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from barrier_tck.harness.support.futures import result_of

PATIENCE_S = 60.0
"""How long a test waits at most for what must come."""


def test_ctrl_c_ends_a_wait_although_another_thread_takes_the_signal() -> None:
    waited_for, over = threading.Event(), threading.Event()

    def interrupts() -> None:
        assert waited_for.wait(PATIENCE_S)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)
        assert over.wait(PATIENCE_S)

    def waits(future: Future[None]) -> None:
        waited_for.set()
        result_of(future)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # The thread that is started has this mask, too, until it takes the signal back.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(interrupts)
            try:
                with pytest.raises(KeyboardInterrupt):
                    waits(future)
                assert not future.done()
            finally:
                over.set()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)


def test_a_result_and_an_error_come_through() -> None:
    fine, late = Future[int](), Future[int]()
    fine.set_result(3)
    late.set_exception(TimeoutError("the job's own"))
    assert result_of(fine) == 3
    with pytest.raises(TimeoutError, match="the job's own"):
        result_of(late)
