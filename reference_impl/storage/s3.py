"""An object store that speaks the S3 protocol, by boto3, which the extra ``s3`` installs (STA-2, decision 0049).

Where it is and who may use it is configured as for every program that uses boto3: by ``AWS_ENDPOINT_URL_S3``,
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION`` or by a profile. The server must know conditional
writes (``If-None-Match: *`` and ``If-Match``), as Amazon S3 does since November 2024.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, EndpointConnectionError

from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageCause, StorageError
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage, Upload

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef, PutObjectRequestTypeDef

ResultT = TypeVar("ResultT")

_SCHEME = "s3://"
_WRITER = "barrier-tck-put"
"""Name of the metadata that tells which put an object comes from."""
_MISSING = ("404", "NoSuchKey", "NotFound")
_NO_UPLOAD = "NoSuchUpload"
_REFUSED = ("412", "PreconditionFailed")
_CONTENDED = ("409", "ConditionalRequestConflict")
_CONTENDED_TRIES = 5

TOTAL_TRIES = 5
"""How often boto3 tries a request that was throttled (503), timed out or broke off, before it fails."""
AWAY_TRIES, AWAY_PAUSE_S = 20, 0.2
"""How often a request is tried further, and how long after the last time, if no server takes connections or they are
closed without an answer: a server that starts again is back within these four seconds. boto3 alone waits for less than
half a second on average, and gives the longer waits to throttled requests only.
"""
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class S3Access:
    """The endpoint and credentials of a store, for callers that do not want those of the environment."""

    url: str
    key: str
    secret: str
    region: str


def s3_client(
    tries: int = TOTAL_TRIES,
    read_timeout_s: float = READ_TIMEOUT_S,
    access: S3Access | None = None,
    away_tries: int = AWAY_TRIES,
) -> S3Client:
    """Return a client with bounded retries; without ``access`` for the endpoint and credentials of the environment."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": tries},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
    )
    if access is None:
        client = boto3.client("s3", config=config)
    else:
        client = boto3.client(
            "s3",
            config=config,
            endpoint_url=access.url,
            aws_access_key_id=access.key,
            aws_secret_access_key=access.secret,
            region_name=access.region,
        )
    # What boto3's own handler wants to repeat it repeats: the first handler that has an answer wins.
    again: Callable[..., Any] = partial(_while_away, tries, tries + away_tries)
    client.meta.events.register("needs-retry.s3", again)
    return client


def _while_away(
    own: int, most: int, attempts: int, caught_exception: Exception | None = None, **_: object
) -> float | None:
    """Return after how many seconds to repeat a request that boto3 has given up; None: not again."""
    away = isinstance(caught_exception, EndpointConnectionError | ConnectionClosedError)
    return AWAY_PAUSE_S if away and own <= attempts < most else None


