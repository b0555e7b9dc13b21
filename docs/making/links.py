"""Where a file of the repository is on the site, and links to it.

Pages link to files by their paths in the repository, so that links also work there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PAGES = {  # a file or folder outside docs/ -> its page
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "architecture.md",
    "evidence/benchmarks/README.md": "benchmarks.md",
    "deploy": "deploy.md",
    "examples": "examples.md",
    "cards": "methods/index.md",
}
BENCHMARKS = "evidence/benchmarks"  # its PNG files are beside their page
BARS = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_site(path: str) -> str:
    """The page of a file in the repository, or nothing if it is not on the site.

    >>> on_site("cards/polarfl.md"), on_site("docs/python.md"), on_site("pyproject.toml")
    ('methods/polarfl.md', 'python.md', '')
    """
    where = PurePosixPath(path)
    if path in PAGES:
        return PAGES[path]
    if where.parts[0] == "docs":
        return str(where.relative_to("docs"))
    if where.parts[0] == "cards":
        return f"methods/{where.name}"
    if where.parts[0] in ("deploy", "examples"):
        return f"{where.parts[0]}.md"
    if path.startswith(BENCHMARKS) and where.suffix == ".png":
        return path.removeprefix("evidence/")
    return ""


def in_repository(uri: str) -> str:
    """The file that a page of the site is made from.

    >>> in_repository("methods/polarfl.md"), in_repository("python.md")
    ('cards/polarfl.md', 'docs/python.md')
    """
    if uri.startswith("methods/") and uri != "methods/index.md":
        return f"cards/{PurePosixPath(uri).name}"
    own = f"docs/{uri}"
    others = {page: path for path, page in PAGES.items()}
    return others.get(uri, own) if not (ROOT / own).exists() else own


def for_site(markdown: str, uri: str) -> str:
    """The text of a page with links to files of the repository pointing to their pages.

    Bars in the code of a table, which are escaped elsewhere, are not escaped on the site.
    """
    source = posixpath.dirname(in_repository(uri))

    def lead(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = posixpath.normpath(posixpath.join(source, target))
        if "://" in target or not (ROOT / path).exists() or not on_site(path):
            return match[0]
        return posixpath.relpath(on_site(path), posixpath.dirname(uri) or ".") + anchor

    plain = BARS.sub(lambda match: match[0].replace("\\|", "|"), markdown)
    return LINK.sub(lead, plain)
