"""Label propagation at every cut and at the end: nodes and channels agree, and the labels are those of the components.

Which messages are sent depends on the interleaving, so no model says what each checkpoint must hold. But at a
consistent cut three things fit together: what each node keeps, what nodes have sent each other (the sinks get a copy),
and what is under way. A node's label is the least of its name and of all that it received, less what is still under
way; each neighbour got this label; and a node's neighbours are those of the edges before the cut that are not
under way either. A message of the loop that a snapshot loses or holds twice breaks one of these (CHL-5). At the end
every label is the least name of its component, as a union of sets gives it, and no node sent a label twice (SNK-1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_preconditions import (
    IN_A_LOOP,
    OVERTAKEN,
    RECORDED,
    STATE_CHANGED,
    STATE_HELD,
)
from barrier_tck.harness.oracle.evidence.cut_signs import CUT_SIGNS, breach_of, circumstances_of, unreadable
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.in_flight import (
    IN_FLIGHT,
    SOMETIMES_IN_FLIGHT,
    edge_of,
    in_flight_problems,
)
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.opened_checkpoints import (
    going_back,
    misplaced,
    missing_parts,
    opened_checkpoints,
    positions_of,
)
from barrier_tck.harness.oracle.evidence.preconditions import (
    COMPLETED,
    OF_RESTORES,
    RECOVERED,
    SHOWN,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.record_routes import placement_problems
from barrier_tck.harness.oracle.evidence.recoveries import fell_back, restored_checkpoints
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.plan.job_graph import SINK
from barrier_tck.harness.record.history import End, Row, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.connected_components import LABEL, NEIGHBOURS, NODE, least_names

Message = tuple[str, str, str]
"""To whom, from whom, which label."""


@dataclass
class _Cut:
    """What one checkpoint holds."""

    labels: dict[str, str] = field(default_factory=dict)
    neighbours: dict[str, list[str]] = field(default_factory=dict)
    sent: Counter[Message] | None = None
    """Everything that nodes have sent each other; None if the sinks were not read."""
    under_way: Counter[Message] = field(default_factory=Counter)
    """Messages that have not reached their node."""
    edges_under_way: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(node, its neighbour) of the edges that have not reached it."""
    edges: list[tuple[str, str]] = field(default_factory=list)
    """The edges before the cut."""


