"""The page, the JSON, the JUnit file and the terminal summary show the records' numbers and never claim too much."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import junitparser
import msgspec
import pytest
from rich.console import Console

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.harness.certify.engine.verification import read_certificate
from barrier_tck.harness.record.control_records import BreakRecord, ControlRecord, ControlsRecord
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.unknown_trials import CRASHED, NOT_RUN_CHECKER
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import EnvironmentProblem
from barrier_tck.reports import html
from barrier_tck.reports.certificate_page import render_certificate
from barrier_tck.reports.github import step_summary
from barrier_tck.reports.headline import headline
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.machine_readable import as_junit, as_object
from barrier_tck.reports.summary import print_run
from barrier_tck.reports.write import write_reports
from tests.reports.synthetic_run import (
    EXAMPLES,
    INVALID_TRIAL,
    campaign_of,
    plan_of,
    record_of,
    spark_campaign,
    write_run,
)
from tests.test_tidy import ROOT

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\x00"


class Page(HTMLParser):
    """The page's elements, and its text outside scripts and styles."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.html = source
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._silent = False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._texts).split())

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spark_campaign(tmp_path_factory.mktemp("reports") / "run")


@pytest.fixture(scope="module")
def page(run_directory: Path) -> Page:
    return Page(html.render(load_run(run_directory)))


def summary_text(run_directory: Path, width: int = 100) -> str:
    out = io.StringIO()
    print_run(load_run(run_directory), Console(file=out, width=width))
    return out.getvalue()


def hostile_record() -> TrialRecord:
    record = record_of(6, note=HOSTILE)
    return msgspec.structs.replace(
        record,
        end=HOSTILE,
        end_reason=HOSTILE,
        findings=(Finding(HOSTILE, (HOSTILE,), Verdict.INVALID, HOSTILE, {HOSTILE: 1}, (HOSTILE,)),),
        faults=tuple(
            msgspec.structs.replace(fault, label=HOSTILE, kind=HOSTILE, point=HOSTILE, trigger=HOSTILE)
            for fault in record.faults
        ),
        subtasks=(HOSTILE,),
        measurements={HOSTILE: 1.0},
    )


def test_the_pages_numbers_are_the_records(page: Page) -> None:
    records = [record_of(trial) for trial in range(12)]
    assert "✗ Invalid: 1 of 12 trials" in page.text
    assert "12 trials 10 valid 1 unknown 1 invalid" in page.text
    fired, planned = (
        sum(each.faults_fired for each in records),
        sum(len(each.plan.faults) for each in records),
    )
    assert f"{fired} / {planned} faults fired / planned" in page.text
    assert f"{sum(record.recoveries for record in records)} recoveries" in page.text
    assert f"{sum(record.checkpoints_completed for record in records)} checkpoints completed" in page.text


def test_every_planned_fault_is_on_the_page(page: Page) -> None:
    begin = page.text.index("Trials Trial Verdict")
    table = page.text[begin : page.text.index("Timelines", begin)]
    faults = [fault for trial in range(12) for fault in record_of(trial).faults]
    assert len(faults) == sum(len(plan_of(trial).faults) for trial in range(12))
    for text in {f"{fault.label} {fault.trigger}" for fault in faults}:
        assert table.count(text) == sum(f"{fault.label} {fault.trigger}" == text for fault in faults)
    assert (
        "not fired crash coordinator after checkpoint_aborted, 2nd time; the point was never reached" in table
    )


def test_the_worst_finding_comes_first_with_examples_and_its_replay_line(
    page: Page, run_directory: Path
) -> None:
    findings = page.text[page.text.index("Findings, worst first") : page.text.index("Verdict per clause")]
    assert findings.index("exactly-once-output") < findings.index("faults-fired")
    assert all(example in findings for example in EXAMPLES)
    assert f"barrier-tck replay {run_directory}/trials/00006/plan.json" in findings


