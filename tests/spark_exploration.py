"""Explores Spark for some minutes: runs ``campaigns/explore.toml`` and judges it as CI does.

No trial may be INVALID. On a loaded machine one trial in twenty may be UNKNOWN, or one of a few trials. The verdict
of a campaign is that of its worst trial, so such a trial alone would fail CI. Run this with ``python
tests/spark_exploration.py --budget 2m``; the options are those of ``barrier-tck campaign``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barrier_tck.harness.record.unknown_trials import too_many_unknown

ROOT = Path(__file__).parents[1]
CAMPAIGN = ROOT / "campaigns" / "explore.toml"
TRIALS_MIN = 5
TOGETHER_MIN = 40
"""What all trials together must show now and then is asked of so many of them: how many run within a budget depends on
the machine, and a few may have shown nothing of it by chance."""


def problems(summary: Mapping[str, Any]) -> Iterator[str]:
    """Say what is wrong with a campaign, by the summary that it prints as JSON, and what to do about it."""
    trials, invalid = int(summary["trials"]), int(summary["invalid"])
    where = summary["run_directory"]
    if summary["interrupted"]:
        yield "the campaign was interrupted; run it again"
    if invalid:
        yield (
            f"{invalid} of {trials} trials are INVALID. Each has its plan, history and logs below {where}; repeat it "
            "with the line that was printed above. If the runtime is wrong, mend it and plant the bug; if a checker "
            "is, mend the checker, and keep the plan as a test of it"
        )
    yield from too_many_unknown(summary["why_unknown"], trials)
    for finding in summary["findings"]:
        if finding["trial"] is None and trials >= TOGETHER_MIN:
            yield f"all trials together show too little: {finding['summary']}"
    if trials < TRIALS_MIN:
        yield f"only {trials} trials ran, too few to say anything; give it a longer --budget, or a faster machine"


def main(options: Sequence[str]) -> int:
    """Run the campaign, print what is wrong with it, and return the exit code."""
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign", str(CAMPAIGN), "--json"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as campaign:
        # Who ends this process means the campaign, which then stops its cluster and tells what it has seen so far.
        signal.signal(signal.SIGTERM, lambda *_: campaign.terminate())
        printed, _ = campaign.communicate()
    try:
        summary = json.loads(printed)
    except json.JSONDecodeError:
        summary = {}
    if "trials" not in summary:  # the command could not begin, and says why
        print(printed)
        return campaign.returncode or 1
    found = list(problems(summary))
    for problem in found:
        print(f"exploration: {problem}", file=sys.stderr)
    fired = f"{summary['faults_fired']} faults fired, {summary['recoveries']} recoveries"
    counts = ", ".join(f"{summary[name]} {name}" for name in ("valid", "unknown", "invalid"))
    print(f"exploration: {summary['trials']} trials: {counts}; {fired}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
