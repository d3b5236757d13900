"""A checker of the suite: its file says all that concerns it, and the catalogue finds it there.

``applicable`` asks it whether it judges a trial, ``vacuity`` what must have happened before its VALID says something,
the campaign what it must see at least once, and ``checkers_page`` what a reader needs to know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.exactness import is_exact
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.first_breaches import with_evidence
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sometimes
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.connected_components import NODE
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.kinds.changes import CHANGES


class Meaning(Enum):
    """By what it is known which output and state are right."""

    UNKNOWN = "the system brings its own job, so the workload's meaning is not that of the job"
    COMPONENTS = "messages between nodes, in any order"
    EMITTED = "totals of each key, at whatever moments they are emitted"
    SEQUENTIAL = "the workload's sequential model"
    REPLAYED = "models of its operators, which replay the order of arrival"
    BY_VERTEX = "the meaning of each operator, vertex by vertex"


@dataclass(frozen=True)
class TrialToJudge:
    """What is known of a trial before it runs."""

    input: TrialInput
    capabilities: frozenset[Capability]
    modelled: bool = True
    """False if the workload's meaning is not that of the job (``ProvidesOwnJob``)."""
    unused: frozenset[str] = frozenset()
    """The fields of plans that the system leaves unused, for instance ``restart.strategy`` (``UsesFieldsOfPlans``)."""

    @property
    def plan(self) -> TrialPlan:
        """Return the plan, with its job filled in."""
        return self.input.plan

    @property
    def takes_checkpoints(self) -> bool:
        """Whether checkpoints are switched on."""
        return bool(self.plan.checkpoints.enabled)

    @property
    def opens_checkpoints(self) -> bool:
        """Whether completed checkpoints can be opened, and compared with what the job means."""
        return (
            self.modelled and self.takes_checkpoints and Capability.SNAPSHOT_INSPECTION in self.capabilities
        )

    @cached_property
    def meaning(self) -> Meaning:
        """By what it is known which output is right."""
        if not self.modelled:
            return Meaning.UNKNOWN
        if any(vertex.kind == NODE for vertex in self.plan.job.vertices):
            return Meaning.COMPONENTS
        if any(vertex.kind == CHANGES for vertex in self.plan.job.vertices):
            return Meaning.EMITTED
        if any(
            kind_named(operator.kind).replayed is not None
            for vertex in self.plan.job.vertices
            for operator in vertex.operators
        ):
            return Meaning.REPLAYED
        return Meaning.BY_VERTEX if self.input.workload.spec is None else Meaning.SEQUENTIAL

    @cached_property
    def exact(self) -> bool:
        """Whether output and snapshots must be exact."""
        return is_exact(self.plan)


class StandardChecker(ABC):
    """Judges one property. Its module is named for it, and defines no other checker."""

    name: ClassVar[str]
    """The property's name, for instance ``exactly-once-output``."""
    requires: ClassVar[str]
    """What a correct system does, as a sentence for readers."""
    judges: ClassVar[str]
    """Which trials it judges, for readers: what ``needs`` and ``applies`` say, in words."""
    covers: ClassVar[Mapping[str, Precondition]]
    """Every clause for which it may speak -> what must have happened before its VALID says something about it."""
    needs: ClassVar[frozenset[Capability]] = frozenset()
    """What a system must be able to do, or the checker has nothing to look at."""
    of_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields of a plan whose effect it judges: a system that leaves one of them unused is not judged."""
    judges_output: ClassVar[bool] = False
    """Whether it compares the committed output with the input: then it shows what was survived, no matter how."""
    always: ClassVar[bool] = False
    """Whether it judges also if only some clauses are asked for, and not its own."""
    sometimes: ClassVar[tuple[Sometimes, ...]] = ()
    """What a campaign must see at least once, in findings of this checker."""
    signs: ClassVar[tuple[Sign, ...]] = ()
    """By what it tells its clauses apart; empty if it has one clause, or if all that it finds breaks its first one."""
    directness: ClassVar[Directness] = Directness.CONTENT
    """How near to its cause it looks at a bug."""
    rank: ClassVar[int] = 800
    """Where its finding stands among the others of a trial: lower ones come first, equals in the order of names."""

    clauses: tuple[str, ...]
    """The clauses for which it speaks in the trial that it was made for; all of ``covers``, unless it says less."""

    def __init_subclass__(cls, **named: Any) -> None:
        """Let the class cover all its clauses."""
        super().__init_subclass__(**named)
        if "covers" in vars(cls):
            cls.covers = MappingProxyType(cls.covers)
            cls.clauses = vars(cls).get("clauses", tuple(cls.covers))

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        """Return whether it judges a trial of a system that has what it ``needs``."""
        return True

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        """Return the checker for a trial to which it applies."""
        return cls()

    def broken(
        self,
        context: TrialContext,
        summary: str,
        counts: dict[str, int],
        breaches: Sequence[Breach],
        examples: Sequence[str] = (),
    ) -> Finding:
        """Return the finding that the property is broken; without examples, the breaches are the examples."""
        shown = chosen(examples or [breach.sentence for breach in breaches])
        finding = Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, shown)
        return with_evidence(finding, context, breaches)

    @abstractmethod
    def check(self, context: TrialContext) -> Finding:
        """Judge the trial. If it raises, the checker could not judge, and the finding becomes UNKNOWN."""