def test_the_page_is_one_file_that_fetches_nothing(page: Page) -> None:
    assert "src" not in {name for _, attributes in page.tags for name in attributes}
    assert all(target.startswith("#") for target in page.attributes("href"))
    assert not {"link", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    (policy,) = (text for text in page.attributes("content") if "default-src" in text)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy


def test_the_page_is_small_and_its_policy_admits_what_it_unpacks(run_directory: Path) -> None:
    source = html.render(load_run(run_directory))
    assert len(source) < 1_000_000, "plotly.js uncompressed would be 1.2 MB, and the whole library 4.8 MB"
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', source)
    library = gzip.decompress(base64.b64decode(packed))
    assert library.startswith(b"/**\n* plotly.js (basic - minified) v")
    admitted = base64.b64encode(hashlib.sha256(library).digest()).decode()
    (policy,) = (text for text in Page(source).attributes("content") if "default-src" in text)
    assert f"'sha256-{admitted}'" in policy


def test_the_bundle_draws_every_kind_of_trace_that_the_page_has(run_directory: Path) -> None:
    source = html.render(load_run(run_directory))
    figures = re.findall(r'<script type="application/json">(.*?)</script>', source)
    used = {trace["type"] for figure in figures for trace in json.loads(figure)["data"]}
    assert used == {"bar", "scatter"}, "the basic bundle has these two, and pie"


def test_trials_and_matrix_come_before_clauses_and_valid_clauses_are_folded(page: Page) -> None:
    order = [page.text.index(title) for title in ("Trials Trial", "Faults by phase", "Verdict per clause")]
    assert order == sorted(order)
    clauses = page.text[order[-1] : page.text.index("Timelines", order[-1])]
    assert (
        clauses.index("SNK-1 ✗ invalid")
        < clauses.index("ALN-1 also")
        < clauses.index("CAM-3 ? unknown")
        < clauses.index("2 clauses: ALN-2, REC-6")
    )
    folded = clauses[clauses.index("2 clauses: ALN-2, REC-6") :]
    assert "ALN-2 ✓ valid" in folded and "invalid SNK-1" not in folded
    assert "another clause was broken first in trial 6" in clauses


def test_the_verdict_stands_beside_the_name_of_what_is_judged(page: Page) -> None:
    """On a narrow screen everybody sees at least a table's first two columns."""
    heads = re.findall(r"(Clause|Trial) (Verdict) ", page.text)
    assert len(heads) == 3, "trials, clauses that are not valid, and those that are"


def test_many_valid_trials_are_folded(tmp_path: Path) -> None:
    records = [
        msgspec.structs.replace(record_of(0), trial=trial, snapshots=(), checkpoints=())
        for trial in range(30)
    ]
    records[7] = msgspec.structs.replace(record_of(6), trial=7, snapshots=(), checkpoints=())
    page = Page(html.render(load_run(write_run(tmp_path / "run", records))))
    assert "✓ valid 4 more trials" in page.text
    assert page.text.index("✗ invalid 1 / 1") < page.text.index("4 more trials")


BROKEN = BreakRecord(
    "read-again", "records are read again", ("SRC-1", "REC-1"), 2, {"nothing was restored": 10}
)
CONTROLS = ControlsRecord(
    trials=12,
    recovered=9,
    breaks=(BROKEN,),
    could_be_violated={"SRC-1": 2, "REC-1": 2},
    ran=(
        ControlRecord(
            "read-again", 3, "controls/00003-read-again.json", Verdict.INVALID, "exactly-once-output"
        ),
        ControlRecord(
            "read-again", 5, "controls/00005-read-again.json", Verdict.VALID, "", "no checker saw it"
        ),
    ),
)


def test_every_report_says_in_how_many_trials_clauses_could_be_violated_and_what_the_controls_showed(
    tmp_path: Path,
) -> None:
    records = [record_of(trial) for trial in range(12)]
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records, controls=CONTROLS)))
    text = Page(html.render(run)).text
    section = text[text.index("Vacuity check") : text.index("Verdict per clause")]
    assert "1 of 2 controls were." in section
    assert "Records are read again SRC-1 REC-1 2 of 12 1 / 2 10 nothing was restored" in section
    assert "✓ valid trial 5, read-again: no checker saw it controls/00005-read-again.json" in section
    assert re.search(r"REC-1 also .*? 11 1 0 2 exactly-once-output", text)
    printed = summary_text(run.directory)
    assert "trials in which a wrong recovery would have shown: SRC-1 2, REC-1 2, of 12 trials" in printed
    assert "no trial could have shown" not in printed
    said = "self-check: recovery was broken on purpose in 2 trials, and the suite noticed it in 1 of 2"
    assert said in " ".join(printed.split())
    report = as_object(run)
    assert report["controls"]["breaks"][0]["could"] == 2
    assert {row["id"]: row["could_have_failed"] for row in report["clauses"]} == {
        "ALN-1": None,
        "REC-1": 2,
        "SNK-1": None,
        "CAM-3": None,
        "ALN-2": None,
        "REC-6": None,
    }


