"""When in an upload its server dies."""

from __future__ import annotations

from enum import StrEnum


class UploadMoment(StrEnum):
    """When in an upload its server dies: the server of an object store, or a node of HDFS."""

    PART = "part"
    """It has got a part, but not the whole of it: a torn part; in HDFS a data node, and a file that is never closed."""
    COMPLETION = "completion"
    """It has got every part, but not yet made an object of them: a partial upload; in HDFS the name node, before it
    renames what was written beside."""
    ANSWER = "answer"
    """It has done so, and has not answered."""

    @property
    def phrase(self) -> str:
        """Return when that is, for instance ``in a part of an upload``."""
        return _MOMENTS[self]


_MOMENTS = {
    UploadMoment.PART: "in a part of an upload",
    UploadMoment.COMPLETION: "before an upload is complete",
    UploadMoment.ANSWER: "before it answers that an upload is complete",
}
