"""Object stores for tests: a model in memory with the weather of real ones, and a real server that can be killed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError

KEY, SECRET, REGION, BUCKET = "tester", "tester-secret", "us-east-1", "tck"
_START_S = 20.0


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


class VersityServer:
    """The S3 gateway of Versity over a directory, in a process of its own, always at the same address."""

    def __init__(self, root: Path) -> None:
        """Take the directory whose directories are buckets; skips the test if the program is not installed."""
        found = shutil.which("versitygw")
        if found is None:
            pytest.skip("versitygw is not installed; .ci/run installs it where there is Go")
        self._program = found
        self._root = root
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._root.mkdir(exist_ok=True)
        command = [self._program, "--access", KEY, "--secret", SECRET, "--region", REGION]
        command += ["--port", f"127.0.0.1:{self._port}", "--quiet", "posix", str(self._root)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + _START_S
        while True:
            try:
                requests.get(self.url, timeout=1.0)
                return
            except requests.ConnectionError:
                assert self._process.poll() is None, "versitygw ended"
                assert time.monotonic() < end, "versitygw does not answer"
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill it; killing twice is harmless."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stored(self) -> list[str]:
        """Return every file in the bucket's directory, whatever the server thinks that it is."""
        bucket = self._root / BUCKET
        return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())
