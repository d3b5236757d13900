"""Object stores for tests: a model in memory with the weather of real ones, and a real server that can be killed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barrier_tck.harness.cluster.object_store.object_server import ObjectServer
from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError

BUCKET = "tck"


@dataclass
class ModelStore:
    """Objects in memory. Listings may be late, and the k-th request (from 1) fails, done or not."""

    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    parts: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    lists_late: bool = False
    fail_at: int = 0
    afterwards: bool = False
    requests: int = 0
    _listed: tuple[str, ...] = ()
    _versions: int = 0

    def catch_up(self) -> None:
        """Let listings show what is there now."""
        self._listed = tuple(sorted(self.objects))

    def get(self, key: str) -> tuple[bytes, str]:
        self._request(late=False)
        if key not in self.objects:
            raise StorageError(f"{key} does not exist", StorageCause.MISSING)
        return self.objects[key]

    def version(self, key: str) -> str:
        self._request(late=False)
        return self.objects[key][1] if key in self.objects else ""

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        fails = self._request()
        found = self.objects.get(key, (b"", ""))[1]
        if expected is not None and found != expected:
            return None
        self._versions += 1
        self.objects[key] = (content, f"v{self._versions}")
        self._answer(fails)
        return f"v{self._versions}"

    def upload(self, key: str) -> _ModelUpload:
        fails = self._request()
        self._versions += 1
        upload = f"u{self._versions}"
        self.parts[key, upload] = []
        self._answer(fails)
        return _ModelUpload(self, key, upload)

    def delete(self, key: str) -> None:
        fails = self._request()
        self.objects.pop(key, None)
        self._answer(fails)

    def keys(self, prefix: str) -> list[str]:
        self._request(late=False)
        if not self.lists_late:
            self.catch_up()
        return [key for key in self._listed if key.startswith(prefix)]

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        self._request(late=False)
        return sorted(each for each in self.parts if each[0].startswith(prefix))

    def abort_upload(self, key: str, upload: str) -> None:
        fails = self._request()
        self.parts.pop((key, upload), None)
        self._answer(fails)

    def _request(self, late: bool = True) -> bool:
        """Count a request and fail it before it is done; return whether it fails after it is done."""
        self.requests += 1
        fails = self.requests == self.fail_at
        if fails and not (late and self.afterwards):
            self._answer(True)
        return fails

    def _answer(self, fails: bool) -> None:
        if fails:
            raise StorageError(f"injected: request {self.requests}")


@dataclass
class _ModelUpload:
    store: ModelStore
    key: str
    upload: str

    def send(self, part: bytes) -> None:
        fails = self.store._request()
        self.store.parts[self.key, self.upload].append(part)
        self.store._answer(fails)

    def complete(self) -> None:
        fails = self.store._request()
        content = b"".join(self.store.parts.pop((self.key, self.upload)))
        self.store.objects[self.key] = (content, self.upload)
        self.store._answer(fails)

    def abort(self) -> None:
        self.store.abort_upload(self.key, self.upload)


class VersityServer(ObjectServer):
    """A server that can be killed."""

    def __init__(self, directory: Path) -> None:
        """Take the directory for all that it keeps; skips the test if the program is not installed."""
        super().__init__(directory)
        if not self.outlives_a_kill:
            pytest.skip("versitygw is not installed; .ci/run installs it where there is Go")

    def stored(self) -> list[str]:
        """Return every file in the bucket's directory, whatever the server thinks that it is."""
        bucket = self.bucket_directory / BUCKET
        return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())
