"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from barrier_tck.harness.support.errors import EnvironmentProblem


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file durably, so that a reader sees either the old file or the whole new one.

    Raises EnvironmentProblem, with the path, if the disk refuses; no partial file is left then.
    """
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp makes a file that only its user can read; this one is as readable as its neighbours.
            os.fchmod(descriptor, 0o644)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror or error}") from error
        raise
