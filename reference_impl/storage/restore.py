"""Before a recovery trusts a checkpoint: can everything it needs be read? (REC-4)"""

from __future__ import annotations

from reference_impl.errors import StorageError
from reference_impl.protocol.messages import CompletedCheckpoint
from reference_impl.state.backend import StateReader


def problems_with(checkpoint: CompletedCheckpoint, reader: StateReader) -> list[str]:
    """Return what keeps a checkpoint from being restored, one line a problem; empty if it is readable.

    Reads every state file in full and verifies size and checksum (``reader`` does), each path once. The lines
    name the subtask, the operator and the file, for the error that tells what was tried.
    """
    problems = []
    seen: dict[str, None] = {}
    for part in checkpoint.snapshots:
        for operator in part.operators:
            for handle in operator.handles:
                if handle.path in seen:
                    continue
                seen[handle.path] = None
                try:
                    reader.read(handle)
                except StorageError as error:
                    owner = f"{part.subtask}, operator {operator.operator}"
                    problems.append(f"checkpoint {checkpoint.checkpoint}, {owner}: {error}")
    return problems
