"""The step that is played on a checkpoint storage: a check, which runs where the candidate is."""

from __future__ import annotations

from barrier_tck.harness.certify.engine.steps import Step


class RunCheck(Step, frozen=True, tag="check"):
    """Run the check of a property in the candidate's process, at a place that nothing has used."""

    property: str

    def description(self) -> str:
        return f"run the check {self.property} in a process of the candidate's"
