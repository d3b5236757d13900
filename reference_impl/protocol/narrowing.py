"""How parallel the vertices of a job are when there are fewer slots than it wants: a pure decision.

The widest vertex gives up subtasks first, so that a vertex loses as small a part of its subtasks as is possible. The
same job and the same slots always give the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def narrowed(
    wanted: Mapping[str, int],
    joined: Sequence[tuple[str, str]],
    fixed: Collection[str],
    slots: int,
) -> dict[str, int] | None:
    """Return vertex -> parallelism for ``slots`` slots, one for each subtask; None if the job does not fit.

    ``wanted`` is what the job has if no slots are missing, and no vertex gets more than that. Two vertices that are
    ``joined``, by a forward edge, stay equally parallel. A ``fixed`` vertex keeps its parallelism, and so do those that
    are joined to it. Every other one keeps at least one subtask. No slot stays empty that a vertex could use.
    """
    groups = _joined(list(wanted), joined)
    widths = [wanted[names[0]] for names in groups]
    free = [number for number, names in enumerate(groups) if not any(name in fixed for name in names)]

    def missing() -> int:
        return sum(len(names) * width for names, width in zip(groups, widths, strict=True)) - slots

    while missing() > 0:
        able = [number for number in free if widths[number] > 1]
        if not able:
            return None
        widest = max(widths[number] for number in able)
        # Of equally wide vertices the last ones give up first: those at the end of the job, which its sources feed.
        widths[max(number for number in able if widths[number] == widest)] -= 1
    for number in free:  # a group of several vertices may have given up more than was missing
        while widths[number] < wanted[groups[number][0]] and len(groups[number]) <= -missing():
            widths[number] += 1
    width_of = {name: widths[number] for number, names in enumerate(groups) for name in names}
    return {name: width_of[name] for name in wanted}


def _joined(names: Sequence[str], joined: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the vertices that must be equally parallel together, in the order of the job."""
    group = {name: [name] for name in names}
    for one, other in joined:
        if group[one] is not group[other]:
            merged = [*group[one], *group[other]]
            for name in merged:
                group[name] = merged
    return list({id(group[name]): group[name] for name in names}.values())
