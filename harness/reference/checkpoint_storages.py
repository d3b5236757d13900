"""Finds, makes once and checks the checkpoint storages that a plan, a campaign file or the command line names; makes
those of simulated trials (STA-2)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.plan.storage_targets import OF_THE_TRIAL, WITHOUT_A_PLACE, storage_target
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.external_storage import ExternalStorage, watched
from barrier_tck.harness.reference.hdfs_model import ModelHdfsStorage
from barrier_tck.harness.reference.object_store_model import ModelObjectStorage
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import make, search_working_directory
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage, MediumCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from barrier_tck.reference_impl.storage.hdfs import LOCATION
from barrier_tck.reference_impl.storage.memory_files import MemoryCheckpointStorage, MemoryFiles

MODELS: dict[str, type[MediumCheckpointStorage]] = {"s3": ModelObjectStorage, "hdfs": ModelHdfsStorage}
"""The storages whose services the simulator has models of."""
_IN_MEMORY = "memory"


def require_checkpoint_storage(name: str) -> None:
    """Raise UsageProblem, which says what to change, unless trials can keep their checkpoints in this storage.

    For ``hdfs`` and ``package.module:Factory`` the module is imported, and the factory is called once with an empty
    directory. So a campaign asks before it starts or writes anything.
    """
    search_working_directory()
    target = storage_target(name)
    if name in WITHOUT_A_PLACE:
        return
    with temporary_work_directory("storage") as directory:
        make(target, "checkpoint storage", CheckpointStorage, directory, "job")
        ExternalStorage(target, directory)(LocalFileSystem(directory), "job")


def storage_of(
    plan: TrialPlan, external_storage: Callable[..., CheckpointStorage] | None = None
) -> Callable[..., CheckpointStorage]:
    """Return what makes the storage of a plan whose checkpoints are not in files: ``external_storage``, or a model.

    Raises UsageProblem if there is neither.
    """
    name = plan.checkpoints.storage
    made = external_storage if external_storage is not None else MODELS.get(name)
    if made is None:
        raise UsageProblem(f"no checkpoint storage {name!r} is known here")
    return made


def require_outliving(plan: TrialPlan) -> None:
    """Raise UsageProblem if a plan keeps checkpoints in the memory of a coordinator that it crashes."""
    if plan.checkpoints.storage != _IN_MEMORY:
        return
    if any(scheduled.fault.ends is Ends.COORDINATOR for scheduled in plan.faults):
        raise UsageProblem(
            "checkpoints.storage is 'memory', the coordinator's own, and a fault crashes the coordinator: all "
            "checkpoints would be lost; keep them in files, or leave the fault out"
        )


def require_shared(plan: TrialPlan) -> None:
    """Raise UsageProblem if a plan for a cluster keeps checkpoints where only one process can reach them."""
    if plan.checkpoints.storage == _IN_MEMORY:
        raise UsageProblem(
            "checkpoints.storage is 'memory', that of one process, and the processes of a cluster share none; keep "
            "checkpoints in files, s3 or hdfs, or choose reference-simulated"
        )


GIVEN_HDFS = LOCATION
"""Name of the variable that says where the user has an HDFS."""


def is_given(name: str) -> bool:
    """Return whether trials on a cluster use a service that the user has: then no fault may strike it."""
    return name == "hdfs" and bool(os.environ.get(LOCATION))


def stored_below(directory: Path, plan: TrialPlan) -> ExternalStorage | None:
    """Return what makes a storage outside the trial, whose place is named by a directory; None if a plan names none."""
    name = plan.checkpoints.storage
    return (
        None
        if name in WITHOUT_A_PLACE and not is_given(name)
        else ExternalStorage(storage_target(name), str(directory))
    )


@contextlib.contextmanager
def simulated_storage(plan: TrialPlan) -> Iterator[Callable[..., MediumCheckpointStorage] | None]:
    """Yield what makes the storage of one simulated trial, or None if it is on the simulated disk.

    A storage from outside has a real directory, which is removed at exit.
    """
    name = plan.checkpoints.storage
    if name in OF_THE_TRIAL:
        yield None
    elif name == _IN_MEMORY:
        yield _KeptInMemory()
    else:
        with temporary_work_directory("storage") as directory:
            yield stored_below(Path(directory), plan)


class _KeptInMemory:
    """Makes storage in the memory of one simulated trial, which its coordinator and its subtasks share."""

    def __init__(self) -> None:
        self._kept = MemoryFiles()

    def __call__(self, files: FileSystem, job: str, root: str = "checkpoints") -> MediumCheckpointStorage:
        return watched(MemoryCheckpointStorage(self._kept, job, root), files)