def test_a_clause_that_no_broken_recovery_would_have_violated_is_told_apart(tmp_path: Path) -> None:
    records = [record_of(trial) for trial in range(12)]
    controls = msgspec.structs.replace(
        CONTROLS, could_be_violated={"SRC-1": 2, "REC-6": 0, "SNK-1": 0, "ALO-1": 0}
    )
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records, controls=controls)))
    printed = summary_text(run.directory)
    assert "SNK-1 in 0" not in printed
    assert "trials in which a wrong recovery would have shown: SRC-1 2, of 12 trials" in printed
    said = "no trial could have shown a wrong recovery for: REC-6; VALID says nothing about recovery there"
    assert said in " ".join(printed.split()), "SNK-1 is INVALID, and nobody judged ALO-1"


@pytest.mark.parametrize(("fired", "shown", "said"), [(1, 0, True), (1, 2, False), (0, 0, False)])
def test_the_headline_says_that_no_trial_could_have_shown_a_wrong_recovery(
    fired: int, shown: int, said: bool, tmp_path: Path
) -> None:
    records = [
        msgspec.structs.replace(record_of(trial), faults=record_of(trial).faults if fired else ())
        for trial in range(3)
    ]
    controls = msgspec.structs.replace(CONTROLS, ran=(), could_be_violated={"SRC-1": shown, "SNK-1": 0})
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records, controls=controls)))
    caveat = "holds, but no trial could have shown a wrong recovery (SRC-1, SNK-1)."
    assert (caveat in headline(run).meaning) is (said and run.verdict is Verdict.VALID)


def test_the_headline_names_the_clause_that_was_broken_first_and_the_others_as_also(tmp_path: Path) -> None:
    records = [record_of(trial) for trial in range(2)]
    chain = (
        Finding("one", ("ALN-1", "REC-1"), Verdict.INVALID, "first"),
        Finding("two", ("SNK-1", "ALN-1"), Verdict.INVALID, "later"),
    )
    records = [msgspec.structs.replace(record, verdict=Verdict.INVALID, findings=chain) for record in records]
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records)))
    assert "broken: ALN-1 first in 2 trials; also REC-1, SNK-1" in summary_text(run.directory)
    valid = [msgspec.structs.replace(records[0], verdict=Verdict.VALID, findings=())]
    right = load_run(write_run(tmp_path / "right", valid, campaign_of(valid)))
    assert "broken:" not in summary_text(right.directory)


def test_a_system_that_cannot_be_broken_is_told_in_every_report(tmp_path: Path) -> None:
    records = [record_of(0)]
    none = ControlsRecord(trials=1, note="echo cannot be broken on purpose, so there were no controls")
    run = load_run(write_run(tmp_path / "run", records, campaign_of(records, controls=none)))
    assert "Echo cannot be broken on purpose" in Page(html.render(run)).text
    assert "self-check: echo cannot be broken on purpose" in summary_text(run.directory)
    assert as_object(run)["controls"]["note"] == none.note


def test_links_lead_to_sections_that_exist(page: Page) -> None:
    assert {target[1:] for target in page.attributes("href")} <= set(page.attributes("id"))
    assert {"trial-6", "trial-9", "trial-2"} <= set(page.attributes("id"))


def test_unknown_is_explained(page: Page) -> None:
    assert "A planned fault did not fire" in page.text
    assert "It is not a pass." in page.text


def test_the_table_of_trials_says_what_each_is_for_and_what_it_was_run_with(tmp_path: Path) -> None:
    record = record_of(1, note="in the middle of an alignment")
    plain = Page(html.render(load_run(write_run(tmp_path / "plain", [record]))))
    plan = msgspec.structs.replace(
        record.plan,
        checkpoints=msgspec.structs.replace(record.plan.checkpoints, mode="at_least_once"),
        state_backend="rocksdb",
        local_recovery=True,
    )
    changed = msgspec.structs.replace(record, plan=plan)
    told = Page(html.render(load_run(write_run(tmp_path / "told", [changed]))))
    assert "1 / 1 in the middle of an alignment kill executor" in plain.text
    assert "1 / 1 in the middle of an alignment at-least-once, rocksdb, local recovery kill" in told.text


