"""The page in a real browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.report.browser import INSTALLED, Browser
from tests.report.conftest import planned
from tests.report.test_live import Asked
from tunefree.cli import main

pytestmark = pytest.mark.skipif(
    not INSTALLED, reason="needs a browser: apt-get install chromium chromium-driver"
)
CURVES = "document.getElementById('w0-curves')"
ARMS = f"[...{CURVES}.querySelectorAll('svg g.arm')].map(g => g.dataset.arm)"
TICKS = f"[...{CURVES}.querySelectorAll('.plot text.soft')].map(t => t.textContent)"
OVERFLOW = "return document.documentElement.scrollWidth - innerWidth"
EVIL = "<img src=x onerror=document.title='broken'></script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def address(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "page.html"
    verdict = {"claim": 1, "sentence": EVIL, "verdict": "does not hold", "numbers": {"gap": -0.1}}
    (runs / "verdicts.json").write_text(json.dumps([verdict]))
    assert main(["report", str(runs), "-o", str(out), "--title", EVIL]) == 0
    (runs / "verdicts.json").unlink()
    return out.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Browser]:
    """Freshly loaded, light and wide; nothing may be complained about by the end of a test."""
    browser.dark(False)
    browser.resize(1000, 900)
    browser.requests()
    browser.open(address)
    yield browser
    assert browser.console() == []


def test_all_is_there_and_nothing_is_fetched(page: Browser, address: str) -> None:
    figures = page.run("return [...document.querySelectorAll('figure')].map(f => f.id)")
    assert figures == [
        *("w0-curves", "w0-sensitivity-eta", "w0-traffic", "w0-staleness", "w0-classes"),
    ]
    assert page.run("return document.querySelectorAll('figure .plot svg[aria-label]').length") == 5
    assert page.run("return document.querySelectorAll('h1').length") == 1
    assert page.run("return document.querySelectorAll('table').length") >= 8
    assert page.run("return document.querySelectorAll('tbody tr > th[scope=row]').length") > 20
    assert sorted(page.run(f"return {ARMS}")) == [
        *("ComParFreFL", "FedAvg, tuned", "Late", "PAdaMFed", "Too far (diverged)"),
    ]
    outside = [url for url in page.requests() if not url.startswith(("data:", "chrome"))]
    assert outside == [address]


def test_labels_stay_text(page: Browser) -> None:
    assert page.run("return document.title") == EVIL
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert EVIL in page.run("return document.getElementById('claims-table').textContent")


def test_an_arm_is_switched_off_and_on_by_keyboard(page: Browser) -> None:
    button = (
        f"[...{CURVES}.querySelectorAll('.legend button')].find(b => b.textContent == 'PAdaMFed')"
    )
    page.run(f"{button}.focus()")
    for shown in (False, True):
        page.press(" ")
        assert ("PAdaMFed" in page.run(f"return {ARMS}")) is shown
        assert page.run(f"return {button}.getAttribute('aria-pressed')") == str(shown).lower()


def test_axes_and_log_scales(page: Browser) -> None:
    def choose(key: str, value: str) -> None:
        change = "e.dispatchEvent(new Event('change'))"
        page.run(
            f"const e = document.getElementById('w0-curves-{key}'); e.value = '{value}'; {change}"
        )

    label = f"return [...{CURVES}.querySelectorAll('.plot text')].map(t => t.textContent).join('|')"
    before = page.run(f"return {TICKS}")
    choose("y", "loss")
    choose("x", "bits_up")
    assert "test loss" in page.run(label)
    assert "uplink bits, all clients" in page.run(label)
    page.run("document.getElementById('w0-curves-ylog').click()")
    page.run("document.getElementById('w0-curves-xlog').click()")
    assert "test loss, log scale" in page.run(label)
    assert page.run(f"return {TICKS}") != before
    paths = page.run(f"return [...{CURVES}.querySelectorAll('path')].map(p => p.getAttribute('d'))")
    assert not [path for path in paths if "NaN" in path or "Infinity" in path]
    choose("x", "time")
    assert page.run(f"return {ARMS}") == ["Late"]


def test_values_are_read_by_pointer_and_arrow_keys(page: Browser) -> None:
    readout = f"return {CURVES}.querySelector('.readout').textContent"
    page.run(f"{CURVES}.querySelector('.plot svg').focus()")
    page.press("\ue014")  # right arrow
    assert page.run(readout).startswith("rounds: 0")
    page.press("\ue014")
    text = page.run(readout)
    assert text.startswith("rounds: 2")
    assert "PAdaMFed: 0." in text
    assert " to " in text
    page.run(
        f"const s = {CURVES}.querySelector('.plot svg'), r = s.getBoundingClientRect();"
        "s.dispatchEvent(new PointerEvent('pointermove', {clientX: r.right, clientY: r.top + 50}))"
    )
    assert page.run(readout).startswith("rounds: 8")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1000])
def test_it_fits_a_phone_and_the_dark(page: Browser, dark: bool, width: int) -> None:
    page.dark(dark)
    page.resize(width, 800)
    page.open(page.run("return location.href"))
    assert page.run(OVERFLOW) <= 0
    paper, ink = page.run(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color].map("
        "c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765)"
    )
    assert (paper < 0.2 and ink > 0.8) if dark else (paper > 0.9 and ink < 0.2)
    right = page.run(
        "return Math.max(...[...document.querySelectorAll('.plot svg')].map("
        "s => s.getBoundingClientRect().right))"
    )
    assert right <= width


def test_paper_is_white_and_has_no_buttons(page: Browser) -> None:
    page.develop("Emulation.setEmulatedMedia", media="print")
    seen = "return [...document.querySelectorAll('.controls, .export')].filter(e => e.offsetHeight)"
    assert page.run(seen) == []
    page.develop("Emulation.setEmulatedMedia", media="")
    assert page.paper().startswith(b"%PDF")


def test_figures_are_saved_as_svg_png_and_csv(page: Browser) -> None:
    page.dark(True)  # files are for paper all the same
    saved = page.wait(
        """
        const kept = [], make = URL.createObjectURL;
        URL.createObjectURL = blob => { kept.push(blob); return make.call(URL, blob); };
        HTMLAnchorElement.prototype.click = function () { kept.push(this.download); };
        for (const b of document.querySelectorAll('#w0-curves .export button')) b.click();
        const read = blob => new Promise(r => {
            const f = new FileReader(); f.onload = () => r(f.result); f.readAsDataURL(blob); });
        const ready = setInterval(async () => {
            if (kept.filter(k => typeof k === 'string').length < 3) return;
            clearInterval(ready);
            done(await Promise.all(kept.map(k => typeof k === 'string' ? k : read(k))));
        }, 20);
        """
    )
    files = {
        name: base64.b64decode(data.split(",", 1)[1])
        for data, name in pairwise(saved)
        if name.startswith("w0-curves.") and data.startswith("data:")
    }
    assert set(files) == {"w0-curves.svg", "w0-curves.png", "w0-curves.csv"}
    svg = files["w0-curves.svg"].decode()
    assert 'fill="#ffffff"' in svg
    assert "var(" not in svg
    assert "rgb(0, 114, 178)" in svg  # the first arm's colour on paper, not the one in the dark
    assert files["w0-curves.png"].startswith(b"\x89PNG")
    assert (
        files["w0-curves.csv"].decode().startswith("arm,round,accuracy mean,lowest,highest,seeds")
    )


def test_the_live_page_redraws_and_keeps_what_was_chosen(browser: Browser, tmp_path: Path) -> None:
    rows = iter(planned(tmp_path / "a.sqlite", system__T=40))
    for _ in range(3):
        next(rows)
    asked = Asked(tmp_path)
    browser.console()
    try:
        browser.open(f"http://127.0.0.1:{asked.port}/")
        browser.run("document.getElementById('w0-curves-ylog').click()")
        for _ in rows:
            pass
        browser.wait(
            "const ready = setInterval(() => { if (document.getElementById('live').textContent"
            ".startsWith('no run is')) { clearInterval(ready); done(true); } }, 50)"
        )
        assert browser.run(f"return {TICKS}.includes('40')")
        pressed = "return document.getElementById('w0-curves-ylog').getAttribute('aria-pressed')"
        assert browser.run(pressed) == "true"
        assert "log scale" in browser.run(f"return {CURVES}.textContent")
        assert browser.console() == []
        browser.open("about:blank")
    finally:
        asked.close()
