"""Checkpoint storage on an object store's server that the harness has started; it needs boto3, the extra ``s3``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from barrier_tck.harness.cluster.object_store.object_server import KEY, REGION, SECRET
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage
from barrier_tck.reference_impl.storage.s3 import S3Access, S3ObjectStore, s3_client

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

BUCKET = "trial"
WHOLE_BYTES = 64
"""Small, so that the small states of trials are uploaded in parts; the only part of an upload may be small."""


def served_storage(location: str, job: str) -> ObjectCheckpointStorage:
    """Return checkpoint storage on such a server; the location is its URL."""
    return ObjectCheckpointStorage(S3ObjectStore(client_of(location), BUCKET), job, whole_bytes=WHOLE_BYTES)


def prepare(location: str) -> None:
    """Make the bucket on a new server."""
    client_of(location).create_bucket(Bucket=BUCKET)


@cache
def client_of(url: str) -> S3Client:
    """Return the client of a server: one for all threads of a process."""
    return s3_client(access=S3Access(url, KEY, SECRET, REGION))
