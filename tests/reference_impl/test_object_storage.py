"""Checkpoint storage in an object store: on a model with late listings and failures, and on two servers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from moto.server import ThreadedMotoServer

from barrier_tck.harness.certify.storage.suite import certify
from barrier_tck.harness.cluster.object_store.object_server import KEY, REGION, SECRET
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageCause, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage
from barrier_tck.reference_impl.storage.s3 import TOTAL_TRIES, S3ObjectStore, s3_client, s3_storage
from tests.reference_impl.object_stores import BUCKET, ModelStore, VersityServer
from tests.reference_impl.storage_fakes import completed_checkpoint
from tests.waiting import PATIENCE_S

GROUPS = KeyGroupRange(0, 8)
COUNT = SubtaskId("count", 0)
MIB = 1024 * 1024
LONG = [bytes([number]) * (5 * MIB) for number in range(4)]


def write(
    storage: CheckpointStorage, checkpoint: int, chunks: Iterable[bytes] = (b"ab", b"cd", b"e")
) -> StateHandle:
    writer = storage.writer(CheckpointId(checkpoint), AttemptNumber(1), COUNT, "aggregate")
    return writer.write("state", chunks, GROUPS)


def complete(storage: CheckpointStorage, checkpoint: int) -> CompletedCheckpoint:
    storage.reserve(CheckpointId(checkpoint), AttemptNumber(1))
    completed = completed_checkpoint(checkpoint, [write(storage, checkpoint)])
    storage.publish(completed)
    return completed


def of(store: ModelStore) -> ObjectCheckpointStorage:
    return ObjectCheckpointStorage(store, "job", part_bytes=2)


def test_complete_checkpoints_are_found_although_listings_are_late() -> None:
    store = ModelStore(lists_late=True)
    first = complete(of(store), 1)
    complete(of(store), 2)
    assert of(store).completed() == (1, 2)
    assert of(store).load(CheckpointId(1)) == first
    store.catch_up()
    of(store).discard_checkpoint(CheckpointId(1))
    assert "checkpoints/job/chk-1/_metadata" in of(store).files(), "the listing still shows it"
    assert of(store).completed() == (2,)


def test_what_is_gone_at_the_lower_end_is_not_asked_for_for_ever() -> None:
    store = ModelStore()
    coordinator = of(store)
    for checkpoint in range(1, 40):
        complete(coordinator, checkpoint)
        if checkpoint > 1:
            coordinator.discard_checkpoint(CheckpointId(checkpoint - 1))
    before = store.requests
    assert of(store).completed() == (39,)
    assert store.requests - before < 10, "counters, two listings, and a few questions"
    # A coordinator that starts later learns which ids came to nothing, and does not lose its own.
    later = of(store)
    assert later.completed() == (39,)
    store.lists_late = True
    later.reserve(CheckpointId(40), AttemptNumber(2))
    later.reserve(CheckpointId(41), AttemptNumber(2))
    later.discard_checkpoint(CheckpointId(39))
    later.reserve(CheckpointId(42), AttemptNumber(2))
    later.publish(completed_checkpoint(40))
    later.publish(completed_checkpoint(42))
    assert of(store).completed() == (40, 42)


def test_ids_that_an_earlier_job_has_used_cost_nothing() -> None:
    store = ModelStore(lists_late=True)
    of(store).reserve(CheckpointId(2**53), AttemptNumber(1))
    complete(of(store), 2**53 + 1)
    before = store.requests
    assert of(store).completed() == (2**53 + 1,)
    assert store.requests - before < 10


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_write_that_fails_at_any_request_leaves_no_object_and_no_parts(afterwards: bool) -> None:
    failures = 0
    for k in range(1, 12):
        store = ModelStore(fail_at=k, afterwards=afterwards)
        try:
            write(of(store), 1)
        except StorageError:
            failures += 1
        else:
            assert store.requests < k, f"request {k} failed, but the handle was given out"
            assert [content for content, _ in store.objects.values()] == [b"abcde"]
            continue
        orphan = afterwards and k == 1  # the store has begun an upload, and nobody knows its name
        assert store.objects == {} and bool(store.parts) == orphan
        store.fail_at = 0
        of(store).discard_checkpoint(CheckpointId(1))
        assert of(store).files() == [], "discarding the checkpoint finds them"
    assert failures == 5, "begin, three parts, complete"


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_checkpoint_is_complete_exactly_if_publish_returned(afterwards: bool) -> None:
    outcomes = []
    for k in range(1, 8):
        store = ModelStore()
        complete(of(store), 1)
        of(store).reserve(CheckpointId(2), AttemptNumber(1))
        handle = write(of(store), 2)
        storage = of(store)
        store.requests, store.fail_at, store.afterwards = 0, k, afterwards
        try:
            storage.publish(completed_checkpoint(2, [handle]))
            returned = True
        except StorageError:
            returned = False
        assert returned == (store.requests < k)
        store.fail_at = 0
        assert of(store).completed() == ((1, 2) if returned else (1,))
        outcomes.append(returned)
    assert outcomes[:2] == [False, False] and outcomes[-1]


def test_of_two_coordinators_one_is_refused() -> None:
    store = ModelStore()
    complete(of(store), 1)
    old, new = of(store), of(store)
    assert old.reserved() == new.reserved() == (1, 1)
    new.reserve(CheckpointId(5), AttemptNumber(2))
    with pytest.raises(StorageError, match="is there a second coordinator"):
        old.reserve(CheckpointId(2), AttemptNumber(2))
    assert of(store).reserved() == (5, 2)
    new.publish(completed_checkpoint(3))
    with pytest.raises(JobUsageError, match="published already"):
        old.publish(completed_checkpoint(3))


@pytest.mark.parametrize("afterwards", [False, True])
def test_after_a_failed_reservation_the_counters_are_read_again(afterwards: bool) -> None:
    store = ModelStore()
    storage = of(store)
    storage.reserve(CheckpointId(4), AttemptNumber(2))
    store.requests, store.fail_at, store.afterwards = 0, 1, afterwards
    with pytest.raises(StorageError, match="injected"):
        storage.reserve(CheckpointId(5), AttemptNumber(2))
    assert storage.reserved() == ((5, 2) if afterwards else (4, 2))
    storage.reserve(CheckpointId(6), AttemptNumber(2))
    assert of(store).reserved() == (6, 2)


def test_shared_files_that_stay_do_not_protect_an_unfinished_upload() -> None:
    store = ModelStore()
    storage = of(store)
    storage.reserve(CheckpointId(1), AttemptNumber(1))
    kept = storage.shared_writer(CheckpointId(1), AttemptNumber(1), COUNT, "a").write("a", [b"x"], GROUPS)
    store.parts["checkpoints/job/shared/chk-1/half", "u9"] = [b"x"]
    storage.discard_checkpoint(CheckpointId(1), (kept.path,))
    assert store.parts == {} and storage.shared_files() == (kept.path,)


# --- on servers -------------------------------------------------------------------------------------------


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def moto(credentials: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    s3_client().create_bucket(Bucket=BUCKET)
    yield
    server.stop()


@pytest.fixture
def versity(credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VersityServer]:
    server = VersityServer(tmp_path / "buckets")
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    s3_client().create_bucket(Bucket=BUCKET)
    yield server
    server.kill()


QUICK = (
    "state-files-are-read-as-written",
    "a-failed-write-leaves-nothing",
    "an-id-is-published-once",
    "counters-never-fall",
    "a-discarded-checkpoint-is-gone",
    "a-failed-request-leaves-all-with-the-same",
    "killed-in-the-middle-of-a-write",
)


PROPERTY_S = 900.0
"""No machine is so busy that a property takes so long."""


@pytest.mark.nightly
def test_the_s3_storage_keeps_its_contract_on_a_real_server(versity: VersityServer) -> None:
    outcomes = certify("s3", f"s3://{BUCKET}/quick", only=QUICK, property_s=PROPERTY_S).outcomes
    tried = {one.name: (one.status, one.reason) for one in outcomes if one.name in QUICK}
    assert tried == dict.fromkeys(QUICK, ("passed", ""))


@pytest.mark.nightly
def test_the_s3_storage_has_the_properties_on_a_server_for_every_machine(moto: None) -> None:
    outcomes = certify("s3", f"s3://{BUCKET}/quick", only=QUICK, property_s=PROPERTY_S).outcomes
    tried = {one.name: (one.status, one.reason) for one in outcomes if one.name in QUICK}
    assert tried == dict.fromkeys(QUICK, ("passed", ""))


@pytest.mark.nightly
def test_the_s3_storage_is_certified_on_a_real_server(versity: VersityServer) -> None:
    certificate = certify("s3", f"s3://{BUCKET}/full", property_s=PROPERTY_S)
    assert {one.name: one.reason for one in certificate.outcomes if one.status != "passed"} == {}
    assert (certificate.verdict, certificate.level) == ("certified", "crash")


@pytest.mark.long
def test_a_server_killed_in_the_middle_of_an_upload_loses_nothing_and_leaves_nothing(
    versity: VersityServer,
) -> None:
    def storage() -> ObjectCheckpointStorage:
        client = s3_client(tries=2, read_timeout_s=PATIENCE_S, away_tries=0)
        return ObjectCheckpointStorage(S3ObjectStore(client, BUCKET, "kills"), "job", part_bytes=5 * MIB)

    kept = complete(storage(), 1)
    before = versity.stored()
    storage().reserve(CheckpointId(2), AttemptNumber(1))

    def chunks() -> Iterator[bytes]:
        yield from LONG[:3]
        assert versity.stored() != before, "parts were sent"
        versity.kill()
        yield LONG[3]

    with pytest.raises(StorageError, match="cannot send a part") as caught:
        write(storage(), 2, chunks())
    assert any("left behind" in note for note in caught.value.__notes__)
    versity.start()
    assert storage().completed() == (1,)
    assert storage().load(CheckpointId(1)) == kept
    assert storage().incomplete() == (2,)
    storage().discard_checkpoint(CheckpointId(2))
    assert storage().incomplete() == ()
    assert versity.stored() == before
    handle = write(storage(), 3, LONG)
    assert storage().read(handle) == b"".join(LONG)


@pytest.mark.long
def test_a_throttled_store_is_asked_a_bounded_number_of_times(
    moto: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)  # it waits between tries
    client: Any = s3_client()
    tries: list[str] = []

    def slow_down(request: Any, **_: Any) -> AWSResponse:
        tries.append(request.url)
        return AWSResponse(request.url, 503, HTTPHeaders(), _Body(b"<Error><Code>SlowDown</Code></Error>"))

    client.meta.events.register("before-send.s3.PutObject", slow_down)
    storage = ObjectCheckpointStorage(S3ObjectStore(client, BUCKET), "job")
    with pytest.raises(StorageError, match=f"SlowDown.*reached max retries: {TOTAL_TRIES - 1}"):
        write(storage, 1)
    assert len(tries) == TOTAL_TRIES
    client.meta.events.unregister("before-send.s3.PutObject", slow_down)
    assert storage.read(write(storage, 1)) == b"abcde"


@pytest.mark.long
def test_a_put_whose_answer_was_lost_knows_itself_and_takes_nobody_elses(moto: None) -> None:
    client: Any = s3_client()
    store = S3ObjectStore(client, BUCKET)
    plain = S3ObjectStore(s3_client(), BUCKET)
    lost: list[bytes] = []

    def lose_the_answer(request: Any, **_: Any) -> AWSResponse | None:
        if lost:
            return None
        lost.append(b"")
        client._endpoint.http_session.send(request)
        return AWSResponse(
            request.url, 500, HTTPHeaders(), _Body(b"<Error><Code>InternalError</Code></Error>")
        )

    client.meta.events.register("before-send.s3.PutObject", lose_the_answer)
    version = store.put("a", b"content", "")
    assert lost and version is not None and version == plain.version("a")
    assert plain.put("a", b"content", "") is None, "the same content from somebody else is somebody else's"
    lost.clear()
    changed = store.put("a", b"newer", version)
    assert lost and changed == plain.version("a")
    assert plain.put("a", b"older", version) is None


@pytest.mark.long
def test_errors_name_the_object_and_a_missing_one_is_told_apart(moto: None) -> None:
    store = S3ObjectStore(s3_client(), BUCKET, "some/prefix")
    with pytest.raises(StorageError, match=f"cannot read s3://{BUCKET}/some/prefix/x: .*") as caught:
        store.get("x")
    assert caught.value.cause is StorageCause.MISSING
    store.delete("x")
    store.abort_upload("x", "never-begun")
    with pytest.raises(StorageError, match="NoSuchBucket") as caught:
        S3ObjectStore(s3_client(), "nowhere").keys("")
    assert caught.value.cause is StorageCause.FAILED


@pytest.mark.parametrize("location", ["/a/directory", "s3:bucket", "s3://", "s3:///prefix"])
def test_a_location_that_is_none_is_refused(location: str, moto: None) -> None:
    with pytest.raises(JobUsageError, match="s3://bucket/prefix"):
        s3_storage(location, "job")


class _Body:
    """What is left to read of an answer."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Iterator[bytes]:
        yield self._content
