"""The steps that are played on a state store, as data: they can be saved, made smaller, and played again.

Any sequence of steps makes sense. A step that needs an open store opens the newest version first, numbers are taken
modulo what there is, and a step for which there is nothing to do does nothing. So any part of a failing sequence can be
left out, and what is left is still a sequence.
"""

from __future__ import annotations

import msgspec

from barrier_tck.faults.targets import WriteFault
from barrier_tck.harness.certify.engine.steps import Step
from barrier_tck.harness.certify.spark_store.layouts import Key
from barrier_tck.harness.certify.spark_store.session_settings import in_short, require_drawn

_TEXT_MAX = 20
FRESH = 2
"""The number of an executor that is started for one step and ends with it; the others are 0 and 1."""


class StoreStep(Step, frozen=True):
    """Base of all steps; most are for one of the executors."""

    def description(self) -> str:
        rest = [getattr(self, name) for name in self.__struct_fields__ if name != "executor"]
        return f"{_name_of(getattr(self, 'executor', FRESH))}: {self.kind}({', '.join(map(brief, rest))})"


class StartQuery(StoreStep, frozen=True, tag="settings"):
    """Start the query with other settings: on new executors. Once a version is committed, some settings stay."""

    settings: tuple[tuple[str, str], ...]
    """Name and value of each, of those that are drawn."""

    def __post_init__(self) -> None:
        for name, value in self.settings:
            require_drawn(name, value)

    def description(self) -> str:
        return f"start the query with {in_short(dict(self.settings)) or 'default settings'}"


class OpenVersion(StoreStep, frozen=True, tag="begin"):
    """Open a store on an executor, ``back`` versions before the newest; an older one is opened to be read."""

    executor: int
    back: int = 0

    def description(self) -> str:
        return f"{_name_of(self.executor)}: open {_version(self.back)}"


class PutRow(StoreStep, frozen=True, tag="put"):
    """Write a value."""

    executor: int
    family: int
    key: Key
    value: str


class MergeRow(StoreStep, frozen=True, tag="merge"):
    """Add a value to those of a key, in the family with several values for a key; without one, write it."""

    executor: int
    family: int
    key: Key
    value: str


class RemoveRow(StoreStep, frozen=True, tag="remove"):
    """Remove a key."""

    executor: int
    family: int
    key: Key


class RemoveSome(StoreStep, frozen=True, tag="remove-one"):
    """Remove a key that is there: ``number`` is its place among them, in order."""

    executor: int
    family: int
    number: int


class DropFamily(StoreStep, frozen=True, tag="drop"):
    """Remove a family that is not the default one; it is created again, empty, when a store is opened next."""

    executor: int
    family: int


class ReadRow(StoreStep, frozen=True, tag="read"):
    """Read one key, in every form."""

    executor: int
    family: int
    key: Key


class ScanFamily(StoreStep, frozen=True, tag="scan"):
    """Read the whole family; where it has scans, also by each prefix, or between ``first`` and ``last``."""

    executor: int
    family: int
    first: int
    last: int


class FillRows(StoreStep, frozen=True, tag="fill"):
    """Write the same value under ``count`` keys."""

    executor: int
    family: int
    count: int
    value: str


class EvictRows(StoreStep, frozen=True, tag="evict"):
    """Iterate over a family, and remove each ``every``-th row while the iterator stands at it."""

    executor: int
    family: int
    every: int


class CommitBatch(StoreStep, frozen=True, tag="commit"):
    """Commit what an executor has open; if another one was faster, it is aborted, as Spark does with such a task."""

    executor: int


class CommitLate(StoreStep, frozen=True, tag="commit-late"):
    """Commit what an executor has open, although another one has committed that version: a task that nobody waits for.

    Only with ids of commits (format 2): nobody asks for its id. Otherwise the batch is aborted.
    """

    executor: int


