"""Writes ``docs/drawn.md``: how often each option, condition, pair of faults and entry of the tables is drawn.

``python -m barrier_tck.harness.cli.drawn_page > docs/drawn.md`` draws plans from every campaign file of the reference
runtime, runs trials of the campaign of chains, and some of every campaign of the simulator, which takes many minutes.
``--chains NUMBER`` and ``--tables NUMBER`` run fewer of these. Tests compare the page's rows with what there is, and
its numbers with zero.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, islice
from pathlib import Path
from typing import TypeVar

import msgspec

from barrier_tck.faults.catalogue import BY_TAG
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.fields import meanings
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.configuration import (
    CampaignConfiguration,
    SystemSection,
    read_configuration,
)
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.reached_links import Condition, ReachedConditions, reached
from barrier_tck.harness.cli.shipped import found_campaign, shipped_campaigns
from barrier_tck.harness.cluster.cluster_config import DockerClusterConfig
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.reference.public_options import NOT_DRAWN, known_options, require_known, set_by
from barrier_tck.harness.reference.table_coverage import (
    IMPOSSIBLE,
    TableCoverage,
    TableEntry,
    handled_entries,
)
from barrier_tck.harness.system.optional_interfaces import HasCluster
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.trial.trial_run import execute

CountedT = TypeVar("CountedT")

PLANS = 1_000
"""How many plans are drawn, the same number from each campaign file."""
CHAINS = 1_000
"""How many trials of the campaign of chains are run."""
TABLES = 600
"""How many trials are run to see which entries of the protocol's tables they reach."""
QUERIES = 400
"""How many plans are drawn for a query, half of them on hosts that are containers."""
SEED = 1
"""The page shall be the same whenever it is made of the same code."""
_SYSTEMS = ("reference-simulated", "reference-spark")
_QUERIES = "structured-streaming"

_HEAD = """\
# What is drawn

How often campaigns draw what there is: each public option of the job API, each chain of conditions, each pair of kinds
of fault, and each entry of the protocol's tables that a trial reaches. What is never drawn is never tested, so nothing
in the first two tables is 0.

<!-- Generated: python -m barrier_tck.harness.cli.drawn_page > docs/drawn.md -->
"""


@dataclass
class DrawnPlans:
    """What is counted in drawn plans."""

    plans: int = 0
    options: Counter[str] = field(default_factory=Counter)
    by_campaign: dict[str, Counter[str]] = field(default_factory=dict)
    """Option -> campaign -> in how many of its plans it is set."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Fault -> in how many plans it is."""
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Two faults, in the order of their names -> in how many plans both are; one that is there twice, with itself."""
    at_once: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The same, of faults that strike one target, at one moment."""
    with_at_once: int = 0
    """In how many plans any two faults do so."""
    choices: Counter[str] = field(default_factory=Counter)
    """What a fault chooses among few possibilities -> in how many plans it is chosen (``choices_of``)."""
    struck: Counter[ProtocolPoint] = field(default_factory=Counter)
    """Point of the protocol -> in how many plans a fault strikes there."""
    deaths: Counter[ProtocolPoint] = field(default_factory=Counter)
    """The same, of faults that end processes."""

    def add(self, plan: FilledPlan, campaign: str, on_spark: bool) -> None:
        """Count one plan."""
        self.plans += 1
        for option in set_by(plan, on_spark):
            self.options[option] += 1
            self.by_campaign.setdefault(option, Counter())[campaign] += 1
        faults = [(tag_of(type(planned.fault)), planned) for planned in plan.faults]
        self.kinds.update(_once(tag for tag, _ in faults))
        together = [
            ((min(one, other), max(one, other)), _at_one_target_and_moment(first, second))
            for (one, first), (other, second) in combinations(faults, 2)
        ]
        self.pairs.update(_once(pair for pair, _ in together))
        at_once = _once(pair for pair, meet in together if meet)
        self.at_once.update(at_once)
        self.with_at_once += bool(at_once)
        self.choices.update(_once(name for _, planned in faults for name in _chosen(planned.fault)))
        at_points = [
            (planned.trigger.point, planned.fault.ends is not None)
            for _, planned in faults
            if isinstance(planned.trigger, After)
        ]
        self.struck.update(_once(point for point, _ in at_points))
        self.deaths.update(_once(point for point, dies in at_points if dies))

    @property
    def never(self) -> tuple[str, ...]:
        """Return the options that no plan sets, and that no reason excuses."""
        return tuple(name for name in known_options() if not self.options[name] and name not in NOT_DRAWN)