def test_each_kind_of_fault_has_its_name_and_its_colour_in_matrix_and_legend(page: Page) -> None:
    planned = {type(scheduled.fault) for trial in range(12) for scheduled in plan_of(trial).faults}
    heads = [
        fault for fault in FAULTS if f"border-left: 3px solid {fault.colour}" in page.attributes("style")
    ]
    assert set(heads) == planned and all(fault.label in page.text for fault in planned)
    legend = [fault for fault in FAULTS if f"color: {fault.colour}" in page.attributes("style")]
    assert legend and set(legend) < planned, "one of them struck in no trial that is drawn"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    record = hostile_record()
    campaign = campaign_of(
        [record],
        name=HOSTILE,
        system=HOSTILE,
        started_at=HOSTILE,
        environment={HOSTILE: HOSTILE},
        configuration={HOSTILE: {"a": HOSTILE}},
        shrunk={"6": HOSTILE.replace("\0", "")},
    )
    source = html.render(load_run(write_run(tmp_path / "run", [record], campaign)))
    page = Page(source)
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    library = (("type", "text/plain"), ("id", "plotly"))
    data = (("type", "application/json"),)
    assert {tuple(attributes.items()) for attributes in scripts} == {(), data, library}
    assert sum(not attributes for attributes in scripts) == 1, "only our script runs; it unpacks plotly.js"
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert page.text.count("<script>alert(1)</script>") >= 10
    assert "\x1b" not in source
    assert "\x00" not in source


def test_hostile_text_neither_steers_the_terminal_nor_breaks_the_xml(tmp_path: Path) -> None:
    run_directory = write_run(tmp_path / "run", [hostile_record()])
    printed = summary_text(run_directory)
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed
    (suite,) = junitparser.JUnitXml.fromstring(as_junit(load_run(run_directory)).encode())
    (case,) = suite
    assert "<script>alert(1)</script>" in case.name


def test_rich_markup_in_a_finding_is_printed_as_it_is(tmp_path: Path) -> None:
    finding = Finding("output", (), Verdict.INVALID, "[bold]row[/nonsense] [link=x]", {}, ("[red]a[/red]",))
    record = msgspec.structs.replace(record_of(6), findings=(finding,))
    printed = summary_text(write_run(tmp_path / "run", [record]))
    assert "[bold]row[/nonsense] [link=x]" in printed
    assert "[red]a[/red]" in printed


