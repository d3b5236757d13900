"""A bucket for the harness's own files, by the same client as checkpoints in S3; it needs boto3, the extra ``s3``.

Where the service is and who may use it is configured as for checkpoints in S3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.reference_impl.runtime_errors import StorageError

if TYPE_CHECKING:
    from barrier_tck.reference_impl.storage.s3 import S3ObjectStore

SCHEME = "s3://"


class Bucket:
    """The objects below a prefix of a bucket. Every failure is an EnvironmentProblem."""

    def __init__(self, objects: S3ObjectStore, location: str) -> None:
        self._objects = objects
        self.location = location

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin so."""
        with self._translated():
            return self._objects.keys(prefix)

    def get(self, key: str) -> bytes | None:
        """Return an object; None if there is none."""
        with self._translated():
            return self._objects.get(key)[0] if self._objects.version(key) else None

    def put(self, key: str, content: bytes) -> None:
        """Write an object, or replace it."""
        with self._translated():
            self._objects.put(key, content)

    def delete(self, key: str) -> bool:
        """Delete an object; return whether there was one."""
        with self._translated():
            there = bool(self._objects.version(key))
            self._objects.delete(key)
            return there

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            raise EnvironmentProblem(f"{self.location} cannot be used: {error}") from error


def bucket_at(location: str) -> Bucket:
    """Open ``s3://BUCKET/PREFIX``. Raises EnvironmentProblem without boto3, and UsageProblem for no bucket."""
    bucket, _, prefix = location.removeprefix(SCHEME).partition("/")
    if not location.startswith(SCHEME) or not bucket:
        raise UsageProblem(f"{location!r} names no bucket; write {SCHEME}BUCKET/PREFIX")
    try:
        from barrier_tck.reference_impl.storage.s3 import S3ObjectStore, s3_client
    except ImportError as error:
        raise EnvironmentProblem(
            f"a bucket needs boto3 ({error}); install barrier-tck[s3], or name a directory"
        ) from error
    return Bucket(S3ObjectStore(s3_client(), bucket, prefix), location.rstrip("/"))
