"""Waits for what another thread computes, so that Ctrl-C is noticed."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TypeVar

NOTICED_WITHIN_S = 0.5
"""After how long Ctrl-C is noticed at the latest."""

_Result = TypeVar("_Result")


def result_of(future: Future[_Result]) -> _Result:
    """Wait for a future, and look again and again whether Ctrl-C was pressed; raises what the future raises.

    A signal that another thread takes, or that comes just before this one begins to wait, ends no wait of Python's.
    """
    while not wait((future,), timeout=NOTICED_WITHIN_S).done:
        pass
    return future.result()
