"""What Spark asks of a ``StateStoreProvider``; the certificate says for each clause whether it was shown."""

from __future__ import annotations

READS = "reads"
SCANS = "scans"
VALUES = "values"
FAMILIES = "families"
VERSIONS = "versions"
ABORTS = "aborts"
MAINTENANCE = "maintenance"
CLEANUP = "cleanup"
KILLS = "kills"
DAMAGE = "damage"
WRITES = "writes"
IDS = "ids"

CLAUSES = {
    READS: "Inside a batch, get and iterator give what the batch wrote last, on top of the version that it was opened "
    "at; rows that the caller uses again are copied; an iterator gives every row once, though rows that it gave are "
    "removed.",
    SCANS: "A prefix scan gives all keys with the prefix and no others; a family that is ordered by a column gives its "
    "keys in the order of this column, and a range scan all keys from its start on and before its end.",
    VALUES: "Merged values of a key are all kept, in their order, until the key is written or removed.",
    FAMILIES: "Column families stay apart; one that was removed is empty when it is created again.",
    VERSIONS: "A commit of a batch on version n makes version n + 1, which holds exactly the writes of the batch, on "
    "top of n. Each retained version can be opened on any executor, and holds what it held when it was committed.",
    ABORTS: "What an aborted batch wrote never appears, on the same executor or another.",
    MAINTENANCE: "Maintenance, on any executor and as late as may be, leaves every retained version loadable.",
    CLEANUP: "Maintenance deletes what no retained version needs: while the state does not grow, neither does the "
    "number of files in storage.",
    KILLS: "After SIGKILL, inside commit and maintenance too, every version that was committed is intact; the version "
    "that was being committed is absent or whole, and can be committed again.",
    DAMAGE: "If a file in storage is missing, cut off or unreadable, a version is refused or given right, never "
    "otherwise; when the file is whole again, the version is, too.",
    WRITES: "If files of a commit or of maintenance cannot be written, or the writer gets an error all the same, every "
    "version that was committed is intact; a commit that returned is whole, and one that failed can be made again.",
    IDS: "With state checkpoint format 2, a version is what the commit with its id made; other commits of the same "
    "version, by other tasks, do not take its place, and its files stay.",
}
"""Clause -> what it asks."""
