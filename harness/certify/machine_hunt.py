"""Runs the state machine of a property; the machine of some properties also redistributes key groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.declared_capabilities import INCREMENTAL
from barrier_tck.harness.certify.machine import CertifyMachine, Hunt, may
from barrier_tck.harness.certify.store_models import Violation
from barrier_tck.harness.draw.strategies import PLAIN_BACKEND


class RedistributingMachine(CertifyMachine):
    """Also lets stores go on with other key groups. It is apart, so that the examples of other properties stay."""

    def _group(self, data: st.DataObject, store: int) -> int:
        start, end = self.open_session.ranges[store]
        return data.draw(st.sampled_from(sorted({start, (start + end) // 2, end - 1})))

    @precondition(may("redistribute"))
    @rule(data=st.data(), middle=st.integers(1, 15), again=st.booleans())
    def redistribute(self, data: st.DataObject, middle: int, again: bool) -> None:
        """Close both stores and go on with other key groups, from new snapshots or from earlier ones.

        ``again``: soon both are joined. What one of them has deleted meanwhile must not come back from the other.
        """
        self._checkpoint_both()
        back, chosen = data.draw(st.sampled_from([0, 0, 0, 1])), []
        for model in self.open_session.stores:
            completed = model.completed()
            chosen.append(completed[max(0, len(completed) - 1 - back)] if completed else 0)
        self.play(steps.Redistribute((chosen[0], chosen[1]), ((0, middle), (middle, 16))))
        if not again:
            return
        for store in (0, 1):
            present = sorted(self.open_session.stores[store].entries)
            for name, group, key in present[data.draw(st.integers(0, 1)) :: 2]:
                self.play(steps.Delete(store, name, group, key))
        self._checkpoint_both()
        newest = [(model.completed() or [0])[-1] for model in self.open_session.stores]
        self.play(steps.Rescale((newest[0], newest[1]), 0, 16))

    def _checkpoint_both(self) -> None:
        if self.concurrent or not self.unfinished():
            for store in (0, 1):
                self.checkpoint_of(store)


def hunt_with_machine(
    hunt: Hunt,
    moves: frozenset[str],
    seed: int,
    examples: int,
    steps_max: int,
    restarts_max: int,
    finale: str,
    capability: str = "",
    concurrent: bool = True,
) -> None:
    """Run a machine until it fails or all examples have passed; the hunt holds what it found."""
    members = {
        "hunt": hunt,
        "moves": moves,
        "restarts_max": restarts_max,
        "finale": finale,
        "capability": capability,
        "concurrent": concurrent,
        "incremental": capability == INCREMENTAL and "promise" not in moves,
    }
    base = RedistributingMachine if "redistribute" in moves else CertifyMachine
    machine: type[CertifyMachine] = type("Certify", (base,), members)
    hypothesis_seed(seed)(machine)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps_max,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=tuple(HealthCheck),
        backend=PLAIN_BACKEND,
    )
    # The smallest sequence of steps is printed instead of Hypothesis's own description.
    with contextlib.suppress(Violation, HypothesisException, BaseExceptionGroup), _quiet():
        run_state_machine_as_test(machine, settings=chosen)
    hunt.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Hypothesis from printing each step of the last example."""
    from hypothesis.reporting import with_reporter

    with with_reporter(lambda _text: None):
        yield
