"""The names of checkpoint storages: for certification, and in plans. Nothing is imported here, so they can be checked
before anything of them runs."""

from __future__ import annotations

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import is_target, shown

SHIPPED_STORAGES = {
    "files": "barrier_tck.reference_impl.storage.checkpoint_storage:file_storage",
    "s3": "barrier_tck.reference_impl.storage.s3:s3_storage",
    "hdfs": "barrier_tck.reference_impl.storage.hdfs:hdfs_storage",
    "memory": "barrier_tck.reference_impl.storage.memory_files:memory_storage",
}
"""Short name -> target, for the checkpoint storages that come with the project."""

SERVED = ("s3", "hdfs")
"""The storages for which a trial has a service of its own, which faults hit: a model of it in the simulator."""

OF_THE_TRIAL = ("files", *SERVED)
"""The storages that a trial starts for itself; the simulator has all on its disk, where every fault reaches them."""

WITHOUT_A_PLACE = (*OF_THE_TRIAL, "memory")
"""The storages that need no place outside the trial. Any other is given a directory of the trial as its location."""


def storage_target(name: str) -> str:
    """Return the target, ``package.module:Factory``, for a short name; a target is returned as it is (STA-2).

    Raises UsageProblem, with the nearest name, if the name is neither.
    """
    target = SHIPPED_STORAGES.get(name, name)
    if not is_target(target):
        raise UsageProblem(
            f"checkpoint storage is {shown(name)}{nearest(name, SHIPPED_STORAGES)} "
            "(another storage is named package.module:Factory)"
        )
    return target