def test_junit_counts_match_the_findings(run_directory: Path) -> None:
    (suite,) = junitparser.JUnitXml.fromstring(as_junit(load_run(run_directory)).encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (48, 1, 1, 0)
    cases = list(suite)
    assert len(cases) == sum(len(record_of(trial).findings) for trial in range(12))
    (failed,) = (case for case in cases if case.is_failure)
    assert failed.name == "exactly-once-output"
    assert failed.classname == "reference-spark.trial-00006"
    assert EXAMPLES[0] in failed.result[0].text
    (properties,) = failed.iterchildren(junitparser.Properties)  # type: ignore[no-untyped-call]
    facts = {each.name: each.value for each in properties}
    assert facts == {
        "trial": "6",
        "seed": "1006",
        "plan": f"{run_directory}/trials/00006/plan.json",
        "clauses": "SNK-1 REC-1 ALN-1",
        "broken": "SNK-1",
        "also": "REC-1 ALN-1",
    }
    (unknown,) = (case for case in cases if case.is_error)
    assert unknown.classname == "reference-spark.trial-00009"
    assert suite.time == pytest.approx(sum(record_of(trial).wall_seconds for trial in range(12)), abs=0.1)


def test_the_json_has_the_campaigns_keys_and_numbers(run_directory: Path) -> None:
    report = json.loads(json.dumps(as_object(load_run(run_directory)), allow_nan=False))
    assert list(report)[:10] == [
        "verdict",
        "trials",
        "valid",
        "invalid",
        "unknown",
        "faults_fired",
        "faults_planned",
        "recoveries",
        "checkpoints_completed",
        "run_directory",
    ]
    assert (report["verdict"], report["trials"], report["valid"]) == ("invalid", 12, 10)
    assert (report["faults_fired"], report["faults_planned"]) == (15, 16)
    assert sum(entry["planned"] for entry in report["phase_by_fault"]) == 16
    assert [entry["trial"] for entry in report["findings"]] == [6, 9]
    assert report["clauses"][0]["verdict"] == "invalid"
    kept = [record_of(trial) for trial in (0, 1, 2, 6, 9)]
    assert report["distributions"]["sync_ms"]["count"] == sum(len(record.snapshots) for record in kept)


def test_the_terminal_shows_the_replay_line_unbroken(run_directory: Path) -> None:
    printed = summary_text(run_directory, width=40)
    assert (
        f"  barrier-tck replay {run_directory}/trials/00006/plan.json --system reference-spark\n" in printed
    )


def test_the_terminal_leads_with_the_verdict_and_the_counts(run_directory: Path) -> None:
    printed = summary_text(run_directory)
    assert printed.startswith("✗ INVALID  flights on reference-spark, seed 20260301")
    assert "12 trials: 10 valid, 1 unknown, 1 invalid; 15 of 16 faults fired" in printed
    assert printed.index("trial 6, exactly-once-output") < printed.index("trial 9, faults-fired")


def test_a_campaign_that_is_worse_than_its_trials_says_so_and_does_not_count_none(tmp_path: Path) -> None:
    records = [record_of(trial) for trial in (0, 1)]
    campaign = campaign_of(records, verdict=Verdict.UNKNOWN)
    page = Page(html.render(load_run(write_run(tmp_path / "run", records, campaign))))
    assert "? Unknown as a whole, though all 2 trials are valid" in page.text
    assert "the campaign's record says so, and none of its trials does: see the note." in page.text
    assert "Unknown: 0 of" not in page.text


def test_every_report_says_at_once_why_a_campaign_of_valid_trials_is_unknown(tmp_path: Path) -> None:
    records = [record_of(trial) for trial in (0, 1)]
    missing = Finding(
        "sometimes-duplicates", ("ALO-2",), Verdict.UNKNOWN, "no duplicate was seen; run more trials"
    )
    campaign = campaign_of(records, verdict=Verdict.UNKNOWN, findings=(missing,))
    run = load_run(write_run(tmp_path / "run", records, campaign))
    title, why = (
        "Unknown as a whole, though all 2 trials are valid",
        "no duplicate was seen; run more trials (ALO-2).",
    )
    assert f"{title} {why}" in Page(html.render(run)).text
    printed = " ".join(summary_text(run.directory).split())
    assert f"{title}: {why}" in printed
    assert "did not fire" not in printed, "no reason that was none"
    assert f"{title}: {why}" in step_summary(run).replace("\\", "")


def test_an_unknown_verdict_says_why_for_how_many_trials(tmp_path: Path) -> None:
    def unknown(trial: int, checker: str, summary: str) -> TrialRecord:
        found = (Finding(checker, ("CAM-3",), Verdict.UNKNOWN, summary),)
        return msgspec.structs.replace(record_of(trial), verdict=Verdict.UNKNOWN, findings=found)

    records = [
        record_of(0),
        unknown(1, "faults-fired", "a fault did not fire"),
        unknown(2, "faults-fired", "a fault did not fire"),
        unknown(3, "snapshot-formula", CRASHED),
        unknown(4, NOT_RUN_CHECKER, "no room"),
    ]
    printed = summary_text(write_run(tmp_path / "run", records), width=200)
    assert (
        "No verdict: in 2 trials what they are about did not happen, in 1 trial a checker crashed, 1 trial could not "
        "be run. It is not a pass."
    ) in printed


def test_of_a_finding_only_what_was_counted_is_shown(tmp_path: Path) -> None:
    counts = {"expected": 20, "lost": 0, "wrong_sum": 3}
    found = (Finding("exactly-once-output", ("SNK-1",), Verdict.INVALID, "it is wrong", counts),)
    record = msgspec.structs.replace(record_of(0), verdict=Verdict.INVALID, findings=found)
    run_directory = write_run(tmp_path / "run", [record])
    printed = summary_text(run_directory)
    assert "expected: 20, wrong sum: 3" in printed
    assert "lost: 0" not in printed
    shown = Page(html.render(load_run(run_directory))).text
    assert "expected 20 wrong sum 3" in shown


def test_the_summary_counts_what_was_tried_and_measured_in_plain_words(run_directory: Path) -> None:
    printed = summary_text(run_directory, width=200)
    assert re.search(
        r"kinds of faults tried per phase: \d+ of \d+ possible combinations \(\d+ phases × \d+ kinds of fault\)",
        printed,
    )
    assert re.search(r"\d+ further clauses were not checked by this campaign", printed)
    assert re.search(r"measured +median +max +times measured +in trials", printed)
    assert "alignment of a snapshot " in printed
    assert "_ms" not in printed


def test_an_empty_run_is_never_called_valid(tmp_path: Path) -> None:
    run_directory = write_run(tmp_path / "run", [], campaign_of([], verdict=Verdict.VALID, interrupted=True))
    run = load_run(run_directory)
    page = Page(html.render(run))
    assert "? Nothing was checked" in page.text
    assert "None, for nothing was checked." in page.text
    assert "No clause was checked." in page.text
    headline = page.text[: page.text.index("Findings")]
    assert not re.search(r"✓|Valid:", headline)
    assert sum(tag == "script" for tag, _ in page.tags) == 1, "no chart, so no plotly.js"
    assert as_object(run)["verdict"] == "unknown"
    (suite,) = junitparser.JUnitXml.fromstring(as_junit(run).encode())
    assert (suite.tests, suite.errors) == (1, 1)
    printed = summary_text(run_directory)
    assert printed.startswith("? UNKNOWN")
    assert "Nothing was checked." in printed


def test_an_interrupted_run_says_so_and_counts_what_finished(tmp_path: Path) -> None:
    records = [record_of(0), record_of(1)]
    run_directory = write_run(tmp_path / "run", records, campaign_of(records, interrupted=True))
    page = Page(html.render(load_run(run_directory)))
    assert "Interrupted. The campaign was stopped before its end" in page.text
    assert "2 trials 2 valid" in page.text
    assert "interrupted: only finished trials are counted" in summary_text(run_directory)
    assert as_object(load_run(run_directory))["interrupted"] is True


def test_a_valid_run_says_what_was_checked(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [record_of(0), record_of(1)]))
    page = Page(html.render(run))
    assert "✓ Valid: all 2 trials" in page.text
    assert "None: no checker found a violation" in page.text
    assert "clauses were not checked in this campaign" in page.text
    assert as_junit(run).count("<failure") == as_junit(run).count("<error") == 0


