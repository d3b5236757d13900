"""Notices of what takes long before anything is run, because it is made once and then kept.

Without them a first start looks like a command that hangs. Whoever shows them decides where; without anybody who does,
they are lines of Python's logging.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

_log = logging.getLogger("barrier_tck.notices")


def notice(text: str) -> None:
    """Say that something takes long now, how far it is, or that it is done."""
    _log.info(text)


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


@contextlib.contextmanager
def notices_shown(show: Callable[[str], None]) -> Iterator[None]:
    """Pass each notice to ``show`` meanwhile."""
    handler, level = _Shown(show), _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)
