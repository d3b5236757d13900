"""Situations in which a snapshot or a store is compared: a property demands how often each must have been reached."""

from __future__ import annotations

CHANGED = "a snapshot that holds a value which was changed before its asynchronous part began"
DELETED = "a snapshot that holds a value which was deleted before its asynchronous part began"
ADDED = "a snapshot beside whose values one was added before its asynchronous part began"
MEANWHILE = "a snapshot whose store was changed in the middle of its asynchronous part"
THE_OLDER, THE_NEWER = "the older of two unfinished ones", "the newer of two unfinished ones"
ENDED = "after another one ended"
CANCELLED = "after another one was cancelled"
FAILED = "after the storage of another one failed"
TAKEN_AMID = "a snapshot taken when some before it had ended and others had not"

STORED_LATER = "a snapshot that its asynchronous part stored"
"""No comparison, but what some situations need: without it, storage fails in synchronous parts only."""
INCREMENT = "an increment that refers to files of an earlier snapshot"
BASE_GONE = "a snapshot taken when no file of the newest confirmed one might be used any more"
LATE_WORD = "a snapshot taken after an older one was confirmed later than a newer one"
OLDER = "a store that went on from an older snapshot than its newest one, read before its first write"
MANY_FOR_NOTHING = 5
OLDER_AFTER_MANY = f"{OLDER}, after a life in which {MANY_FOR_NOTHING} or more snapshots came to nothing"
COMPRESSED = "a snapshot that was taken with compression"
COMPRESSED_OTHERWISE = "a snapshot that was restored with another compression than it was taken with"
SECOND_COPY = "a snapshot that was restored from a second copy in another format"
READ_ONLY = "a snapshot that was restored into a store that is only read"
COUNTS = (2, 4, 8)
"""How many unfinished snapshots of a store at once are counted."""


def at_once(count: int) -> str:
    """Return the situation that so many snapshots of a store, or more, were unfinished at once."""
    return f"{count} or more unfinished snapshots of a store"