def test_a_trial_worse_than_its_findings_is_a_finding_of_its_own(tmp_path: Path) -> None:
    record = msgspec.structs.replace(
        record_of(0), verdict=Verdict.UNKNOWN, end="stuck", end_reason="no progress"
    )
    run = load_run(write_run(tmp_path / "run", [record]))
    assert "The trial ended stuck: no progress" in Page(html.render(run)).text
    (suite,) = junitparser.JUnitXml.fromstring(as_junit(run).encode())
    assert suite.errors == 1


def test_many_findings_are_cut_and_the_cut_is_mentioned(tmp_path: Path) -> None:
    records = [
        msgspec.structs.replace(record_of(6), trial=trial, snapshots=(), checkpoints=())
        for trial in range(40)
    ]
    run_directory = write_run(tmp_path / "run", records)
    page = Page(html.render(load_run(run_directory)))
    assert "15 more in report.json." in page.text
    assert len(as_object(load_run(run_directory))["findings"]) == 40
    assert "... and 35 findings more" in summary_text(run_directory)


def test_three_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    run_directory = write_run(tmp_path / "run", [record_of(6)])
    before = set(run_directory.iterdir())
    for _ in range(2):
        paths = write_reports(load_run(run_directory))
        assert set(run_directory.iterdir()) - before == {paths.html, paths.json, paths.junit}
    assert json.loads(paths.json.read_text())["verdict"] == "invalid"
    assert paths.html.read_text().startswith("<!doctype html>")
    assert paths.html.name == "report.html"
    assert paths.junit.name == "junit.xml"


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    run_directory = write_run(tmp_path / "run", [record_of(6)])
    first = [path.read_bytes() for path in _written(run_directory)]
    assert [path.read_bytes() for path in _written(run_directory)] == first


def _written(run_directory: Path) -> tuple[Path, ...]:
    paths = write_reports(load_run(run_directory))
    return paths.html, paths.json, paths.junit


