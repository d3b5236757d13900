"""Explores the simulator for about a minute with seeds that nobody chose: what CI does not know yet.

A finding is printed and written down as the text of an issue, in ``issues/`` of the run directory. It does not fail
what runs this, unless ``--strict`` is given: a merge must not be held up by a bug that was there before. The same holds
for more UNKNOWN trials than the shares allow. A campaign that cannot begin fails. Run it with
``python tests/fresh_exploration.py --seconds 60``; other options are those of ``barrier-tck campaign``.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barrier_tck.harness.record.unknown_trials import too_many_unknown

ROOT = Path(__file__).parents[1]
CAMPAIGNS = ("graphs", "modes", "rescale", "incremental", "savepoints")
"""Campaign files that draw most of what there is."""
EACH_TIME = 2
"""How many of them are run, others each time, unless ``--all`` is given: drawing the first plans of each takes long."""
STRATEGIES = ("uniform", "swarm", "guided", "crossed")
"""One of them is how a campaign draws its plans, unless ``--strategy`` says which: each finds what others miss."""
SECONDS = 60.0


def told(campaign: str, summary: Mapping[str, Any]) -> Iterator[str]:
    """Say what a campaign was, and what it found, by the summary that it prints as JSON."""
    counts = ", ".join(f"{summary[name]} {name}" for name in ("valid", "unknown", "invalid"))
    yield f"exploration: {campaign}, seed {summary['seed']}: {summary['trials']} trials: {counts}"
    for why in too_many_unknown(summary["why_unknown"], summary["trials"]):
        yield f"exploration: {campaign}: {why}"
    if not summary["groups"]:
        return
    directory = Path(summary["run_directory"]) / "issues"
    for text in sorted(directory.glob("*.md")):
        yield f"exploration: FOUND, as the text of an issue in {text}:"
        yield text.read_text(encoding="utf-8")


def explored(campaign: str, seconds: float, options: Sequence[str]) -> dict[str, Any] | int:
    """Run one campaign; return its summary, or the exit code if it could not begin."""
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign"]
    command += [str(ROOT / "campaigns" / f"{campaign}.toml"), "--json", "--budget", f"{seconds:g}s"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as running:
        signal.signal(signal.SIGTERM, lambda *_: running.terminate())
        printed, _ = running.communicate()
    try:
        summary: dict[str, Any] = json.loads(printed.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        summary = {}
    if "trials" not in summary:  # the command could not begin, and says why
        print(printed)
        return running.returncode or 1
    return summary


def main(options: Sequence[str]) -> int:
    """Run the campaigns, tell what they found, and return the exit code."""
    own = [*options]
    strict, every = "--strict" in own, "--all" in own
    own = [option for option in own if option not in ("--strict", "--all")]
    campaigns = CAMPAIGNS if every else tuple(random.sample(CAMPAIGNS, EACH_TIME))
    seconds = SECONDS
    if "--seconds" in own:
        place = own.index("--seconds")
        seconds = float(own[place + 1])
        del own[place : place + 2]
    findings = 0
    for campaign in campaigns:
        strategy = [] if "--strategy" in own else ["--strategy", random.choice(STRATEGIES)]
        summary = explored(campaign, seconds / len(campaigns), [*own, *strategy])
        if isinstance(summary, int):
            return summary
        for line in told(campaign, summary):
            print(line, file=sys.stderr)
        findings += len(summary["groups"])
        findings += len([*too_many_unknown(summary["why_unknown"], summary["trials"])])
        if summary["interrupted"]:
            print("exploration: the campaign was interrupted; run it again", file=sys.stderr)
            return 1
    return 1 if findings and strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
