"""The local scratch space of one subtask attempt, for backends that declare LOCAL_FILES."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.backend import StateBackend, StateCapability

PREFIX = "barrier-tck-state-"
"""What the names of working directories begin with."""


class WorkingDirectory:
    """A directory per subtask attempt with one below it per operator; made on first use, removed by ``close``.

    Nothing in it outlives the attempt: what must survive is in checkpoint storage.
    """

    def __init__(self, backend: StateBackend, root: str | None = None) -> None:
        """Take the backend, and the directory to work below (None: the system's temporary directory)."""
        self._wanted = StateCapability.LOCAL_FILES in backend.capabilities
        self._root = root
        self._path: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether the backend declares LOCAL_FILES."""
        return self._wanted

    @property
    def root(self) -> str:
        return self._root or tempfile.gettempdir()

    @property
    def path(self) -> Path | None:
        """Return the directory, None as long as there is none."""
        return self._path

    def of_operator(self, uid: str) -> str | None:
        """Make and return an operator's directory; None if the backend does not declare LOCAL_FILES."""
        if not self._wanted:
            return None
        try:
            if self._path is None:
                if self._root is not None:
                    Path(self._root).mkdir(parents=True, exist_ok=True)
                self._path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._root))
            directory = self._path / safe_name(uid)
            directory.mkdir()
        except OSError as error:
            raise StorageError(
                f"no working directory for the state of {uid!r} below "
                f"{self._root or tempfile.gettempdir()}: {error}"
            ) from error
        return str(directory)

    def close(self) -> None:
        """Remove everything; raises StorageError if that fails. Twice is harmless."""
        path, self._path = self._path, None
        if path is not None:
            remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a directory, which may be gone already or vanish meanwhile; raises StorageError."""
    while path.exists():
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            # Another process removes it too, a file at a time: go on with what is left.
            continue
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error}") from error
