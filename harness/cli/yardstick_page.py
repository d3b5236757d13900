"""``docs/yardstick.md``: what became of the bugs of the yardstick, misses included, made of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from barrier_tck.harness.yardstick.bugs import CertificateLook, KnownBug
from barrier_tck.harness.yardstick.results import Finding, Played, Result, Status
from barrier_tck.harness.yardstick.running import address_of

_HEAD = """\
# The yardstick: real bugs in real releases

How many bugs that were in released versions of Spark are found by drawn campaigns and certificates that are told
nothing of them? As BugsInPy and Defects4J do for unit tests, each bug has its report, its releases and an environment,
and is looked for in a release that has it. The job or the state store is named as a user would name it. Seeds are
fresh, and nothing says what is to happen when. What is found is played again with that release, and with one without
the bug; it counts only if it shows again in the first and is gone in the other. A bug is listed before it is known
whether it is found.

<!-- Generated: barrier-tck yardstick --out docs/yardstick --page docs/yardstick.md -->
"""
_COLUMNS = (
    *("bug", "what it is", "releases with it", "looked for in", "with"),
    *("became", "rounds", "trials or examples", "minutes"),
)
_SHOWN_AGAIN = {
    Played.THERE: "it showed again there",
    Played.GONE: "it did not show again there in three runs",
    Played.UNKNOWN: "it could not be judged again there",
}
_SHOWN_COMPARED = {
    Played.THERE: "is there, too",
    Played.GONE: "is gone",
    Played.UNKNOWN: "could not be judged",
}


def rendered(bugs: Sequence[KnownBug], results: Mapping[str, Result], seconds: float) -> str:
    """Return the page: the table, a section for each bug, and what the generators lack for those that were missed."""
    return "\n".join([_HEAD, *_counts(bugs, results), *_table(bugs, results, seconds), *_bugs(bugs, results)])


def _counts(bugs: Sequence[KnownBug], results: Mapping[str, Result]) -> Iterator[str]:
    counts = Counter(results[bug.id].status for bug in bugs if bug.id in results)
    untried = len(bugs) - sum(counts.values())
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    parts += [f"{untried} not tried yet"] if untried else []
    yield f"Of {len(bugs)} bugs: {'; '.join(parts)}."
    yield ""


def _table(bugs: Sequence[KnownBug], results: Mapping[str, Result], seconds: float) -> Iterator[str]:
    yield f"The time is processor time of one core, at most {seconds / 60:g} minutes for each bug."
    yield ""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"{'|---' * len(_COLUMNS)}|"
    for bug in bugs:
        result = results.get(bug.id)
        door = "certificate" if isinstance(bug.look, CertificateLook) else "campaign"
        if result is None:
            became, numbers = "not tried yet", ("", "", "")
        else:
            became = result.status.value
            numbers = (
                str(len(result.rounds)),
                f"{result.tried:,}",
                f"{result.processor_seconds / 60:.1f}",
            )
        cells = (
            f"[{bug.id}]({bug.report})",
            _escaped(bug.title),
            _affected(bug),
            bug.pyspark or "none",
            door,
            became,
            *numbers,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _affected(bug: KnownBug) -> str:
    if not bug.first_affected:
        return "none that can be installed"
    fixed = f"; mended in {', '.join(bug.fixed_in)}" if bug.fixed_in else "; nobody has mended it"
    first, last = bug.first_affected, bug.last_affected
    return (first if first == last else f"{first} to {last}") + fixed


def _bugs(bugs: Sequence[KnownBug], results: Mapping[str, Result]) -> Iterator[str]:
    yield "## Bug by bug"
    yield ""
    for bug in bugs:
        yield f"### {bug.id}"
        yield ""
        yield f"{bug.title}. A user sees: {bug.seen}"
        yield ""
        yield f"- chosen by {bug.chosen_by}; [report]({bug.report}){f', [fix]({bug.fix})' if bug.fix else ''}"
        yield f"- releases: {bug.versions_from}"
        yield f"- looked for with {_with(bug)}"
        yield from _became(bug, results.get(bug.id))
        yield ""


def _with(bug: KnownBug) -> str:
    if isinstance(bug.look, CertificateLook):
        named = f"`barrier-tck certify {bug.look.target}`"
    elif bug.look.job:
        named = f"`barrier-tck campaign --query {address_of(bug.look)}`"
    else:
        return "nothing"
    settings = ", ".join(f"`{key}={value}`" for key, value in bug.settings.items())
    release = f" on PySpark {bug.pyspark} (`environments/{bug.pyspark}.txt` is what pip must install)"
    return f"{named}{f', with {settings}' if settings else ''}{release if bug.pyspark else ''}"


def _became(bug: KnownBug, result: Result | None) -> Iterator[str]:
    if result is None:
        yield "- not tried yet"
        return
    yield f"- {result.status.value}{f': {result.reason}' if result.reason else ''}"
    for finding in result.findings:
        yield f"- finding: {_escaped(finding.what)}: {_escaped(finding.summary)}. {_played(bug, finding)}"
        if finding.dismissed or finding.confirmed:
            isnt = (
                f"not the bug: {finding.dismissed}" if finding.dismissed else f"the bug: {finding.confirmed}"
            )
            yield f"  It is {isnt}"
        yield f"  To repeat: `{finding.repeat}`"
    if result.status is not Status.FOUND:
        yield f"- what the generators lack: {result.lacks or 'not looked into yet'}"


def _played(bug: KnownBug, finding: Finding) -> str:
    why = f" ({_escaped(finding.why)})" if finding.why else ""
    return (
        f"With {bug.compared} it {_SHOWN_COMPARED[finding.on_compared]}{why}; with {bug.pyspark} "
        f"{_SHOWN_AGAIN[finding.on_affected]}."
    )


def _escaped(text: str) -> str:
    """Return a text that neither ends a cell of a table nor begins an element of the page."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