def choices_of(kind: type[Fault]) -> tuple[str, ...]:
    """Return what a kind of fault chooses among few possibilities: ``tag.field`` if it is a yes or no,
    ``tag.field: value`` if it is a value of an enumeration."""
    found: list[str] = []
    for name, meaning in meanings(kind).items():
        if meaning is bool:
            found.append(f"{tag_of(kind)}.{name}")
        elif isinstance(meaning, type) and issubclass(meaning, Enum):
            found += [f"{tag_of(kind)}.{name}: {one.value}" for one in meaning]
    return tuple(found)


def _chosen(fault: Fault) -> Iterator[str]:
    """Yield which of its choices a fault makes; a no is none."""
    for name in meanings(type(fault)):
        value = getattr(fault, name)
        if value is True:
            yield f"{tag_of(type(fault))}.{name}"
        elif isinstance(value, Enum):
            yield f"{tag_of(type(fault))}.{name}: {value.value}"


def _at_one_target_and_moment(one: ScheduledFault, other: ScheduledFault) -> bool:
    """Return whether two faults strike the same process or service when it passes the same point."""
    same_moment = isinstance(one.trigger, After) and one.trigger == other.trigger
    return same_moment and not _targets(one.fault).isdisjoint(_targets(other.fault))


def _targets(fault: Fault) -> frozenset[str]:
    """Return the processes that a fault names; of one that names none, what it needs: the coordinator, or a service."""
    return frozenset(name for _, name in fault.named()) or frozenset({fault.needs})


def _once(counted: Iterable[CountedT]) -> list[CountedT]:
    """Return each value once: a plan counts once, however many of its faults are alike."""
    return list(dict.fromkeys(counted))


def campaigns_that_draw() -> dict[str, str]:
    """Return campaign -> system, of the campaign files that draw plans for the reference runtime."""
    return {
        name: campaign.system
        for name, campaign in shipped_campaigns().items()
        if campaign.system in _SYSTEMS and read_configuration(found_campaign(Path(name))).draws
    }


def _seeded(name: str) -> CampaignConfiguration:
    return msgspec.structs.replace(read_configuration(found_campaign(Path(name))), seed=SEED)


