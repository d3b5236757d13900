"""A certificate as JUnit XML, for continuous integration: a test case per property."""

from __future__ import annotations

from xml.etree import ElementTree

from barrier_tck.harness.certify.engine.certificate import Certificate, replay_line
from barrier_tck.reports.wording import printable


def certificate_as_junit(certificate: Certificate) -> str:
    """Return one test suite; what could not be checked is an error, what was left out is skipped."""
    counts = {
        name: sum(one.status == status for one in certificate.outcomes)
        for name, status in (("failures", "failed"), ("errors", "unknown"), ("skipped", "skipped"))
    }
    about = {
        "name": printable(f"{certificate.kind} {certificate.target}"),
        "tests": str(len(certificate.outcomes)),
        "time": f"{certificate.seconds:.2f}",
        "timestamp": certificate.started_at,
    }
    suite = ElementTree.Element("testsuite", about | {name: str(count) for name, count in counts.items()})
    facts = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("seed", str(certificate.seed)),
        ("suite", certificate.suite_version),
        ("distribution", certificate.distribution),
        ("verdict", certificate.verdict),
    ):
        ElementTree.SubElement(facts, "property", name=name, value=printable(value))
    for one in certificate.outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=one.level, name=one.name, time=f"{one.seconds:.2f}"
        )
        kind = {"failed": "failure", "unknown": "error", "skipped": "skipped"}.get(one.status)
        if kind is not None:
            what = ElementTree.SubElement(case, kind, message=printable(one.reason))
            steps = [f"{number}. {step}" for number, step in enumerate(one.sequence, 1)]
            repeat = replay_line(one, certificate.target + certificate.arguments)
            what.text = printable("\n".join([*steps, *filter(None, (repeat,))]))
    document = ElementTree.Element("testsuites")
    document.append(suite)
    ElementTree.indent(document)
    return ElementTree.tostring(document, encoding="unicode", xml_declaration=True) + "\n"