def test_nothing_is_written_if_rendering_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_directory = write_run(tmp_path / "run", [record_of(6)])
    before = sorted(run_directory.rglob("*"))

    def broken(run: Any, cuts: Any) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr("barrier_tck.reports.write.render", broken)
    with pytest.raises(RuntimeError, match="no page"):
        write_reports(load_run(run_directory))
    assert sorted(run_directory.rglob("*")) == before


def test_a_report_that_cannot_be_written_leaves_no_half_file(tmp_path: Path) -> None:
    run_directory = write_run(tmp_path / "run", [record_of(6)])
    (run_directory / "report.json").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"cannot write .*report\.json"):
        write_reports(load_run(run_directory))
    assert not list(run_directory.glob(".report*"))


def test_the_contents_list_names_each_section_and_only_those_that_are_there(page: Page) -> None:
    source = page.html
    links = re.findall(r'<a href="#([a-z]+)">', source.partition("<nav>")[2].partition("</nav>")[0])
    assert links == re.findall(r'<section id="([a-z]+)">', source)


def test_a_finding_names_the_faults_that_struck_in_its_trial(page: Page) -> None:
    findings = page.text[page.text.index("Findings, worst first") : page.text.index("Trials Trial Verdict")]
    (struck,) = [fault for fault in record_of(INVALID_TRIAL).faults if fault.outcome == "fired"]
    assert f"faults {struck.label} {struck.trigger}" in findings


def test_a_matrix_has_a_row_for_each_fault_so_that_many_fit(page: Page) -> None:
    matrix = page.html.partition('<table class="matrix')[2].partition("</table>")[0]
    heads = re.findall(r"<th[^>]*>(?:<span>)?([^<]+)", matrix)
    assert heads[0] == "Fault" and "alignment" in heads and "kill executor" not in heads


def test_a_certificate_names_the_broken_clause_and_the_others_as_also() -> None:
    fixture = ROOT / "tests" / "fixtures" / "0.1.0" / "certificates" / "naive-failed.json"
    certificate = read_certificate(fixture)
    failed = next(one for one in certificate.outcomes if one.status == "failed")
    failed = msgspec.structs.replace(failed, clauses=("BCK-1", "SNP-1", "SNP-2"), violated="SNP-1")
    told = Page(render_certificate(msgspec.structs.replace(certificate, outcomes=(failed,)))).text
    assert f"✗ failed {failed.name} SNP-1 Also BCK-1 SNP-2 {failed.text}" in told
    alone = msgspec.structs.replace(failed, clauses=("SNP-1",), not_asked={"what it needs": "it never is"})
    told = Page(render_certificate(msgspec.structs.replace(certificate, outcomes=(alone,)))).text
    assert "Also" not in told
    assert "Not asked: what it needs; it never is." in told


def test_a_certificate_fits_on_a_phone_and_lists_its_contents() -> None:
    fixture = ROOT / "tests" / "fixtures" / "0.1.0" / "certificates" / "naive-failed.json"
    source = render_certificate(read_certificate(fixture))
    assert source.count("<table") == source.count('<table class="stacks">') > 1, "rows become blocks"
    links = re.findall(r'<a href="#([a-z]+)">', source.partition("<nav>")[2].partition("</nav>")[0])
    assert links == re.findall(r'<section id="([a-z]+)">', source)
    assert " UTC</p>" in source


TEMPLATES = sorted((ROOT / "reports" / "templates").glob("*.html.j2"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_every_table_fits_on_a_phone(template: Path) -> None:
    """Rows become blocks, or a matrix is scrolled by itself; otherwise the page is wider than its cards."""
    source = template.read_text()
    for before, classes in re.findall(r"(.{0,18})<table(?: class=\"([^\"]*)\")?", source):
        assert "stacks" in classes or (classes.startswith("matrix") and before.endswith('<div class="wide">'))


@pytest.mark.parametrize("name", ["certificate", "conformance", "comparison"])
def test_a_long_page_lists_its_contents(name: str) -> None:
    source = (ROOT / "reports" / "templates" / f"{name}.html.j2").read_text()
    links = re.findall(r'<a href="#([a-z-]+)">', source.partition("<nav>")[2].partition("</nav>")[0])
    assert links == re.findall(r'<section id="([a-z-]+)">', source)
