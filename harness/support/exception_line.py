"""The line of a traceback that names the exception."""

from __future__ import annotations

import traceback


def exception_line(error: BaseException) -> str:
    """Return the type and the message of an exception, without the notes that were added to it.

    Libraries add notes of many lines: the last line of what Python prints then names no exception.
    """
    described = traceback.TracebackException(type(error), error, None)
    described.__notes__ = None
    return list(described.format_exception_only())[-1].strip()