class S3ObjectStore:
    """The objects below a prefix of a bucket."""

    def __init__(self, client: S3Client, bucket: str, prefix: str = "") -> None:
        """Take the client, the bucket, which must exist, and what all keys begin with."""
        if not bucket:
            raise JobUsageError("checkpoint storage in S3 needs a bucket, as in s3://bucket/prefix")
        self._client = client
        self._bucket = bucket
        self._prefix = prefix.strip("/")

    def get(self, key: str) -> tuple[bytes, str]:
        with self._translated("read", key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(key))
            return answer["Body"].read(), answer["ETag"]

    def version(self, key: str) -> str:
        with self._translated("look for", key):
            found = self._head(key)
            return found[0] if found is not None else ""

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        token = uuid.uuid4().hex
        request: PutObjectRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": self._key(key),
            "Body": content,
            "Metadata": {_WRITER: token},
        }
        if expected == "":
            request["IfNoneMatch"] = "*"
        elif expected is not None:
            request["IfMatch"] = expected
        with self._translated("put", key):
            try:
                return _uncontended(lambda: self._client.put_object(**request))["ETag"]
            except ClientError as error:
                if expected is None or _code(error) not in (*_REFUSED, *_MISSING):
                    raise
                # boto3 repeats a request whose answer was lost. Then the condition is refused because of our object.
                found = self._head(key)
                return found[0] if found is not None and found[1] == token else None

    def upload(self, key: str) -> Upload:
        token = uuid.uuid4().hex
        with self._translated("begin the upload of", key):
            answer = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=self._key(key), Metadata={_WRITER: token}
            )
            return _S3Upload(self, key, answer["UploadId"], token)

    def send_part(self, key: str, upload: str, number: int, part: bytes) -> CompletedPartTypeDef:
        """Send a part of an upload, numbered from 1; return what completes it."""
        with self._translated("send a part of", key):
            answer = self._client.upload_part(
                Bucket=self._bucket, Key=self._key(key), UploadId=upload, PartNumber=number, Body=part
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

    def complete_upload(
        self, key: str, upload: str, parts: Sequence[CompletedPartTypeDef], token: str
    ) -> None:
        """Make an object of the parts of an upload that was begun with a token."""
        with self._translated("complete the upload of", key):
            try:
                self._client.complete_multipart_upload(
                    Bucket=self._bucket, Key=self._key(key), UploadId=upload, MultipartUpload={"Parts": parts}
                )
            except ClientError as error:
                # boto3 repeats a request whose answer was lost. Then the upload is gone because it is complete.
                found = self._head(key) if _code(error) == _NO_UPLOAD else None
                if found is None or found[1] != token:
                    raise

    def delete(self, key: str) -> None:
        with self._translated("delete", key):
            try:
                self._client.delete_object(Bucket=self._bucket, Key=self._key(key))
            except ClientError as error:
                if _code(error) not in _MISSING:
                    raise

    def keys(self, prefix: str) -> list[str]:
        with self._translated("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._key(prefix)
            )
            return sorted(self._own(each["Key"]) for page in pages for each in page.get("Contents", []))

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        with self._translated("list the uploads of", prefix):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._key(prefix)
            )
            return sorted(
                (self._own(each["Key"]), each["UploadId"])
                for page in pages
                for each in page.get("Uploads", [])
            )

    def abort_upload(self, key: str, upload: str) -> None:
        with self._translated("abort the upload of", key):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key(key), UploadId=upload)
            except ClientError as error:
                if _code(error) not in (_NO_UPLOAD, *_MISSING):
                    raise

    def _head(self, key: str) -> tuple[str, str] | None:
        """Return an object's version and the put that it comes from; None if there is none."""
        try:
            answer = self._client.head_object(Bucket=self._bucket, Key=self._key(key))
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            raise
        return answer["ETag"], answer["Metadata"].get(_WRITER, "")

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _own(self, key: str) -> str:
        return key.removeprefix(f"{self._prefix}/") if self._prefix else key

    @contextmanager
    def _translated(self, what: str, key: str) -> Iterator[None]:
        """Turn errors of boto3 into StorageError."""
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            missing = isinstance(error, ClientError) and _code(error) in _MISSING
            cause = StorageCause.MISSING if missing else StorageCause.FAILED
            place = f"{_SCHEME}{self._bucket}/{self._key(key)}"
            raise StorageError(f"cannot {what} {place}: {error}", cause) from error


class _S3Upload:
    """An upload in parts."""

    def __init__(self, store: S3ObjectStore, key: str, upload: str, token: str) -> None:
        self._store = store
        self._key = key
        self._upload = upload
        self._token = token
        self._parts: list[CompletedPartTypeDef] = []

    def send(self, part: bytes) -> None:
        number = len(self._parts) + 1
        self._parts.append(self._store.send_part(self._key, self._upload, number, part))

    def complete(self) -> None:
        self._store.complete_upload(self._key, self._upload, self._parts, self._token)

    def abort(self) -> None:
        self._store.abort_upload(self._key, self._upload)


def _code(error: ClientError) -> str:
    """Return the code of an answer; of one without a body, as to HEAD, the number of its HTTP status."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _uncontended(request: Callable[[], ResultT]) -> ResultT:
    """Make a conditional request; repeat it if the store could not decide because of another at the same time."""
    for _ in range(_CONTENDED_TRIES - 1):
        try:
            return request()
        except ClientError as error:
            if _code(error) not in _CONTENDED:
                raise
    return request()


def s3_storage(location: str, job: str) -> ObjectCheckpointStorage:
    """Return the checkpoint storage of a job below ``s3://bucket/prefix``, as the environment says who may."""
    if not location.startswith(_SCHEME):
        raise JobUsageError(f"checkpoint storage in S3 is at s3://bucket/prefix, not {location!r}")
    bucket, _, prefix = location.removeprefix(_SCHEME).partition("/")
    return ObjectCheckpointStorage(S3ObjectStore(s3_client(), bucket, prefix), job)
