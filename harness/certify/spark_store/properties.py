"""The properties that a Spark state store must have: each with its clauses, and how its steps are drawn."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from barrier_tck.faults.targets import WriteFault
from barrier_tck.harness.certify.engine.drawing import play_sequences
from barrier_tck.harness.certify.engine.hunt import Hunt
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.spark_store import clauses, steps
from barrier_tck.harness.certify.spark_store.layouts import (
    CHECKPOINT_IDS,
    COLUMN_FAMILIES,
    MANY,
    MULTIPLE_VALUES,
    PLAIN,
    PREFIX_SCAN,
    PREFIXED,
    RANGE_SCAN,
    RANGED,
)
from barrier_tck.harness.certify.spark_store.session_settings import DRAWN, FORMAT_VERSION
from barrier_tck.harness.certify.spark_store.stage import StoreProperty
from barrier_tck.harness.certify.spark_store.storage_files import HOW

_NUMBERS = st.sampled_from([0, 1, -1, 256, -(2**40), 2**62])
_COMMON = st.sampled_from([(0, "a"), (0, "b"), (-1, "a")])
"""Keys that come again and again: to be removed, merged, and written in several families."""
_KEYS = st.one_of(
    _COMMON,
    st.tuples(_NUMBERS, st.sampled_from(["", "a", "b", "a\x00", "ä", "k" * 300, "k" * 299 + "l"])),
)
_VALUES = st.sampled_from(["", "x", "y", "z\x00", "größe", "v" * 5_000, "w" * 100])
_EXECUTORS = st.sampled_from([0, 0, 0, 1])
_EITHER = st.sampled_from([0, 1])
_ANYWHERE = st.sampled_from([0, 1, steps.FRESH])
_FAMILIES = st.integers(0, 2)
_BACK = st.integers(0, 1)

_DRAWN_SETTINGS = st.tuples(*(st.sampled_from(one.values) for one in DRAWN)).map(
    lambda values: steps.StartQuery(
        # What is as Spark has it is not said.
        tuple((one.name, value) for one, value in zip(DRAWN, values, strict=True) if value != one.values[0])
    )
)
_SETTINGS = st.one_of(st.just(steps.StartQuery(())), _DRAWN_SETTINGS)
"""Half of the queries are as the target has them."""

_MOVES: dict[str, st.SearchStrategy[steps.AnyStep]] = {
    "put": st.builds(steps.PutRow, _EXECUTORS, _FAMILIES, _KEYS, _VALUES),
    "merge": st.builds(steps.MergeRow, _EXECUTORS, _FAMILIES, st.one_of(_COMMON, _COMMON, _KEYS), _VALUES),
    "remove": st.one_of(
        st.builds(steps.RemoveRow, _EXECUTORS, _FAMILIES, _KEYS),
        st.builds(steps.RemoveSome, _EXECUTORS, _FAMILIES, st.integers(0, 5)),
    ),
    "drop": st.builds(steps.DropFamily, _EXECUTORS, _FAMILIES),
    "read": st.builds(steps.ReadRow, _EXECUTORS, _FAMILIES, _KEYS),
    "scan": st.builds(steps.ScanFamily, _EXECUTORS, _FAMILIES, _NUMBERS, _NUMBERS),
    "evict": st.builds(steps.EvictRows, _EXECUTORS, _FAMILIES, st.integers(1, 3)),
    "settings": _SETTINGS,
    "begin": st.builds(steps.OpenVersion, _EXECUTORS, st.integers(0, 3)),
    "commit": st.builds(steps.CommitBatch, _EXECUTORS),
    "abort": st.builds(steps.AbortBatch, _EXECUTORS),
    "rerun": st.builds(steps.RerunBatch, _EXECUTORS),
    "maintain": st.builds(steps.MaintainStore, _EXECUTORS),
    "reopen": st.builds(steps.ReloadProvider, _EXECUTORS),
    "check": st.builds(steps.CompareVersion, _ANYWHERE, _BACK),
    # How far a commit is after a time depends on how busy the machine is; the files that it has made do not.
    "kill-at-a-file": st.builds(
        steps.KillJvm, _EXECUTORS, st.just("commit"), files=st.sampled_from([1, 1, 2])
    ),
    "kill": st.builds(
        lambda executor, aim, permille: steps.KillJvm(executor, aim[0], permille, aim[1]),
        _EXECUTORS,
        st.sampled_from(
            [*[("commit", 0)] * 2, *[("maintenance", 0)] * 2, ("maintenance", 1), ("now", 0)],
        ),
        st.integers(0, 1_100),
    ),
    "damage": st.builds(
        steps.DamageFile, st.sampled_from(HOW), st.integers(0, 11), st.sampled_from([0, 300, 700, 990])
    ),
    "trouble": st.builds(
        steps.FailWrites,
        _EXECUTORS,
        st.sampled_from(["commit", "commit", "maintenance"]),
        st.sampled_from([WriteFault.FAILS, WriteFault.FULL, WriteFault.UNSURE]),
        st.integers(1, 2),
    ),
}
"""Name of a move -> its steps."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Draws sequences of some moves, and the settings of the query; a move named twice is drawn twice as often."""

    moves: str
    steps_max: int = 24
    faults: tuple[str, ...] = ()
    """The sequence has as many parts; one step of each of these moves follows a part."""

    def run(self, one: StoreProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
        play_sequences(self.sequences(), hunt, seed, examples)

    def sequences(self) -> st.SearchStrategy[list[steps.AnyStep]]:
        """Return the strategy that draws sequences."""
        size = self.steps_max // max(1, len(self.faults))
        part = st.lists(
            st.sampled_from(self.moves.split()).flatmap(_MOVES.__getitem__), min_size=size // 3, max_size=size
        )
        if self.faults:
            parts = st.tuples(*(st.tuples(part, _MOVES[fault]) for fault in self.faults))
            part = parts.map(lambda some: [step for before, fault in some for step in (*before, fault)])
        return st.tuples(_SETTINGS, part).map(lambda drawn: [drawn[0], *drawn[1]])


@dataclass(frozen=True, slots=True)
class Contended:
    """Draws sequences in which two tasks run each batch, with other writes, and commit one after the other."""

    def run(self, one: StoreProperty, hunt: Hunt[steps.AnyStep], seed: int, examples: int) -> None:
        play_sequences(self.sequences(), hunt, seed, examples)

    def sequences(self) -> st.SearchStrategy[list[steps.AnyStep]]:
        """Return the strategy that draws sequences."""
        between = st.lists(
            st.sampled_from(["maintain", "check", "rerun", "rerun", "reopen", "settings"]).flatmap(
                _MOVES.__getitem__
            ),
            max_size=3,
        )
        part = st.tuples(_EITHER, *(st.tuples(_COMMON, _VALUES) for _ in range(4)), between, between).map(
            _contended
        )
        start = _SETTINGS.map(
            lambda step: steps.StartQuery(tuple((dict(step.settings) | {FORMAT_VERSION: "2"}).items()))
        )
        rounds = st.lists(part, min_size=2, max_size=5).map(
            lambda some: [step for steps_ in some for step in steps_]
        )
        return st.tuples(start, rounds).map(lambda drawn: [drawn[0], *drawn[1]])


def _contended(drawn: Any) -> list[steps.AnyStep]:
    """Let two executors open the newest version and write; the first commits, the other one is late."""
    first, *rows, between, after = drawn
    second = 1 - first
    writes = [
        steps.PutRow(executor, 0, key, value)
        for executor, (key, value) in zip((first, second, first, second), rows, strict=True)
    ]
    # Each opens the newest version with its first write.
    return [*writes, steps.CommitBatch(first), *between, steps.CommitLate(second), *after]


def disturbs_writes(one: StoreProperty) -> bool:
    """Return whether a property needs a class of ours that disturbs writes."""
    return "trouble" in one.needs


def _late_snapshot() -> steps.Steps:
    """Executor 0 is slow to upload a snapshot; meanwhile executor 1 goes on, uploads its own, and deletes.

    The files of the slow snapshot were uploaded long before, for an older one that is no longer retained.
    """
    played: list[steps.AnyStep] = []
    for number in range(6):
        played += [steps.PutRow(0, 0, (number, "a"), "x"), steps.CommitBatch(0), steps.MaintainStore(0)]
    for number in range(3):
        played += [steps.PutRow(0, 0, (number, "b"), "y"), steps.CommitBatch(0)]
    for number in range(3):
        # Executor 1 takes over, with maintenance after each version; executor 0 still has its snapshot.
        played += [steps.PutRow(1, 0, (number, "c"), "z"), steps.CommitBatch(1), steps.MaintainStore(1)]
        if number == 0:
            played += [
                steps.MaintainStore(0),
                steps.CompareVersion(steps.FRESH, 0),
                steps.CompareVersion(steps.FRESH, 1),
            ]
    return (
        *played,
        steps.MaintainStore(0),
        steps.MaintainStore(1),
        steps.CompareVersion(steps.FRESH, 0),
        steps.CompareVersion(steps.FRESH, 1),
    )


def _after_aborts() -> steps.Steps:
    """Batches that come after aborted ones are aborted, too, or committed; what they are based on stays as it was."""
    return (
        steps.PutRow(0, 0, (0, "a"), "x"),
        steps.CommitBatch(0),
        steps.PutRow(0, 0, (1, "a"), "never"),
        steps.AbortBatch(0),
        steps.PutRow(0, 0, (2, "a"), "never"),
        steps.RemoveRow(0, 0, (0, "a")),
        steps.AbortBatch(0),
        steps.CompareVersion(0, 0),
        steps.PutRow(0, 0, (3, "a"), "y"),
        steps.RemoveRow(0, 0, (0, "a")),
        steps.CommitBatch(0),
        *(steps.CompareVersion(executor, back) for back in (1, 0) for executor in (0, 1, steps.FRESH)),
    )


def _many_rows() -> steps.Steps:
    """Many rows in one batch, maintenance that uploads them, another executor, and the eviction of every second one."""
    return (
        steps.FillRows(0, 0, 150, "x"),
        *(steps.PutRow(0, 0, (0, "k" * 299 + last), last) for last in "kl"),
        steps.PutRow(0, 0, (1, "large"), "w" * 70_000),
        steps.CommitBatch(0),
        steps.PutRow(0, 0, (0, "a"), "y"),
        steps.CommitBatch(0),
        steps.MaintainStore(0),
        steps.PutRow(0, 0, (0, "a"), "z"),
        steps.CommitBatch(0),
        steps.CompareVersion(steps.FRESH, 0),
        steps.EvictRows(1, 0, 2),
        steps.CommitBatch(1),
        steps.CompareVersion(steps.FRESH, 0),
    )


def _everywhere(*back: int) -> steps.Steps:
    """Compare versions, each so many before the newest, on both executors and on a fresh one."""
    return tuple(steps.CompareVersion(executor, one) for one in back for executor in (0, 1, steps.FRESH))


def _ranges() -> steps.Steps:
    """Many keys on both sides of zero, scanned between each two of them, before and after a commit."""
    numbers = (5, -(2**40), 0, 256, -1, 1)
    scans = tuple(
        steps.ScanFamily(0, 0, first, last) for first, last in itertools.combinations(sorted(numbers), 2)
    )
    return (
        *(steps.PutRow(0, 0, (number, text), "x") for number in numbers for text in ("", "a")),
        *scans,
        steps.CommitBatch(0),
        steps.RemoveRow(0, 0, (0, "")),
        *scans,
        steps.CommitBatch(0),
        *_everywhere(0, 1),
    )


def _dropped_families() -> steps.Steps:
    """Families with the same keys are removed, by a batch that is aborted and by one that is not, and come back."""
    fill = tuple(steps.PutRow(0, family, (number, "a"), "x") for number in range(3) for family in range(3))
    played: list[steps.AnyStep] = []
    for dropped in (1, 2):
        played += [
            *fill,
            steps.CommitBatch(0),
            steps.DropFamily(0, dropped),
            steps.AbortBatch(0),
            *_everywhere(0),
            steps.RemoveRow(0, dropped, (2, "a")),
            steps.DropFamily(0, dropped),
            steps.CommitBatch(0),
            *_everywhere(0, 1),
            steps.MaintainStore(0),
            steps.PutRow(1, dropped, (1, "b"), "y"),
            steps.CommitBatch(1),
            *_everywhere(0, 1),
        ]
    return tuple(played)


def _merges() -> steps.Steps:
    """Values are merged, equal ones too, in one batch and in later ones, on other executors, and after a removal."""
    played: list[steps.AnyStep] = []
    for executor, values in ((0, "xyzx"), (1, "xx"), (0, "yx")):
        played += [
            *(steps.MergeRow(executor, 1, (0, "a"), value) for value in values),
            *(steps.MergeRow(executor, 1, (0, "b"), value) for value in reversed(values)),
            steps.ReadRow(executor, 1, (0, "a")),
            steps.CommitBatch(executor),
            steps.MaintainStore(executor),
            *_everywhere(0),
        ]
    return (
        *played,
        steps.PutRow(0, 1, (0, "a"), "y"),
        steps.RemoveRow(0, 1, (0, "b")),
        *(steps.MergeRow(0, 1, (0, text), "x") for text in "abab"),
        steps.ReadRow(0, 1, (0, "a")),
        steps.ReadRow(0, 1, (0, "b")),
        steps.CommitBatch(0),
        *_everywhere(0, 1),
    )


PROPERTIES: tuple[StoreProperty, ...] = (
    Property(
        "batches-read-their-writes",
        "contract",
        (clauses.READS,),
        "Reads in a batch see its own writes and removals, on top of the version that it was opened at.",
        Moves("put put put remove evict read scan commit begin"),
        examples=24,
        needs=("put", "remove-one", "evict", "read", "scan", "commit"),
        layout=PLAIN,
    ),
    Property(
        "versions-are-exact",
        "contract",
        (clauses.VERSIONS,),
        "Every retained version holds what was committed, on the executor that committed it and on others.",
        Moves("put put put remove remove commit commit check begin reopen"),
        examples=40,
        needs=("put", "remove-one", "commit", "check"),
        layout=PLAIN,
    ),
    Property(
        "aborted-writes-vanish",
        "contract",
        (clauses.ABORTS,),
        "What an aborted batch wrote or removed never shows, neither here nor there, before maintenance or after.",
        Moves("put put remove abort abort commit check scan maintain reopen"),
        examples=16,
        needs=("put", "abort", "commit"),
        layout=PLAIN,
    ),
    Property(
        "aborts-leave-nothing-behind",
        "contract",
        (clauses.ABORTS,),
        "A batch that comes after an aborted one changes no version before it commits, and then only its own.",
        listed=lambda _scale: _after_aborts(),
        layout=PLAIN,
    ),
    Property(
        "any-executor-goes-on",
        "contract",
        (clauses.VERSIONS,),
        "Batches move between executors, and the newest one is run again on another, as after a lost executor.",
        Moves("put put remove commit commit rerun check reopen"),
        examples=16,
        needs=("commit", "rerun"),
        layout=PLAIN,
    ),
    Property(
        "settings-may-change",
        "contract",
        (clauses.VERSIONS,),
        "A query that starts again with other settings, on any executor, finds every retained version as it was.",
        Moves("put put put remove commit commit commit settings check maintain rerun", steps_max=40),
        examples=32,
        needs=("commit", "settings", "check"),
        layout=PLAIN,
    ),
    Property(
        "commits-have-ids",
        "contract",
        (clauses.IDS,),
        "Of a version that several tasks have committed, with other writes too, that of the id that counts is given.",
        Contended(),
        examples=36,
        capability=CHECKPOINT_IDS,
        needs=("commit", "commit-late", "check"),
        layout=PLAIN,
    ),
    Property(
        "maintenance-keeps-what-is-retained",
        "contract",
        (clauses.MAINTENANCE,),
        "Snapshots are uploaded and files deleted, by either executor, early or late; retained versions stay loadable.",
        Moves("put put remove commit commit commit maintain maintain check rerun", steps_max=50),
        examples=20,
        needs=("commit", "maintain"),
        layout=PLAIN,
    ),
    Property(
        "a-late-snapshot-is-whole",
        "contract",
        (clauses.MAINTENANCE,),
        "A snapshot that is uploaded late, after another executor's maintenance, refers to no missing file.",
        listed=lambda _scale: _late_snapshot(),
        needs=("maintain", "check"),
        layout=PLAIN,
    ),
    Property(
        "many-rows-are-kept",
        "contract",
        (clauses.VERSIONS,),
        "A batch with many rows, a large one, and long keys that begin alike is whole, from a snapshot too.",
        listed=lambda _scale: _many_rows(),
        needs=("fill", "evict", "check"),
        layout=PLAIN,
    ),
    Property(
        "storage-does-not-grow",
        "contract",
        (clauses.CLEANUP,),
        "Batch after batch writes the same key, after an abort, with maintenance; files in storage do not become more.",
        listed=lambda _scale: (steps.WriteOnAndOn(0, 36),),
        needs=("on-and-on",),
        layout=PLAIN,
    ),
    Property(
        "prefix-scans-are-complete",
        "contract",
        (clauses.SCANS,),
        "A prefix scan gives the keys with the prefix and no others, in a new version and in a restored one.",
        Moves("put put put remove scan scan commit check reopen"),
        examples=12,
        capability=PREFIX_SCAN,
        needs=("put", "scan", "commit"),
        layout=PREFIXED,
    ),
    Property(
        "range-scans-are-ordered",
        "contract",
        (clauses.SCANS,),
        "Keys come in the order of their first column, negative numbers first; a range has its start and not its end.",
        Moves("put put put remove scan scan commit check reopen"),
        examples=12,
        capability=RANGE_SCAN,
        needs=("put", "scan", "commit"),
        layout=RANGED,
    ),
    Property(
        "ranges-of-many-keys-are-ordered",
        "contract",
        (clauses.SCANS,),
        "Keys on both sides of zero come in their order from a scan of each range, before a commit and after it.",
        listed=lambda _scale: _ranges(),
        capability=RANGE_SCAN,
        needs=("scan", "commit"),
        layout=RANGED,
    ),
    Property(
        "families-stay-apart",
        "contract",
        (clauses.FAMILIES,),
        "The same key in several column families is several entries; a removed family is empty when it comes back.",
        Moves("put put put remove drop read scan commit commit check maintain reopen"),
        examples=16,
        capability=COLUMN_FAMILIES,
        needs=("put", "drop", "commit"),
        layout="families",
    ),
    Property(
        "removed-families-are-empty",
        "contract",
        (clauses.FAMILIES,),
        "A family that a batch removed is empty, and those beside it are not; older versions still have it.",
        listed=lambda _scale: _dropped_families(),
        capability=COLUMN_FAMILIES,
        needs=("drop", "abort", "commit"),
        layout="families",
    ),
    Property(
        "merged-values-are-kept",
        "contract",
        (clauses.VALUES,),
        "All merged values of a key are given in their order, in this version and later ones.",
        Moves("merge merge merge put remove read commit commit check maintain reopen"),
        examples=20,
        capability=MULTIPLE_VALUES,
        needs=("merge", "read", "commit"),
        layout=MANY,
    ),
    Property(
        "equal-values-are-merged",
        "contract",
        (clauses.VALUES,),
        "Values that are equal are all kept, in their order, whichever batches and executors merged them.",
        listed=lambda _scale: _merges(),
        capability=MULTIPLE_VALUES,
        needs=("merge", "read", "commit"),
        layout=MANY,
    ),
    Property(
        "killed-anywhere",
        "crash",
        (clauses.KILLS,),
        "After SIGKILL between calls, inside commit or inside maintenance, committed versions are intact and the batch "
        "can be run again.",
        Moves("put put put remove commit commit maintain", faults=("kill-at-a-file", "kill")),
        examples=10,
        needs=("kill", "commit"),
        layout=PLAIN,
    ),
    Property(
        "damaged-files-are-refused",
        "crash",
        (clauses.DAMAGE,),
        "With a file missing, empty, cut off or unreadable, a version is refused or right; never a third thing.",
        Moves("put put put remove commit commit commit maintain", faults=("damage", "damage")),
        examples=16,
        needs=("damage", "commit"),
        layout=PLAIN,
    ),
    Property(
        "failed-writes-are-survived",
        "crash",
        (clauses.WRITES,),
        "When files of a commit or of maintenance cannot be written, nothing that was committed is harmed, and the "
        "batch can be run again.",
        Moves("put put put remove commit commit maintain", faults=("trouble", "trouble")),
        examples=12,
        needs=("trouble", "commit"),
        layout=PLAIN,
    ),
)
"""The properties of the levels contract and crash."""
