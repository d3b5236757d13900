"""How Sphinx makes the documentation site of the pages in this folder: ``python3 -m tox -e docs``.

The pages stay as they are read on a forge. Here are the rules that a site needs besides: which version it describes,
and that what is no page is linked to where it is in the repository.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

HERE = Path(__file__).parent
ROOT = HERE.parent
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
release = version = _PROJECT["version"]
SOURCE = f"{_PROJECT['urls']['Homepage']}/blob/v{release}/"
"""Where the files of this version are."""

extensions = ["myst_parser", "sphinx_external_toc", "sphinxcontrib.mermaid"]
external_toc_path = "_toc.yml"
exclude_patterns = ["_static"]
# Two dashes are the beginning of an option.
smartquotes = False
# Anchors are those that forges give to headings, down to the last level.
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
mermaid_version = "11.12.1"

html_theme = "furo"
# It is on every page, at every width.
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

_log = logging.getLogger(__name__)
_LINK_OUT = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]+)?\)")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")


def _link_to_source(app: Sphinx, page: str, text: list[str]) -> None:
    """Let links that leave the folder lead to the repository."""

    def moved(link: re.Match[str]) -> str:
        target = (Path(app.env.doc2path(page)).parent / link["path"]).resolve()
        if target.is_relative_to(app.srcdir):
            return link[0]
        if not target.exists():
            _log.warning("links to a file that does not exist: %s", link["path"], location=page)
        return f"]({SOURCE}{target.relative_to(ROOT).as_posix()}{link['anchor'] or ''})"

    text[0] = _LINK_OUT.sub(moved, text[0])


def _link_paths(_app: Sphinx, page: nodes.document) -> None:
    """Let the names of files of the repository, which are code on a page, lead there, too."""
    for code in list(page.findall(nodes.literal)):
        path = code.astext()
        inside = "/" in path and _PATH.fullmatch(path) and (ROOT / path).exists()
        if inside and not isinstance(code.parent, nodes.reference):
            code.replace_self(nodes.reference("", "", code.deepcopy(), refuri=SOURCE + path))


def setup(app: Sphinx) -> None:
    """Take part in the build."""
    app.connect("source-read", _link_to_source)
    app.connect("doctree-read", _link_paths)
