"""CAM-3: every planned fault is shown to have fired; otherwise the trial is unknown, and not passed."""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.standard_checker import StandardChecker
from barrier_tck.harness.record.operations import ClockCompared
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding, Verdict


def _sentence(fault: FaultRecord) -> str:
    reason = fault.reason or "no reason given"
    return f"faults[{fault.index}] ({fault.label}, {fault.trigger}): {fault.outcome}, {reason}"


def _not_healed(fault: FaultRecord, context: TrialContext) -> bool:
    """Return whether a lasting fault lasted beyond the trial."""
    planned = context.plan.faults[fault.index : fault.index + 1]
    return fault.healed_at_ms is None and any(entry.fault.heals_after_ms is not None for entry in planned)


def _clocks_differed(context: TrialContext) -> bool:
    return any(line.operation.ahead_ms for line in context.history.of(ClockCompared))


class FaultsFired(StandardChecker):
    """UNKNOWN if a planned fault did not fire, was skipped, was not healed, or left no record; VALID otherwise."""

    name = "faults-fired"
    requires = "Every planned fault was shown to have fired."
    judges = "every trial"
    covers = {"CAM-3": ALWAYS}
    always = True
    rank = 920

    def check(self, context: TrialContext) -> Finding:
        """Compare the plan's schedule with the fault records."""
        records = {record.index: record for record in context.faults}
        fired = [record for record in context.faults if record.outcome == "fired"]
        unproved = [_sentence(record) for record in context.faults if record.outcome != "fired"]
        unproved += [_sentence(record) for record in fired if _not_healed(record, context)]
        unproved += [
            f"faults[{index}]: the nemesis left no record of it"
            for index in range(len(context.plan.faults))
            if index not in records
        ]
        if any(context.plan.deployment.clock_skew_ms) and not _clocks_differed(context):
            unproved.append("deployment.clock_skew_ms: no process had another clock than the coordinator")
        counts = {
            "planned": len(context.plan.faults),
            "fired": len(fired),
            "not_fired": sum(record.outcome == "not_fired" for record in context.faults),
            "skipped": sum(record.outcome == "skipped" for record in context.faults),
        }
        if unproved:
            summary = (
                f"{len(unproved)} of {counts['planned']} planned faults did not fire, or were not healed"
                if counts["planned"]
                else unproved[0]
            )
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts, tuple(unproved[:10]))
        summary = f"all {len(fired)} planned faults fired" if fired else "no fault was planned"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