class Labels(StandardChecker):
    """Labels, messages and edges fit together at every cut, and give the components in the end."""

    name = "labels"
    requires = (
        "At every cut, what nodes keep, what they have sent each other and what is under way fit "
        "together; at the end the labels are those of the components."
    )
    judges = "the workload `components`"
    covers = {
        "CHL-1": RECORDED,
        "CHL-2": RECORDED,
        "CHL-5": IN_A_LOOP,
        "ALN-2": COMPLETED,
        "UNA-1": OVERTAKEN,
        "STA-1": STATE_HELD,
        "STA-3": COMPLETED,
        "SNP-1": STATE_CHANGED,
        "SNK-1": SHOWN,
        "REC-1": RECOVERED,
        "SRC-1": RECOVERED,
        **OF_RESTORES,
    }
    judges_output = True
    sometimes = (SOMETIMES_IN_FLIGHT,)
    signs = CUT_SIGNS
    rank = 10

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.COMPONENTS

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input
        checkpoints = trial_input.plan.checkpoints
        cut = (
            ("CHL-1", "CHL-2")
            if checkpoints.records_all
            else ("UNA-1",)
            if checkpoints.overtakes
            else ("ALN-2",)
        )
        self._of_output = ("SNK-1", "REC-1", "SRC-1", "CHL-5")
        self.clauses: tuple[str, ...] = (
            *cut,
            "STA-1",
            "SNP-1",
            "STA-3",
            *self._of_output,
            *of_restores(trial_input.plan),
        )

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint, and the committed output."""
        opened = opened_checkpoints(context)
        again = fell_back(context) is not None
        problems: list[Breach] = []
        right: list[int | None] = []
        earlier: dict[int | None, SnapshotView] = {}
        compared = under_way = 0
        for view in opened.judged:
            unfit = list(misplaced(view, self._input.extents, self._input.start_offset))
            if view.problem is not None or unfit:
                wrong = unreadable(view, context) if view.problem is not None else unfit[0]
                circumstances = circumstances_of(context, view, view.attempt in right)
                problems.append(breach_of(wrong, circumstances, context, view))
                continue
            cut = self._cut(view, again)
            compared += len(cut.labels)
            under_way += cut.under_way.total()
            found = [
                *missing_parts(view, context),
                *_problems_of(cut),
                *placement_problems(context.job_of(view.attempt), view),
                *in_flight_problems(context.plan_of(view.attempt), view),
                *going_back(earlier.get(view.attempt), view),
            ]
            if found:
                circumstances = circumstances_of(context, view, view.attempt in right)
                problems += [breach_of(entry, circumstances, context, view) for entry in found]
            else:
                right.append(view.attempt)
            earlier[view.attempt] = view
        last = max(restored_checkpoints(context.history), default=None)
        at_end = circumstances_of(context, None, last in right)
        problems += [
            breach_of(Difference(kind, sentence, looped=True, at_sink=True), at_end, context, None)
            for kind, sentence in self._problems_of_output(context, again)
        ]
        counts = {
            "checkpoints": len(opened.judged),
            "labels": compared,
            IN_FLIGHT: under_way,
            "violations": len(problems),
            "not_opened": len(opened.unopened),
            "harmed": len(opened.harmed),
        }
        if problems:
            summary = f"{len(problems)} labels or messages do not fit; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        if opened.unopened or (not opened.judged and context.history.output is None):
            summary = f"completed checkpoints that were not opened: {opened.unopened[:10]}"
            if not opened.unopened:
                summary = "neither a checkpoint nor the output could be read, so nothing can be said"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        covered = self.clauses if opened.judged else self._of_output
        summary = (
            f"{compared} labels of {counts['checkpoints']} checkpoints and those of the output are right"
        )
        return Finding(self.name, covered, Verdict.VALID, summary, counts)

    # --- what a checkpoint holds ----------------------------------------------------------------------------

    def _cut(self, view: SnapshotView, again: bool) -> _Cut:
        """Read a checkpoint. If an older one was restored, sinks show what was undone, so they say nothing."""
        cut = _Cut(edges=list(self._edges(positions_of(view))))
        for part in view.state:
            for text, entry in part.entries.items():
                node = str(key_of_text(text)[0])
                if part.name == LABEL:
                    cut.labels[node] = entry[0]
                elif part.name == NEIGHBOURS:
                    cut.neighbours[node] = entry
        if view.reached_sinks is not None and not again:
            cut.sent = Counter(map(_message, view.reached_sinks))
        job = self._input.plan.job
        for channel in view.in_flight:
            edge = edge_of(job, channel)
            kind = job.vertex(edge.target).kind if edge is not None else SINK
            for row in channel.rows:
                if kind != SINK and not row["label"]:
                    cut.edges_under_way[row["node"], row["other"]] += 1
                elif kind != SINK:
                    cut.under_way[_message(row)] += 1
                if kind != NODE and cut.sent is not None:
                    # Its copy for the sinks was not read by them either.
                    cut.sent[_message(row)] += 1
        return cut

    def _edges(self, positions: dict[str, int]) -> Iterator[tuple[str, str]]:
        for split in self._input.splits:
            for row in split.rows[split.start_offset : positions[split.name]]:
                yield row["node"], row["other"]

    # --- the output -----------------------------------------------------------------------------------------

    def _problems_of_output(self, context: TrialContext, again: bool) -> Iterator[tuple[Kind, str]]:
        history = context.history
        if history.output is None:
            return
        sent = Counter(map(_message, history.output))
        edges = list(self._edges({split.name: len(split.rows) for split in self._input.splits}))
        least = least_names(edges)
        yield from ((Kind.WRONG, sentence) for sentence in _strange(sent, least))
        if not again:
            yield from ((Kind.SURPLUS, sentence) for sentence in _twice(sent, "in the output"))
        if history.end is not End.FINISHED:
            return
        labels = {node: min([node, *found]) for node, found in _labels_sent(sent).items()}
        for node, due in least.items():
            if labels.get(node, node) != due:
                yield (
                    Kind.MISSING,
                    f"by the output, {node} has the label {labels.get(node, node)} instead of {due}",
                )
        for node, other in _both_ways(edges):
            if not sent[other, node, least[node]]:
                yield Kind.MISSING, f"the output lacks that {node} sent {other} its last label, {least[node]}"


def _problems_of(cut: _Cut) -> Iterator[Difference]:
    """Yield what does not fit together in one checkpoint."""
    least = least_names(cut.edges)
    for node, label in cut.labels.items():
        # Whoever takes an edge or a label sends on what it knows: if it sent nothing, the state is newer than the cut.
        unsent = cut.sent is not None and not any(message[1] == node for message in cut.sent)
        if least.get(label) is None or least.get(label) != least.get(node):
            label_is = f"{node} has the label {label}, which no edge before the cut leads to"
            yield Difference(Kind.SURPLUS, label_is, node, behind=True, looped=True, unsent=unsent)
    due = Counter(_both_ways(cut.edges))
    kept = Counter((node, other) for node, others in cut.neighbours.items() for other in others)
    for edge in dict.fromkeys((*due, *kept, *cut.edges_under_way)):
        seen = kept[edge] + cut.edges_under_way[edge]
        if seen != due[edge]:
            yield Difference(
                Kind.SURPLUS if seen > due[edge] else Kind.MISSING,
                f"the edge from {edge[0]} to {edge[1]} is {seen} times in its state or under way, "
                f"instead of {due[edge]}",
                edge[0],
                looped=True,
            )
    if cut.sent is not None:
        for sentence in _problems_of_messages(cut, cut.sent):
            yield Difference(Kind.WRONG, sentence, of_sent=True, looped=True)
    for node, other in kept:
        own = cut.labels.get(node, node)
        if own < cut.labels.get(other, other) and not cut.under_way[other, node, own]:
            greater = f"its neighbour {other} a greater one, and no message is under way"
            sentence = f"{node} has the label {own} and {greater}"
            yield Difference(Kind.MISSING, sentence, node, looped=True)


def _problems_of_messages(cut: _Cut, sent: Counter[Message]) -> Iterator[str]:
    """Yield the labels that are not the least of what was sent, and the messages that were never sent or twice."""
    yield from _twice(sent, "up to the cut")
    for message in cut.under_way - sent:
        yield f"{_described(message)}: this is under way, but was never sent"
    arrived = _labels_sent(sent - cut.under_way)
    for node in dict.fromkeys((*cut.labels, *arrived)):
        due = min([node, *arrived.get(node, ())])
        if cut.labels.get(node) != due:
            yield f"{node} has the label {cut.labels.get(node)} instead of {due}, the least that it received"
    newest = {(node, other): min(labels) for (node, other), labels in _by_pair(sent).items()}
    for node, others in cut.neighbours.items():
        for other in others:
            if newest.get((other, node)) != cut.labels.get(node):
                yield (
                    f"{node} has the label {cut.labels.get(node)}, but sent {other} {newest.get((other, node))}"
                )


def _message(row: Row) -> Message:
    return row["node"], row["other"], row["label"]


def _both_ways(edges: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for start, end in edges:
        yield start, end
        yield end, start


def _labels_sent(sent: Counter[Message]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, _, label in sent:
        found.setdefault(node, []).append(label)
    return found


def _by_pair(sent: Counter[Message]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for node, other, label in sent:
        found.setdefault((node, other), []).append(label)
    return found


def _strange(sent: Counter[Message], least: dict[str, str]) -> Iterator[str]:
    """Yield the messages between nodes, or with labels, of different components."""
    for message in sent:
        if len({least.get(name) for name in message}) > 1 or least.get(message[0]) is None:
            yield f"{_described(message)}: no edges connect the three"


def _twice(sent: Counter[Message], where: str) -> Iterator[str]:
    """Yield what was sent more than once: a node's label changes, so it never sends the same one to a neighbour
    again."""
    for message, times in sent.items():
        if times > 1:
            yield f"{_described(message)} {times} times {where}"


def _described(message: Message) -> str:
    return f"{message[1]} sent {message[0]} the label {message[2]}"
