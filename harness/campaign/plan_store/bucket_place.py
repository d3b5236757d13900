"""A store of plans in a bucket: each plan is an object."""

from __future__ import annotations

from barrier_tck.harness.campaign.plan_store.places import BYTES_MAX, is_name
from barrier_tck.harness.reference.bucket import Bucket
from barrier_tck.harness.support.errors import UsageProblem


class BucketPlace:
    """The objects below a prefix of a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @property
    def location(self) -> str:
        return self._bucket.location

    def names(self, folder: str) -> tuple[str, ...]:
        names = (key.removeprefix(f"{folder}/") for key in self._bucket.keys(f"{folder}/"))
        return tuple(name for name in names if is_name(name))

    def read(self, folder: str, name: str) -> bytes | None:
        content = self._bucket.get(f"{folder}/{name}")
        if content is not None and len(content) > BYTES_MAX:
            raise UsageProblem(
                f"{self.source(folder, name)} has more than {BYTES_MAX:,} bytes: it is no stored plan"
            )
        return content

    def write(self, folder: str, name: str, content: bytes) -> None:
        self._bucket.put(f"{folder}/{name}", content)

    def remove(self, folder: str, name: str) -> bool:
        return self._bucket.delete(f"{folder}/{name}")

    def source(self, folder: str, name: str) -> str:
        return f"{self.location}/{folder}/{name}"
