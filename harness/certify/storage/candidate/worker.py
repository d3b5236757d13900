"""The process in which a checkpoint storage is certified: ``python -m`` runs what it is asked for.

For each property that it is asked for on a socket it sends a line of JSON there, so that nothing that the candidate
prints is taken for a result. The candidate is imported here only.
"""

from __future__ import annotations

import socket
import sys
import traceback

from barrier_tck.harness.certify.storage.candidate.bench import Broken, StorageBench
from barrier_tck.harness.certify.storage.candidate.checks import CHECKS
from barrier_tck.harness.certify.storage.candidate.killed_process import made_by
from barrier_tck.harness.certify.storage.wire import Checked, Loaded, Refused, encoded
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import shown, what_happened
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage


def _loaded(target: str, location: str) -> Loaded | Refused:
    """Make the storage once; return what it is, or why it cannot be certified."""
    try:
        storage = made_by(target)(f"{location}/first", "job")
    except UsageProblem as error:
        return Refused(str(error))
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its own mistake, and is reported
        return Refused(f"the checkpoint storage {shown(target)} cannot be made: {what_happened(error)}")
    wanted = [*vars(CheckpointStorage), *CheckpointStorage.__annotations__]
    missing = [name for name in wanted if not name.startswith("_") and not hasattr(storage, name)]
    if missing:
        return Refused(
            f"{shown(target)} makes a {type(storage).__name__}, which is no checkpoint storage: it has no "
            f"{', '.join(missing)} (see CheckpointStorage)"
        )
    return Loaded(type(storage).__name__, bool(storage.outlives_its_process))


def _checked(name: str, target: str, location: str) -> Checked:
    """Run one check at a place of its own."""
    bench = StorageBench(made_by(target), target, f"{location}/{name}")
    broken = reason = ""
    try:
        CHECKS[name](bench)
    except Broken as error:
        broken, reason = error.clause, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its own mistake, and is reported
        traceback.print_exc()
        reason = f"it raised {what_happened(error)}"
    return Checked(name, not reason, reason, broken, bench.shown, bench.processes)


def main(descriptor: int, target: str, location: str) -> None:
    """Say what the target makes; then check each property that is asked for."""
    with socket.socket(fileno=descriptor) as link, link.makefile("rb") as requests:
        first = _loaded(target, location)
        link.sendall(encoded(first))
        if isinstance(first, Refused):
            return
        for request in requests:
            link.sendall(encoded(_checked(request.decode().strip(), target, location)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