class AbortBatch(StoreStep, frozen=True, tag="abort"):
    """Abort what an executor has open."""

    executor: int


class RerunBatch(StoreStep, frozen=True, tag="rerun"):
    """Run the newest batch again on an executor, with the same writes: its version is committed a second time."""

    executor: int


class MaintainStore(StoreStep, frozen=True, tag="maintain"):
    """Let an executor do its maintenance."""

    executor: int


class WriteOnAndOn(StoreStep, frozen=True, tag="on-and-on"):
    """Write one key in many batches, each aborted once, with maintenance after each: storage must not grow for ever."""

    executor: int
    rounds: int


class ReloadProvider(StoreStep, frozen=True, tag="reopen"):
    """Unload the provider of an executor; the next one starts with an empty local directory."""

    executor: int


class CompareVersion(StoreStep, frozen=True, tag="check"):
    """Compare everything in a version, ``back`` before the newest, on an executor or on a fresh one."""

    executor: int
    back: int = 0

    def description(self) -> str:
        return f"{_name_of(self.executor)}: compare {_version(self.back)}"


class KillJvm(StoreStep, frozen=True, tag="kill"):
    """Kill the JVM of all executors with SIGKILL: now, or while one executor commits or does maintenance."""

    executor: int
    moment: str
    """``now``, ``commit`` or ``maintenance``."""
    permille: int = 0
    """When the signal is sent after the call's begin, as a share of the time that the last such call took."""
    files: int = 0
    """Unless 0, the signal is sent as soon as the call has made so many files in storage, however long that takes."""

    def description(self) -> str:
        if self.moment == "now":
            return "kill the JVM"
        when = (
            f"when file {self.files} of it appears" if self.files else f"after {self.permille / 10:g} % of it"
        )
        return f"{_name_of(self.executor)}: {self.moment}, and kill the JVM {when}"


class DamageFile(StoreStep, frozen=True, tag="damage"):
    """Damage one file in storage, load every retained version on fresh executors, and undo the damage."""

    how: str
    """``remove``, ``empty``, ``cut``, or ``unreadable``."""
    file: int
    """Its number among the files that are there, in the order of their names."""
    permille: int = 500
    """How much of a file is left if it is cut."""

    def description(self) -> str:
        cut = f" to {self.permille / 10:g} %" if self.how == "cut" else ""
        return f"storage: {self.how} file {self.file}{cut}, load every retained version, undo"


class FailWrites(StoreStep, frozen=True, tag="trouble"):
    """Let an executor commit or do maintenance while its next writes to storage go wrong; then try again."""

    executor: int
    moment: str
    """``commit`` or ``maintenance``."""
    fault: WriteFault = msgspec.field(name="trouble")
    times: int = 1
    """How many files are hit."""

    def description(self) -> str:
        fault = f"{self.times} of its files: {self.fault.phrase}"
        return f"{_name_of(self.executor)}: {self.moment}, and {fault}; try again"


AnyStep = (
    StartQuery
    | OpenVersion
    | PutRow
    | MergeRow
    | RemoveRow
    | RemoveSome
    | DropFamily
    | ReadRow
    | ScanFamily
    | FillRows
    | EvictRows
    | CommitBatch
    | CommitLate
    | AbortBatch
    | RerunBatch
    | MaintainStore
    | WriteOnAndOn
    | ReloadProvider
    | CompareVersion
    | KillJvm
    | DamageFile
    | FailWrites
)
Steps = tuple[AnyStep, ...]


def brief(value: object) -> str:
    """Return a value as Python writes it, with long texts cut."""
    if isinstance(value, tuple):
        return f"({', '.join(map(brief, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        return f"{value[:3]!r}... ({len(value)} characters)"
    return repr(value)


def _name_of(executor: int) -> str:
    return "a fresh executor" if executor == FRESH else f"executor {executor}"


def _version(back: int) -> str:
    return f"the version {back} before the newest" if back else "the newest version"
