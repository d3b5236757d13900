"""On a telephone and on a small screen, pages are read without scrolling to the side; grain: a real browser.

A page stands in a frame of that width, and the browser says how wide its content is. What is wider than a page, for
instance a table, scrolls by itself.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from barrier_tck.harness.cli import main as cli
from tests.test_tidy import ROOT

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HUNG_S = 600
"""After so many seconds the browser counts as hung."""
FRAME = """\
<!doctype html><meta charset="utf-8"><title>not loaded</title>
<iframe id="page" width="{width}" height="900" src="{page}" style="border: 0"></iframe>
<script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const root = frame.contentDocument.documentElement;
  const wide = [...root.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > root.clientWidth);
  const seen = wide.filter(one => !wide.some(other => other !== one && other.contains(one)));
  const named = seen.map(one => one.tagName + "." + one.className);
  document.title = [root.scrollWidth, root.clientWidth, ...named].join(" ");
}};
</script>
"""
ECHO = "examples.echo_system.echo:LossyEchoSystem"
WRONG = "barrier_tck.harness.reference.mutants.hints_and_lives_bugs:ScansIntoOneBuffer"
CONTRACT = ("--level", "contract", "--no-strength", "--only", "what-differs-stays-apart")
COMMANDS = {
    "valid": (0, ("campaign", "--trials", "12", "--seed", "1", "--no-store")),
    "invalid": (1, ("campaign", "--system", ECHO, "--trials", "20", "--seed", "1", "--no-store")),
    "certified": (0, ("certify", "heap", *CONTRACT)),
    "refused": (1, ("certify", WRONG, *CONTRACT)),
    "conformance": (1, ("conformance", "--system", ECHO)),
}
"""What makes pages: the exit code of each command, and the command."""


@pytest.fixture(scope="module", name="pages")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Return the pages of each command."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        for name, (code, command) in COMMANDS.items():
            out = tmp_path_factory.mktemp(name)
            assert cli.run([*command, "--out", str(out)]) == code, name
            made[name] = sorted(out.rglob("*.html"))
        out = tmp_path_factory.mktemp("index")
        both = [str(tmp_path_factory.getbasetemp() / f"{name}0") for name in ("valid", "invalid")]
        assert cli.run(["nights", *both, "--out", str(out)]) in (0, 1, 2)
        made["nights"] = sorted(out.rglob("*.html"))
    return made


def widths(page: Path, width: int, directory: Path) -> tuple[int, int, str]:
    """Return how wide the content of a page is, how wide the page, and what reaches beyond it."""
    assert BROWSER is not None
    frame = directory / "frame.html"
    frame.write_text(FRAME.format(width=width, page=page.as_uri()))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += [
        "--window-size=1600,1000",
        "--virtual-time-budget=20000",
        f"--user-data-dir={directory}",
        "--dump-dom",
    ]
    shown = subprocess.run(
        [BROWSER, *options, frame.as_uri()], capture_output=True, text=True, check=True, timeout=HUNG_S
    )
    found = re.search(r"<title>(\d+) (\d+) ?([^<]*)</title>", shown.stdout)
    assert found is not None, f"{page} was not loaded"
    return int(found[1]), int(found[2]), found[3]


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", [*COMMANDS, "nights"])
def test_a_page_is_no_wider_than_its_window(
    name: str, width: int, pages: dict[str, list[Path]], tmp_path: Path
) -> None:
    assert pages[name], "the command has made no page"
    for page in pages[name]:
        content, window, wide = widths(page, width, tmp_path)
        assert content <= window, f"{page.name} is {content} wide in {window}: {wide}"


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_page_that_is_too_wide_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text('<!doctype html><body><p class="long" style="width: 500px">text</p>')
    content, window, wide = widths(page, 390, tmp_path)
    assert content > window and wide == "P.long"
