"""Builds the documentation site, and shows that the build can fail: ``python3 -m tox -e docs``.

It runs where Sphinx is installed, and the package is not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTENTS = "root: index\nentries:\n  - file: other\n"
RIGHT = "# Right\n\n[Other](other.md#a-heading), [code](../../../tox.ini), `docs/conf.py`\n"
OTHER = "# Other\n\n## A heading\n\nText.\n"
WRONG = {
    "_toc.yml": CONTENTS + "  - file: deep\n  - file: gone\n",
    "index.md": """# Wrong

[a page](another.md), [its heading](other.md#no-heading), [a heading here](#nowhere), [a file](../../../tox.toml)
""",
    "lost.md": "# Lost\n",
    "deep.md": "# Deep\n\n### Too deep\n",
}
WARNINGS = {
    "a link to a page that is not there": "another.md",
    "a link to a heading that is not there": "no-heading",
    "a link to a heading of the same page": "nowhere",
    "a link to a file that is not there": "../../../tox.toml",
    "a page in no table of contents": "lost.md: WARNING: document isn't included in any toctree",
    "a page of the contents that is not there": "gone",
    "a heading two levels down": "deep.md:3: WARNING",
}
"""What is wrong with those pages -> what a build says of it."""


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site of the pages by the rules of ``docs/conf.py``; a warning is an error."""
    rules = ROOT / "docs"
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-c", rules, pages, site],
        capture_output=True,
        text=True,
        check=False,
    )


def of_pages(files: dict[str, str]) -> tuple[str, str]:
    """Build a small site with these files; return its first page, empty if the build failed, and what was said."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as directory:
        pages, site = Path(directory) / "pages", Path(directory) / "site"
        pages.mkdir()
        for name, text in ({"_toc.yml": CONTENTS, "index.md": RIGHT, "other.md": OTHER} | files).items():
            (pages / name).write_text(text)
        built = build(pages, site)
        return "" if built.returncode else (site / "index.html").read_text(), built.stderr


def problems_of(site: Path) -> list[str]:
    """Return what is wrong with the pages of a site."""
    version = f">{PROJECT['name']} {PROJECT['version']}<"
    problems = []
    for source in (ROOT / "docs").rglob("*.md"):
        name = source.relative_to(ROOT / "docs").with_suffix(".html")
        page = (site / name).read_text()
        shown = page.partition("<body>")[2]
        if version not in shown:
            problems.append(f"{name} does not say which version it describes")
        if shown.count("<table") != shown.count('<div class="table-wrapper'):
            problems.append(f"{name} has a table that widens the page, where it is narrow")
    return problems


def main(site: Path) -> int:
    """Return 0 if the site is built and right, and a build with mistakes fails and names each of them."""
    (ROOT / "build").mkdir(exist_ok=True)
    built = build(ROOT / "docs", site)
    print(built.stdout, built.stderr, sep="", end="")
    if built.returncode != 0:
        return 1
    problems = problems_of(site)
    page, said = of_pages({})
    version = f"{PROJECT['urls']['Homepage']}/blob/v{PROJECT['version']}/"
    for link in (f'href="{version}tox.ini"', f'href="{version}docs/conf.py"', 'href="other.html#a-heading"'):
        if link not in page:
            problems.append(f"a site without a mistake has no {link}\n{said}")
    page, said = of_pages(WRONG)
    if page:
        problems.append("a site with mistakes is built")
    problems += [
        f"a build does not warn of {name}:\n{said}" for name, text in WARNINGS.items() if text not in said
    ]
    print(*problems or [f"{site}/index.html; {len(WARNINGS)} kinds of mistakes fail a build"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
