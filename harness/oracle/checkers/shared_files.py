"""Shared files: increments refer to files of earlier checkpoints, which stay until no checkpoint needs them (SNP-5).

Every completed checkpoint was opened when it completed, with the files that it names. A file that several of them name
is shared. It must be one and the same file for all of them. At the end storage shows which shared files are there:
those that a retained checkpoint names must be, and those that only checkpoints named that are gone must not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.storage_damage import damaged_files
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.sometimes import Sometimes, counted
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, NamedFile, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

REUSED = "reused"
"""Count of a finding: how often a checkpoint named a file that an older checkpoint had named."""

_OF_SAVEPOINT = Sign("a checkpoint shares a file with a savepoint", "SNP-5")
_REPLACED = Sign("two checkpoints name one file, with different contents", "SNP-5")
_GONE = Sign("a file is gone that a retained incremental checkpoint needs", "SNP-5")
_LEFT_OVER = Sign("a shared file is left that no retained checkpoint needs", "SNP-5")


class SharedFilesKept(StandardChecker):
    """No file that a checkpoint shares is deleted too early, replaced, or left over."""

    name = "shared-files"
    requires = (
        "A file that several checkpoints name is the same for all; it is there as long as a retained one "
        "names it, and no longer."
    )
    judges = "systems whose checkpoints can be opened, if the plan asks for incremental checkpoints"
    covers = {"SNP-5": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    sometimes = (
        Sometimes(
            name="sometimes-reused",
            clauses=("SNP-5",),
            seen=counted(REUSED),
            things={REUSED: "with_reuse"},
            shown=(
                "in {with_reuse} of {trials} trials with incremental checkpoints, they named files of older ones, "
                "{reused} times in all"
            ),
            not_shown=(
                "no checkpoint named a file of an older one in any of the {trials} trials with incremental "
                "checkpoints; run more trials, with more keys and shorter checkpoint intervals"
            ),
            # A job that is over after two checkpoints has nothing to name again.
            trials_min=5,
        ),
    )
    signs = (_OF_SAVEPOINT, _REPLACED, _GONE, _LEFT_OVER)
    rank = 208  # before no-garbage, which finds every file that is left

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.checkpoints.incremental

    def check(self, context: TrialContext) -> Finding:
        """Judge the files of one trial's checkpoints."""
        views = sorted(context.history.checkpoints, key=lambda view: view.checkpoint)
        named: dict[str, _Naming] = {}
        reused = 0
        named_again: dict[str, list[int]] = {}
        problems: list[Breach] = []
        for naming in (one for view in views for one in _namings(view)):
            view, file = naming.view, naming.file
            first = named.setdefault(file.path, naming)
            if first.view.checkpoint == view.checkpoint:
                continue
            reused += 1
            named_again.setdefault(file.path, [first.view.checkpoint]).append(view.checkpoint)
            if view.savepoint is not None or first.view.savepoint is not None:
                shares = f"{file.path} belongs to a savepoint, and {view.checkpoint} shares it"
                problems.append(_breach(_OF_SAVEPOINT, shares, naming, context))
            if (first.file.size, first.file.checksum) != (file.size, file.checksum):
                differ = (
                    f"checkpoints {first.view.checkpoint} and {view.checkpoint} name {file.path}, with the "
                    f"checksums {first.file.checksum} and {file.checksum}"
                )
                problems.append(_breach(_REPLACED, differ, naming, context))
        problems += _at_the_end(context, named)
        counts = {"checkpoints": len(views), "files": len(named), REUSED: reused, "wrong": len(problems)}
        if problems:
            summary = f"{len(problems)} problems with shared files; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        covered = self.clauses if _released(context, named_again) else ()
        summary = f"{len(views)} checkpoints named {len(named)} files, and {reused} times one of an older one"
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


@dataclass(frozen=True, slots=True)
class _Naming:
    """A checkpoint names a file in the part of a subtask."""

    view: SnapshotView
    subtask: str
    file: NamedFile


def _namings(view: SnapshotView) -> Iterator[_Naming]:
    return (_Naming(view, subtask, file) for subtask, files in view.files.items() for file in files)


def _breach(sign: Sign, sentence: str, naming: _Naming, context: TrialContext) -> Breach:
    """Return what is wrong with a file as soon as a checkpoint that names it is complete."""
    view = naming.view
    at = completed_at(context, view.checkpoint)
    return Breach(sign, sentence, at, naming.subtask, view.checkpoint, view.attempt)


def _released(context: TrialContext, named_again: Mapping[str, Sequence[int]]) -> bool:
    """Return whether some file lost a checkpoint of several that named it: it could have gone with that one, or, if it
    was the last, have been left over."""
    storage = context.history.storage
    if storage is None:
        return False
    return any(
        checkpoint not in storage.retained for named_by in named_again.values() for checkpoint in named_by
    )


def _at_the_end(context: TrialContext, named: Mapping[str, _Naming]) -> Iterator[Breach]:
    """Yield the files that retained checkpoints lack, and those that outlived all checkpoints that named them."""
    storage = context.history.storage
    if storage is None:
        return
    damaged = damaged_files(context)
    for stored in storage.stored or ():
        for subtask, file in ((part.subtask, file) for part in stored.parts for file in part.files):
            if file.found_size is None and file.path in named and file.path not in damaged:
                gone = f"checkpoint {stored.checkpoint} is retained and needs {file.path}, which is gone"
                yield Breach(_GONE, gone, place=subtask, checkpoint=stored.checkpoint)
    if context.history.end is End.FINISHED:
        for orphan in storage.orphans:
            path = next((path for path in named if orphan.endswith(f"/{path}")), None)
            if path is not None and named[path].file.shared:
                left = f"{path} is still there, but no retained checkpoint names it"
                first = named[path]
                yield Breach(
                    _LEFT_OVER,
                    left,
                    place=first.subtask,
                    checkpoint=first.view.checkpoint,
                    attempt=first.view.attempt,
                )
