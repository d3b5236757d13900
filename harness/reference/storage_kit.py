"""What the author of a checkpoint storage needs from the runtime; re-exported as in ``backend_kit``."""

from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage, MediumCheckpointStorage
from barrier_tck.reference_impl.storage.whole_files import WholeFiles

__all__ = ["CheckpointStorage", "MediumCheckpointStorage", "WholeFiles"]
