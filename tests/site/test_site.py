"""The site builds without a warning, needs nothing from elsewhere, and holds what it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tunefree
from docs.making import pages
from tests.variants import METHODS

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning fails it."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page makes a browser fetch, and the anchors it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.classes: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found.get(LOADS.get(tag, "")) or ""]
        self.ids.add(found.get("id") or "")
        self.classes |= set((found.get("class") or "").split())


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    seen = list(site.rglob("*.html"))
    assert len(seen) > len(METHODS) + 20
    for page in seen:
        loaded = Loaded(page)
        assert [a for a in loaded.addresses if a.startswith(("http:", "https:", "//"))] == [], page
        assert not loaded.classes & {"mermaid", "arithmatex"}, page  # would fetch their scripts
        assert "@import" not in page.read_text(encoding="utf-8")
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_method_has_a_page_that_the_search_finds(site: Path) -> None:
    index: dict[str, Any] = json.loads((site / "search" / "search_index.json").read_text())
    texts = {each["location"]: each["text"] for each in index["docs"]}
    for name in METHODS:
        assert name in texts[f"methods/{name}.html"]


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    ids = set().union(*(Loaded(page).ids for page in (site / "api").glob("*.html")))
    for name in set(tunefree.__all__) - {"__version__"}:
        assert f"tunefree.{name}" in ids
    assert "__version__" in ids
    assert "tunefree.partition.dirichlet" in ids


def test_train_is_shown_with_its_arguments_and_an_example(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api" / "training.html").read_text(encoding="utf-8"))
    shown = text.partition("Train the model on the clients' data")[2].partition("A training run")[0]
    for word in ("local_epochs", "commit_every", "polarfl", "Examples", "run.history[-1]"):
        assert word in shown


def test_search_has_what_it_needs_where_there_is_no_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text().startswith("var __index")
    assert "making/iframe-worker.js" in Loaded(site / "index.html").addresses


def test_the_search_finds_pages_that_were_opened_as_files(site: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000")
    page = f"file://{site}/index.html?q=polar"
    command = [browser, *flags, f"--user-data-dir={site}-browser", "--dump-dom", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.search(r"[1-9]\d* matching documents", done.stdout)
    assert "methods/polarfl.html" in done.stdout.partition("matching documents")[2]


def test_the_pages_that_are_made_are_all_there(site: Path) -> None:
    for uri in pages.made():
        assert (site / uri).with_suffix(".html").exists(), uri
    for picture in ("pictures/polar.svg", "benchmarks/bench-A.png", "digits.png"):
        assert (site / picture).stat().st_size > 1000
    assert not list((site / "making").glob("*.py"))
