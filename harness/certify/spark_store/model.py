"""What a state store must hold: a dict for each version, and the writes of the batch that made it."""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.harness.certify.spark_store.layouts import Key

Content = dict[str, dict[Key, tuple[str, ...]]]
"""Family -> key -> its values, one unless the family has several for a key."""
Write = tuple[str, str, Key, str]
"""What was done (``put``, ``merge``, ``remove``, ``drop``), family, key, value."""


@dataclass(slots=True)
class OpenBatch:
    """A store that is open: the version on which it is based, what was written, and what it must hold now."""

    base: int
    content: Content
    read_only: bool = False
    writes: list[Write] = field(default_factory=list)

    def write(self, what: str, family: str, key: Key, value: str = "") -> None:
        """Apply one write."""
        self.writes.append((what, family, key, value))
        entries = self.content[family]
        if what == "put":
            entries[key] = (value,)
        elif what == "merge":
            entries[key] = (*entries.get(key, ()), value)
        elif what == "remove":
            entries.pop(key, None)
        else:
            entries.clear()

    def dropped(self) -> frozenset[str]:
        """Return the families that this batch removed."""
        return frozenset(family for what, family, _, _ in self.writes if what == "drop")


class VersionedStore:
    """The versions of one store."""

    def __init__(self, families: tuple[str, ...], retained: int) -> None:
        self.retained = retained
        self._versions: list[Content] = [{family: {} for family in families}]
        self._batches: list[list[Write]] = [[]]
        self._ids: list[str | None] = [None]
        self.given_up: set[tuple[str, Key, str]] = set()
        """Values that were written by batches that were never committed."""

    @property
    def newest(self) -> int:
        return len(self._versions) - 1

    def content(self, version: int) -> Content:
        """Return what a version holds."""
        return self._versions[version]

    def begin(self, version: int) -> OpenBatch:
        """Return a batch on top of a version."""
        copied = {family: dict(entries) for family, entries in self._versions[version].items()}
        return OpenBatch(version, copied, read_only=version != self.newest)

    def commit(self, batch: OpenBatch, commit_id: str | None) -> None:
        """Make the next version from a batch that is based on the newest one."""
        self._versions.append(batch.content)
        self._batches.append(batch.writes)
        self._ids.append(commit_id)

    def commit_again(self, commit_id: str | None) -> None:
        """Let the newest version be that of another commit, with the same writes."""
        self._ids[-1] = commit_id

    def commit_id(self, version: int) -> str | None:
        """Return the id of the commit that made a version, if it has any."""
        return self._ids[version]

    def give_up(self, batch: OpenBatch) -> None:
        """Remember what was written and never committed."""
        self.given_up.update(
            (family, key, value) for what, family, key, value in batch.writes if what in ("put", "merge")
        )

    def writes(self, version: int) -> list[Write]:
        """Return the writes of the batch that made a version."""
        return self._batches[version]

    def is_retained(self, version: int) -> bool:
        """Return whether Spark must still be able to load a version."""
        return self.newest - self.retained < version <= self.newest

    def retained_versions(self) -> list[int]:
        """Return the versions that must be loadable, newest first."""
        return [number for number in range(self.newest, -1, -1) if self.is_retained(number)]

    def keys_written(self, family: str) -> set[Key]:
        """Return all keys that committed batches wrote or removed in a family."""
        return {key for batch in self._batches for _, name, key, _ in batch if name == family}
