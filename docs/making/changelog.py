"""The fragments in changelog.d/ as a section of CHANGELOG.md; `make changelog` gathers them."""

from __future__ import annotations

import datetime
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("added", "changed", "fixed")
FRAGMENT = re.compile(rf"(\d*)([\w-]*)\.({'|'.join(KINDS)})\.md")


def version(root: Path = ROOT) -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def fragments(root: Path = ROOT) -> dict[str, list[Path]]:
    """The fragments of each kind, in the order of their numbers; those without one come last."""
    found: dict[str, list[tuple[float, str, Path]]] = {kind: [] for kind in KINDS}
    for path in (root / "changelog.d").glob("*.md"):
        match = FRAGMENT.fullmatch(path.name)
        if match is None:
            raise SystemExit(f"{path} is not called NAME.{'|'.join(KINDS)}.md; rename it")
        found[match[3]].append((float(match[1] or "inf"), path.name, path))
    return {kind: [path for *_, path in sorted(each)] for kind, each in found.items()}


def section(title: str, root: Path = ROOT) -> str:
    """All fragments below one heading, an item for each paragraph; nothing if there are none."""
    lines = []
    for kind, paths in fragments(root).items():
        texts = [path.read_text(encoding="utf-8").strip() for path in paths]
        paragraphs = [each for text in texts for each in re.split(r"\n\s*\n", text) if each]
        items = [f"- {paragraph}".replace("\n", "\n  ") for paragraph in paragraphs]
        lines += [f"### {kind.capitalize()}", "", *items, ""] if items else []
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


def fold(root: Path, title: str) -> None:
    """Put a section of all fragments at the top of CHANGELOG.md and delete them."""
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    new = section(title, root)
    if not new:
        raise SystemExit("changelog.d has no fragments; there is nothing to gather")
    if f"\n## {title.split()[0]} " in text:
        raise SystemExit(f"{title.split()[0]} is in CHANGELOG.md already; raise the version first")
    head, mark, older = text.partition("\n## ")
    changelog.write_text(f"{head.rstrip()}\n\n{new}{mark}{older}".rstrip() + "\n", encoding="utf-8")
    for paths in fragments(root).values():
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    title = f"{version()} ({datetime.datetime.now(datetime.UTC).date()})"
    if sys.argv[1:] == ["--draft"]:
        sys.stdout.write(section(title))
    else:
        fold(ROOT, title)
