"""What injectors have in common: the outcome of an injection, and the bounded wait for its proof."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

PROOF_POLLS_MAX = 500
"""How often a target is asked for the proof before the fault counts as failed."""
PROOF_POLL_SECONDS = 0.01
"""Pause between two questions; a simulated target gives it at once, so virtual time never waits here."""

Heal = Callable[[], None]
"""Undoes a fault altogether; harmless if called twice, or when the target is gone."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What became of one attempt to inject a fault."""

    outcome: str
    """``fired``, ``not_fired`` or ``skipped``, as in the fault record."""
    target: str = ""
    """What was hit."""
    reason: str = ""
    """Why it did not fire or was skipped."""
    files: tuple[str, ...] = ()
    """The files of durable storage that were hit, by the paths that the system's checkpoints use."""
    heal: Heal | None = None
    """Undoes it, if it fired and can be undone; called once, ``duration_ms`` later or at the end of the run."""

    met: Callable[[], bool] | None = None
    """For a fault that lies in wait: says at the end of the run whether what it waits for came; None: it struck."""

    @property
    def fired(self) -> bool:
        """Whether the fault was proved to have fired."""
        return self.outcome == "fired"


def skipped(what: str) -> Injection:
    """Return the outcome of a fault on a target that is not there, or that the system never exposes."""
    return Injection("skipped", reason=f"the system exposes no {what} now")


def proved(holds: Callable[[], bool], wait: Callable[[float], None] = time.sleep) -> bool:
    """Ask for a proof until it holds or the bound is reached; ``wait`` waits the given seconds between questions."""
    for _ in range(PROOF_POLLS_MAX):
        if holds():
            return True
        wait(PROOF_POLL_SECONDS)
    return holds()


def unproved(description: str, what: str) -> Injection:
    """Return the outcome of a fault whose proof did not come within the bound."""
    bound = PROOF_POLLS_MAX * PROOF_POLL_SECONDS
    return Injection("not_fired", description, f"{what} {bound:.0f} s later")
