"""Restores are observed at their file systems: which restores, what is noted, and how the notes get to the driver."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from barrier_tck.harness.record.operations import FileRead, ReadsObserved, ServedFrom
from barrier_tck.harness.reference.observed_reads import ReadsDirectory, observed
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    OperatorSnapshot,
    StateHandle,
    StateRestored,
    SubtaskRunning,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.components import Components, Instruments
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import LinkingFileSystem

WHO, ATTEMPT = SubtaskId("totals", 0), AttemptNumber(2)
CONTENT = b"some state"
CHECKSUM = f"crc32:{zlib.crc32(CONTENT):08x}"
HANDLE = StateHandle("job/chk-1/state", len(CONTENT), CHECKSUM, KeyGroupRange(0, 16))
RESTORE = SubtaskSnapshot(WHO, AttemptNumber(1), (OperatorSnapshot("totals", handles=(HANDLE,)),))


class Sent:
    """A connection to the coordinator that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)


class Driver:
    """Replaces a subtask driver; it remembers its ports."""

    def __init__(self, deployment: Any, graph: Any, plane: Any, ports: SubtaskPorts, components: Any) -> None:
        self.ports = ports


def write(files: LocalFileSystem, path: str) -> None:
    stream = files.create(path)
    stream.write(CONTENT)
    stream.close()


DRIVEN = Components(instruments=Instruments(subtask_driver=Driver))


def deployed(directory: Path, components: Components, **changes: Any) -> tuple[Driver, SubtaskPorts]:
    shared, local = LocalFileSystem(directory / "files"), LocalFileSystem(directory / "host")
    write(shared, f"checkpoints/{HANDLE.path}")
    write(local, "totals-0/copy")
    deployment = SubtaskDeployment(
        "job", WHO, ATTEMPT, replace(JobConfig(), local_recovery=True), RESTORE, CheckpointId(1)
    )
    nothing: Any = None
    ports = SubtaskPorts(
        clock=nothing,
        probe=nothing,
        output=nothing,
        coordinator=Sent(),
        background=nothing,
        storage=FileCheckpointStorage(shared, "job"),
        files=shared,
        local_files=local,
    )
    make: Any = components.instruments.subtask_driver
    return make(replace(deployment, **changes), None, None, ports, components), ports


def test_what_a_restore_reads_is_kept_before_it_is_told(tmp_path: Path) -> None:
    kept: list[ReadsObserved] = []
    driver, ports = deployed(tmp_path, observed(DRIVEN, kept.append))
    assert driver.ports.storage.read(HANDLE) == CONTENT
    assert driver.ports.local_files is not None and driver.ports.local_files.read("totals-0/copy") == CONTENT
    driver.ports.coordinator.send(SubtaskRunning(ATTEMPT, WHO))
    assert not kept
    driver.ports.coordinator.send(StateRestored(ATTEMPT, WHO, CheckpointId(1), ()))
    size = len(CONTENT)
    assert kept == [
        ReadsObserved(
            "totals[0]",
            2,
            (
                FileRead(ServedFrom.PRIMARY, HANDLE.path, size, CHECKSUM),
                FileRead(ServedFrom.SECONDARY, "totals-0/copy", size, CHECKSUM),
            ),
        )
    ]
    sent = ports.coordinator
    assert isinstance(sent, Sent) and [type(message) for message in sent.messages] == [
        SubtaskRunning,
        StateRestored,
    ]


def test_a_host_that_can_link_still_can(tmp_path: Path) -> None:
    driver, _ = deployed(tmp_path, observed(DRIVEN, lambda reads: None))
    local = driver.ports.local_files
    assert isinstance(local, LinkingFileSystem)
    local.link(local.path_of("totals-0/copy"), "linked")
    assert local.path_of("linked").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "changes",
    [{"restore": None}, {"config": JobConfig()}],
    ids=["nothing to restore", "no local recovery"],
)
def test_other_subtasks_get_the_file_systems_themselves(tmp_path: Path, changes: dict[str, Any]) -> None:
    driver, ports = deployed(
        tmp_path,
        observed(DRIVEN, lambda reads: None),
        **changes,
    )
    assert driver.ports is ports


def test_what_an_executor_saw_reaches_the_driver_by_a_file(tmp_path: Path) -> None:
    reads = ReadsDirectory(str(tmp_path))
    # Executors get copies of the components, as Spark sends them.
    components = observed(DRIVEN, reads)
    sent: Components = cloudpickle.loads(cloudpickle.dumps(components))  # type: ignore[no-untyped-call]
    driver, _ = deployed(tmp_path / "world", sent)
    driver.ports.storage.read(HANDLE)
    assert reads.take("totals[0]", 2) is None
    driver.ports.coordinator.send(StateRestored(ATTEMPT, WHO, CheckpointId(1), ()))
    taken = reads.take("totals[0]", 2)
    assert taken is not None and [read.path for read in taken.reads] == [HANDLE.path]
    assert reads.take("totals[0]", 1) is None and reads.take("totals[1]", 2) is None


def test_a_disk_that_cannot_keep_it_costs_the_proof_and_not_the_restore(tmp_path: Path) -> None:
    reads = ReadsDirectory(str(tmp_path / "nowhere"))
    reads(ReadsObserved("totals[0]", 2, ()))
    assert reads.take("totals[0]", 2) is None