def drawn_plans(number: int = PLANS) -> DrawnPlans:
    """Draw so many plans, the same number from each campaign file, and count."""
    require_known()
    campaigns = campaigns_that_draw()
    found = DrawnPlans()
    for name, system_name in campaigns.items():
        configuration = _seeded(name)
        system = open_system(system_name)
        try:
            plans = islice(campaign_plans(configuration, system), configuration.listed, None)
            for plan in islice(plans, -(-number // len(campaigns))):
                found.add(plan, name, system_name == "reference-spark")
        finally:
            system.close()
    return found


def drawn_queries(number: int = QUERIES) -> DrawnPlans:
    """Draw so many plans for a query of Structured Streaming, half of them on hosts that are containers, and count."""
    found = DrawnPlans()
    for hosts in (None, DockerClusterConfig()):
        system = open_system(_QUERIES)
        if hosts is not None and isinstance(system, HasCluster):
            system.use_cluster(hosts)
        configuration = CampaignConfiguration(system=SystemSection(_QUERIES), trials=number, seed=SEED)
        for plan in islice(campaign_plans(configuration, system), number // 2):
            found.add(plan, _QUERIES, on_spark=False)
    return found


def run_chains(number: int = CHAINS) -> ReachedConditions:
    """Run trials of the campaign of chains, and count what they reach."""
    configuration = _seeded("chains")
    system, found = open_system(configuration.system.name), ReachedConditions()
    for plan in islice(campaign_plans(configuration, system), number):
        with tempfile.TemporaryDirectory() as directory:
            history = execute(plan, system, Path(directory)).history
        found.add(reached(plan, history) if history is not None else ())
    return found


def run_for_tables(number: int = TABLES) -> TableCoverage:
    """Run trials of every simulated campaign, and see which entries of the protocol's tables they reach."""
    simulated = [name for name, system in campaigns_that_draw().items() if system == _SYSTEMS[0]]
    found = TableCoverage()
    for name in simulated:
        configuration = _seeded(name)
        system = open_system(configuration.system.name)
        plans = islice(campaign_plans(configuration, system), configuration.listed, None)
        for plan in islice(plans, -(-number // len(simulated))):
            with tempfile.TemporaryDirectory() as directory, found.trial():
                execute(plan, system, Path(directory), ())
    return found


def as_markdown(
    plans: DrawnPlans, chains: ReachedConditions, queries: DrawnPlans, tables: TableCoverage
) -> str:
    """Return the text of ``docs/drawn.md``."""
    parts = (
        options_drawn(plans),
        _chains(chains),
        faults_drawn(plans),
        _of_queries(queries),
        _tables(tables),
    )
    return "\n".join([*_HEAD.splitlines(), *(line for part in parts for line in part)]) + "\n"


def options_drawn(plans: DrawnPlans) -> Iterator[str]:
    """Yield the lines that say how often each option is drawn."""
    yield from (
        "",
        "## Options",
        "",
        f"{plans.plans} plans were drawn, as many from each campaign file of the reference runtime. An option",
        "counts if a plan sets it away from its default, or uses the class, step or kind of state. Beside it stands",
        "the campaign that does so most often.",
        "",
        "| option | plans | most often in |",
        "|---|---|---|",
    )
    for name in known_options():
        if name not in NOT_DRAWN:
            most = plans.by_campaign.get(name, Counter({"–": 0})).most_common(1)[0][0]
            yield f"| `{name}` | {plans.options[name]} | `{most}` |"
    yield from ("", "No plan can set these:", "", "| option | why |", "|---|---|")
    yield from (f"| `{name}` | {why} |" for name, why in NOT_DRAWN.items())


def _chains(chains: ReachedConditions) -> Iterator[str]:
    numbers = {condition: number for number, condition in enumerate(Condition, start=1)}
    yield from (
        "",
        "## Chains of conditions",
        "",
        f"{chains.trials} trials of the campaign `chains` were run. Counted is in how many the trace shows",
        "a condition, and in how many it shows that of a row before that of a column.",
        "",
        "| | condition | trials | " + " | ".join(f"then {number}" for number in numbers.values()) + " |",
        "|---|---|---|" + "---|" * len(numbers),
    )
    for condition, number in numbers.items():
        after = " | ".join(str(chains.pairs[condition, other]) for other in Condition)
        yield f"| {number} | {condition} | {chains.each[condition]} | {after} |"


def faults_drawn(plans: DrawnPlans) -> Iterator[str]:
    """Yield the lines that say how often each fault is drawn, with which others, and where it strikes."""
    yield from (
        "",
        "## Pairs of faults",
        "",
        f"In how many of the {plans.plans} plans each kind of fault is, and with which others in the same",
        "trial. A kind that is there twice is paired with itself. What is not named was never drawn together.",
    )
    yield from _pairs(plans)
    yield from (
        "",
        f"In {plans.with_at_once} plans two faults strike one target at one moment: the second one when the first has",
        "just struck. Such pairs, in how many plans each of them is:",
        "",
        "| fault | at one moment with |",
        "|---|---|",
    )
    for tag in sorted(plans.kinds):
        if any(tag in pair for pair in plans.at_once):
            yield f"| `{tag}` | {_with(plans.at_once, tag)} |"
    yield from (
        "",
        "## Choices of faults",
        "",
        f"What a fault chooses among few possibilities, and in how many of the {plans.plans} plans: with",
        "`lose_host.returns` the host that is lost comes back empty. A value that no plan has is not named.",
        "",
        "| choice | plans |",
        "|---|---|",
    )
    for tag in sorted(plans.kinds):
        for name in choices_of(BY_TAG[tag]):
            if plans.choices[name] or ":" not in name:
                yield f"| `{name}` | {plans.choices[name]} |"
    yield from (
        "",
        "## Where faults strike",
        "",
        f"In how many of the {plans.plans} plans a fault strikes at each [point](faults.md#protocol-points) and in",
        "how many it ends a process there. At `closing` a process dies while it releases what it holds.",
        "",
        "| point | plans | of them a process dies |",
        "|---|---|---|",
    )
    yield from (f"| `{point}` | {plans.struck[point]} | {plans.deaths[point]} |" for point in ProtocolPoint)


def _pairs(plans: DrawnPlans) -> Iterator[str]:
    yield from ("", "| fault | plans | together with |", "|---|---|---|")
    for tag, number in sorted(plans.kinds.items()):
        yield f"| `{tag}` | {number} | {_with(plans.pairs, tag)} |"


def _of_queries(plans: DrawnPlans) -> Iterator[str]:
    yield from (
        "",
        "## Pairs of faults on queries",
        "",
        f"The same in {plans.plans} plans for a query of Structured Streaming, half of them on hosts that are",
        "containers.",
    )
    yield from _pairs(plans)


def _tables(tables: TableCoverage) -> Iterator[str]:
    entries = handled_entries()
    yield from (
        "",
        "## Entries of the protocol's tables",
        "",
        f"{tables.trials} trials were run, as many of each simulated campaign. An entry is an event that a machine",
        "[handles in a state](protocol.md); those that ignore their event do not count.",
        "",
        "| machine | entries | reached | by less than one trial in a hundred |",
        "|---|---|---|---|",
    )
    for machine in dict.fromkeys(entry.machine for entry in entries):
        own = [entry for entry in entries if entry.machine == machine]
        reached = [entry for entry in own if tables.reached[entry]]
        seldom = [entry for entry in reached if tables.reached[entry] * 100 < tables.trials]
        yield f"| `{machine}` | {len(own)} | {len(reached)} | {', '.join(map(_entry, seldom)) or '–'} |"
    yield from ("", "No drawn trial reached these:", "", "| machine | entry | why |", "|---|---|---|")
    for entry in entries:
        if not tables.reached[entry]:
            why = IMPOSSIBLE.get(entry, "not known")
            yield f"| `{entry.machine}` | {_entry(entry)} | {why} |"


def _entry(entry: TableEntry) -> str:
    return f"{entry.state}: `{entry.event}`"


def _with(pairs: Counter[tuple[str, str]], tag: str) -> str:
    others = {
        (one if other == tag else other): count
        for (one, other), count in pairs.items()
        if tag in (one, other)
    }
    return ", ".join(f"`{other}` {count}" for other, count in sorted(others.items())) or "–"


def main() -> None:
    """Write the page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--plans", type=int, default=PLANS)
    arguments.add_argument("--chains", type=int, default=CHAINS)
    arguments.add_argument("--tables", type=int, default=TABLES)
    arguments.add_argument("--queries", type=int, default=QUERIES)
    given = arguments.parse_args()
    plans, queries = drawn_plans(given.plans), drawn_queries(given.queries)
    sys.stdout.write(as_markdown(plans, run_chains(given.chains), queries, run_for_tables(given.tables)))


if __name__ == "__main__":
    main()
