"""Shared files: increments refer to files of earlier checkpoints, which stay until no checkpoint needs them (SNP-5).

Every completed checkpoint was opened when it completed, with the files that it names. A file that several of them name
is shared. It must be one and the same file for all of them. At the end storage shows which shared files are there:
those that a retained checkpoint names must be, and those that only checkpoints named that are gone must not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.storage_damage import damaged_files
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sometimes import Sometimes, counted
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, NamedFile, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

REUSED = "reused"
"""Count of a finding: how often a checkpoint named a file that an older checkpoint had named."""


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
    rank = 270

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and trial.plan.checkpoints.incremental

    def check(self, context: TrialContext) -> Finding:
        """Judge the files of one trial's checkpoints."""
        views = sorted(context.history.checkpoints, key=lambda view: view.checkpoint)
        named: dict[str, tuple[SnapshotView, NamedFile]] = {}
        reused = 0
        named_again: dict[str, list[int]] = {}
        problems: list[str] = []
        for view in views:
            for file in (entry for files in view.files.values() for entry in files):
                earlier, first = named.setdefault(file.path, (view, file))
                if earlier.checkpoint == view.checkpoint:
                    continue
                reused += 1
                named_again.setdefault(file.path, [earlier.checkpoint]).append(view.checkpoint)
                if view.savepoint is not None or earlier.savepoint is not None:
                    problems.append(f"{file.path} belongs to a savepoint, and {view.checkpoint} shares it")
                if (first.size, first.checksum) != (file.size, file.checksum):
                    problems.append(
                        f"checkpoints {earlier.checkpoint} and {view.checkpoint} name {file.path}, with the "
                        f"checksums {first.checksum} and {file.checksum}"
                    )
        problems += _at_the_end(context, named)
        counts = {"checkpoints": len(views), "files": len(named), REUSED: reused, "wrong": len(problems)}
        if problems:
            summary = f"{len(problems)} problems with shared files; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        covered = self.clauses if _released(context, named_again) else ()
        summary = f"{len(views)} checkpoints named {len(named)} files, and {reused} times one of an older one"
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _released(context: TrialContext, named_again: Mapping[str, Sequence[int]]) -> bool:
    """Return whether some file lost a checkpoint of several that named it: it could have gone with that one, or, if it
    was the last, have been left over."""
    storage = context.history.storage
    if storage is None:
        return False
    return any(
        checkpoint not in storage.retained for named_by in named_again.values() for checkpoint in named_by
    )


def _at_the_end(context: TrialContext, named: dict[str, tuple[SnapshotView, NamedFile]]) -> Iterator[str]:
    """Yield the files that retained checkpoints lack, and those that outlived all checkpoints that named them."""
    storage = context.history.storage
    if storage is None:
        return
    damaged = damaged_files(context)
    for stored in storage.stored or ():
        for file in (entry for part in stored.parts for entry in part.files):
            if file.found_size is None and file.path in named and file.path not in damaged:
                yield f"checkpoint {stored.checkpoint} is retained and needs {file.path}, which is gone"
    if context.history.end is End.FINISHED:
        for orphan in storage.orphans:
            path = next((path for path in named if orphan.endswith(f"/{path}")), None)
            if path is not None:
                yield f"{path} is still there, but no retained checkpoint names it"
