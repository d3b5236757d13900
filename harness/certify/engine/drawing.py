"""Draws examples with Hypothesis: whole sequences from a strategy, or steps one by one from a state machine.

Where the shape of a sequence matters, a certificate chooses it by itself (``play_drawn``).

Hypothesis only draws; what fails is made smaller by leaving out steps (``shrinker``), which suits sequences better.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.reporting import with_reporter
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from barrier_tck.harness.certify.engine.hunt import Hunt
from barrier_tck.harness.certify.engine.stage import Session
from barrier_tck.harness.certify.engine.steps import Step, StepT
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.draw.strategies import PLAIN_BACKEND

_TRIES_PER_EXAMPLE = 3
"""So many sequences are played at most for each example that is wanted, if some show nothing."""


def play_drawn(
    draw: Callable[[Random], tuple[StepT, ...]], hunt: Hunt[StepT], seed: int, examples: int
) -> None:
    """Play sequences whose shape is chosen, until one fails or so many have counted; some tries may show nothing."""
    goal = hunt.examples + examples
    for number in range(_TRIES_PER_EXAMPLE * examples):
        if hunt.over or hunt.examples >= goal:
            return
        with _until_a_breach(hunt):
            hunt.play(draw(Random(f"{seed} {number}")))


def play_sequences(
    strategy: st.SearchStrategy[Sequence[StepT]], hunt: Hunt[StepT], seed: int, examples: int
) -> None:
    """Play sequences of a strategy until one fails or so many have passed."""

    @hypothesis_seed(seed)
    @_settings(examples)
    @given(strategy)
    def run(steps: Sequence[StepT]) -> None:
        hunt.play(tuple(steps))

    with _until_a_breach(hunt):
        run()


class StepMachine(RuleBasedStateMachine):
    """A state machine whose rules play steps on a session; a property's own subclass holds the hunt."""

    hunt: Hunt[Any]
    session: Session[Any] | None = None

    def __init__(self) -> None:
        """Open a session, unless the hunt is over."""
        super().__init__()
        self.over = self.hunt.over
        self._ended = self.over
        if not self.over:
            self.session = self.hunt.begin()

    def play(self, *steps: Step) -> None:
        """Play steps; the first violation ends the example."""
        assert self.session is not None
        with self._judged(self.session):
            for step in steps:
                self.session.apply(step)

    def finish(self, session: Session[Any]) -> None:
        """Play what comes at the end of each example."""

    def teardown(self) -> None:
        """Compare what is left to compare, if the example did not fail."""
        if self.session is None or self._ended:
            return
        with self._judged(self.session):
            self.finish(self.session)
            self.session.close()
        self.hunt.passed(self.session)

    @contextlib.contextmanager
    def _judged(self, session: Session[Any]) -> Iterator[None]:
        try:
            yield
        except Violation as violation:
            self._ended = True
            self.hunt.failed(session, violation)
            raise
        except BaseException:
            # After Ctrl-C between a request and its reply, the next reply would answer the old request.
            self._ended = True
            session.abandon()
            raise


def run_machine(machine: type[StepMachine], seed: int, examples: int, steps_max: int) -> None:
    """Run a machine until an example fails or so many have passed."""
    hypothesis_seed(seed)(machine)
    with _until_a_breach(machine.hunt), with_reporter(lambda _text: None):
        run_state_machine_as_test(machine, settings=_settings(examples, stateful_step_count=steps_max))


def _settings(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=tuple(HealthCheck),
        backend=PLAIN_BACKEND,
        **more,
    )


@contextlib.contextmanager
def _until_a_breach(hunt: Hunt[Any]) -> Iterator[None]:
    """Keep what Hypothesis raises about an example that failed; the hunt remembers that example."""
    try:
        yield
    except (Violation, HypothesisException, BaseExceptionGroup):
        if hunt.breach is None:
            raise
