"""The page in a real browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import INSTALLED, Browser
from tests.report.conftest import SEARCH, configured, planned, scores
from tests.report.test_live import Asked
from tests.report.test_sweeps import swept
from tunefree.cli import main
from tunefree.record import Facts, Summary
from tunefree.report.content import content
from tunefree.report.page import page as html

if not INSTALLED:
    pytest.skip(
        "the page in a browser; to have these tests: apt-get install chromium chromium-driver",
        allow_module_level=True,
    )
CURVES = "document.getElementById('w0-curves')"
ARMS = f"[...{CURVES}.querySelectorAll('svg g.method')].map(g => g.dataset.method)"
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
    part = {"value": 0.5, "error": 0.0123, "limit": 0.8, "side": "above", "what": EVIL}
    verdict = {
        "claim": 1,
        "sentence": EVIL,
        "verdict": "does not hold",
        "scale": "small",
        "parts": [{**part, "holds": False}, {**part, "value": None, "holds": None}],
        "numbers": {EVIL: 0.5, "gap": -0.1},
        "seeds": [3, 4],
        "why": EVIL,
        "command": EVIL,
        "finals": [{"where": "iid", "method": EVIL, "accuracy": 0.5, "spread": 0.1, "diverged": 1}],
        "tuned": {"fedavg": EVIL},
    }
    (runs / "verdicts.json").write_text(json.dumps([verdict]))
    assert main(["report", str(runs), "-o", str(out), "--title", EVIL]) == 0
    (runs / "verdicts.json").unlink()
    return out.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Browser]:
    """Freshly loaded, light and wide; a test must not leave warnings in the console."""
    browser.dark(False)
    browser.resize(1000, 900)
    browser.requests()
    browser.open(address)
    yield browser
    assert browser.console() == []


def test_everything_is_there_and_nothing_is_fetched(page: Browser, address: str) -> None:
    figures = page.run("return [...document.querySelectorAll('figure')].map(f => f.id)")
    assert figures == [
        "w0-curves",
        "w0-sensitivity-eta",
        "w0-traffic",
        "w0-staleness",
        "w0-clients",
        "w0-classes",
    ]
    assert page.run("return document.querySelectorAll('figure .plot svg[aria-label]').length") == 6
    assert page.run("return document.querySelectorAll('h1').length") == 1
    assert page.run("return document.querySelectorAll('table').length") >= 8
    assert page.run("return document.querySelectorAll('tbody tr > th[scope=row]').length") > 20
    assert sorted(page.run(f"return {ARMS}")) == [
        "ComParFreFL",
        "FedAvg, tuned",
        "Late",
        "PAdaMFed",
        "Too far (diverged)",
    ]
    outside = [url for url in page.requests() if not url.startswith(("data:", "chrome"))]
    assert outside == [address]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with long names, many settings and large numbers."""
    many = []
    for n, name in enumerate(("comparfrefl", "scaffold_m", "defedavg_niid")):
        options: dict[str, Any] = {"compressor": f"any:top:0.0{n + 1}|top:0.05|top:0.2|sign"}
        options |= {"rounds": 10**n, "concurrency": 7 * n, "batch_size": n}
        for seed, state in ((0, "done"), (1, "diverged")):
            rounds = 3 if state == "done" else 2
            bits = {"bits_up": 123_456_789_012, "bits_down": 223_456_789_012, "samples": 10**7}
            values = {f"value_{key}": count - 1 for key, count in bits.items() if key != "samples"}
            more = {"loss": 1.5, "train_loss": 1.25, "seconds": 3.5, **bits, **values}
            label = f"{name}@tuned:{options['compressor']},explicit_steps=True"
            facts: dict[str, Any] = {
                "label": label,
                "state": state,
                "settings": configured(seed, **options),
            }
            facts |= {"parameters": 21_840, "system": {"N": 50, "S": 4, "K": 3, "T": 3}}
            facts["tuning"] = {**SEARCH, "chosen": {"eta": 0.0316, "gamma": 0.001}}
            facts["reason"] = "" if state == "done" else "client 3 sent a model that is not finite"
            file = Path(f"{label}-seed{seed}-0123456789ab.sqlite")
            rows = scores(*(0.1 * t for t in range(rounds)), **more)
            many.append(Summary(file, Facts.read(facts), rows, {}, {0: 3}, {"late": 4}))
    verdicts = json.loads((Path(__file__).parents[2] / "docs/evidence/verdicts.json").read_text())
    out = tmp_path_factory.mktemp("crowded") / "page.html"
    out.write_text(html(content(many, verdicts)), encoding="utf-8")
    return out.as_uri()


def test_each_claim_unfolds(page: Browser) -> None:
    table = "document.getElementById('claims-table')"
    heads = (
        f"return [...{table}.querySelector('thead').querySelectorAll('th')].map(c => c.innerText)"
    )
    assert page.run(heads) == ["Claim", "Sentence", "Verdict", "Scale"]
    page.run(f"{table}.querySelector('summary').click()")
    details = f"{table}.querySelector('details')"
    assert page.run(f"return {details}.open")
    assert page.run(f"return {details}.querySelector('summary').textContent") == (
        "0 of 2 parts hold, 1 open"
    )
    lines = f"[...{details}.querySelectorAll(':scope tbody tr')]"
    assert page.run(f"return {lines}.map(r => [...r.cells].map(c => c.innerText))") == [
        [EVIL, "0.5 ± 0.012", "above 0.8", "no"],
        [EVIL, "no value", "above 0.8", "open"],
        ["gap", "-0.1"],
        [EVIL, "0.500 ± 0.1, 1 diverged"],
    ]
    text = page.run(f"return {details}.textContent")
    assert "Seeds: 3, 4." in text
    assert f"Tuned: fedavg to {EVIL}." in text
    assert page.run(f"return {details}.querySelector('code').textContent") == EVIL


def test_claims_unfold_for_paper_and_fold_again(page: Browser) -> None:
    shut = "return document.querySelectorAll('details:not([open])').length"
    assert page.run(shut) == 1
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run(shut) == 0
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run(shut) == 1


def test_a_promise_of_privacy_is_stated_with_what_it_does_not_cover(
    browser: Browser, tmp_path: Path
) -> None:
    said = {"epsilon": 8.0, "unit": "client", "trust": EVIL, "not_covered": "the server"}
    facts = Facts(label=EVIL, privacy=said, settings=configured())
    run = Summary(tmp_path / "private.sqlite", facts, scores(0.5, epsilon=7.25))
    path = tmp_path / "page.html"
    path.write_text(html(content([run])), encoding="utf-8")
    browser.open(path.as_uri())
    rows = "[...document.querySelectorAll('#privacy tbody tr')]"
    assert browser.run(f"return {rows}.map(row => [...row.children].map(c => c.textContent))") == [
        [EVIL, "epsilon spent", "7.25"],
        ["", "epsilon left", "0.75"],
        ["", "epsilon at most", "8"],
        ["", "unit", "client"],
        ["", "trust", EVIL],
        ["", "not covered", "the server"],
    ]


def test_a_page_of_claims_alone(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "claims.html"
    out.write_text(html(content([], [{"claim": 1, "sentence": "So it is.", "why": "No runs."}])))
    browser.open(out.as_uri())
    assert browser.run("return [...document.querySelectorAll('h2')].map(h => h.innerText)") == [
        "Claims"
    ]
    assert "No runs." in browser.run("return document.querySelector('details').textContent")
    assert browser.console() == []


def test_no_table_is_wider_than_a_screen_or_a_sheet(browser: Browser, crowded: str) -> None:
    wide = (
        "return [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth)"
    )
    browser.resize(1200, 900)
    browser.open(crowded)
    assert browser.run(f"{wide}.map(e => e.parentElement.id)") == []
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.run(f"{wide}.map(e => e.parentElement.id)") == []
    browser.resize(672, 900)  # A4 between its margins
    browser.develop("Emulation.setEmulatedMedia", media="print")
    assert browser.run(OVERFLOW) <= 0
    browser.develop("Emulation.setEmulatedMedia", media="")
    browser.resize(390, 900)
    assert browser.run(OVERFLOW) <= 0
    assert browser.run(f"{wide}.map(e => e.parentElement.id)").count("claims-table") == 0


def test_a_wide_screen_is_used(page: Browser) -> None:
    page.resize(1800, 900)
    page.open(page.run("return location.href"))
    assert page.run(OVERFLOW) <= 0
    boxes = page.run(
        "return [...document.querySelectorAll('figure, #w0-overview')].map(f => {"
        "const b = f.getBoundingClientRect(); return [f.id, b.left, b.right, b.top]})"
    )
    lefts = {name: left for name, left, _, _ in boxes}
    tops = {name: top for name, _, _, top in boxes}
    assert lefts["w0-overview"] < 100
    assert lefts["w0-curves"] > 900
    assert abs(tops["w0-overview"] - tops["w0-curves"]) < 20
    assert max(right for _, _, right, _ in boxes) > 1700
    page.resize(1000, 900)
    assert page.run(f"return {CURVES}.getBoundingClientRect().left") < 200


def test_small_differences_between_steps_look_small(browser: Browser, tmp_path: Path) -> None:
    runs = [swept(eta, 0.9 + eta / 10, label_counts=[[5] * 10]) for eta in (0.1, 0.2, 0.3)]
    out = tmp_path / "sweep.html"
    out.write_text(html(content(runs)), encoding="utf-8")
    browser.open(out.as_uri())
    plot = "document.querySelector('#w0-sensitivity-eta .plot')"
    ticks = f"return [...{plot}.querySelectorAll('text.soft')].map(t => t.textContent)"
    assert {"0", "0.2", "1", "guessing"} <= set(browser.run(ticks))
    assert browser.console() == []


def test_a_sensitivity_shows_any_score(page: Browser) -> None:
    figure = "document.getElementById('w0-sensitivity-eta')"
    words = f"return [...{figure}.querySelectorAll('.plot text')].map(t => t.textContent)"
    assert {"test accuracy", "guessing"} <= set(page.run(words))
    page.run(
        f"const e = {figure}.querySelector('select'); e.value = 'train_loss'; "
        "e.dispatchEvent(new Event('change'))"
    )
    assert "training loss" in page.run(words)
    assert "guessing" not in page.run(words)


def test_own_measures_can_be_drawn(browser: Browser, tmp_path: Path) -> None:
    more = scores(0.5, 0.6, recall=0.25)
    report = content([Summary(Path("a.sqlite"), Facts.read({"label": "x", "state": "done"}), more)])
    out = tmp_path / "own.html"
    out.write_text(html(report), encoding="utf-8")
    browser.open(out.as_uri())
    browser.run(
        "const e = document.getElementById('w0-curves-y'); e.value = 'recall'; "
        "e.dispatchEvent(new Event('change'))"
    )
    assert "recall" in browser.run(
        f"return [...{CURVES}.querySelectorAll('.plot text')].map(t => t.textContent)"
    )
    for table in ("w0-overview", "runs"):
        head = f"document.querySelector('#{table} thead').innerText"
        assert "Recall" in browser.run(f"return {head}")
    assert browser.console() == []


def test_long_names_end_in_an_ellipsis(browser: Browser, crowded: str) -> None:
    browser.resize(1200, 900)
    browser.open(crowded)
    names = (
        f"[...{CURVES}.querySelectorAll('text.direct')].map(t => [t.firstChild.data, "
        "t.querySelector('title').textContent, t.getBoundingClientRect().right, "
        "t.ownerSVGElement.getBoundingClientRect().right])"
    )
    for shown, whole, right, edge in browser.run(f"return {names}"):
        assert shown.endswith("…")
        assert whole.startswith(shown[:-1])
        assert edge - 25 < right <= edge  # as much as fits
    name = "document.querySelector('#w0-traffic text.name')"
    assert browser.run(f"return {name}.getComputedTextLength() <= {CURVES}.clientWidth")


def test_the_overview_counts_all_runs(browser: Browser, crowded: str) -> None:
    browser.open(crowded)
    cells = browser.run(
        "const t = document.querySelector('#w0-overview table'); return [t.rows[0], t.rows[1]].map("
        "r => [...r.cells].map(c => c.innerText))"
    )
    row = dict(zip(*cells, strict=True))
    assert next(iter(row)) == "Method"
    assert list(row)[1] == "Test accuracy"
    assert row["Rounds"] == "2 to 3 of 3"
    assert row["Tuned"] == "eta, gamma"
    assert row["State"] == "1 diverged, 1 done"


def test_the_caption_has_the_width_of_the_working_range(browser: Browser, tmp_path: Path) -> None:
    runs = [swept(0.01, 0.8), swept(0.1, 0.9), swept(1.0, 0.5, state="diverged")]
    out = tmp_path / "sweep.html"
    out.write_text(html(content(runs)), encoding="utf-8")
    browser.open(out.as_uri())
    caption = browser.run(
        "return document.querySelector('#w0-sensitivity-eta figcaption').innerText"
    )
    assert "Within 0.05 of the best accuracy at any eta: FedAvg over 0.56 decades" in caption
    assert "(0.0316 to 0.114)" in caption
    assert browser.console() == []


def test_labels_stay_text(page: Browser) -> None:
    assert page.run("return document.title") == EVIL
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert EVIL in page.run("return document.getElementById('claims-table').textContent")


def test_a_method_is_switched_off_and_on_by_keyboard(page: Browser) -> None:
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
    choose("x", "virtual_seconds")
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


def test_values_are_read_by_tapping(page: Browser) -> None:
    def finger(event: str, kind: str = "touch") -> str:
        page.run(
            f"const s = {CURVES}.querySelector('.plot svg'), r = s.getBoundingClientRect();"
            f"s.dispatchEvent(new PointerEvent('{event}', {{pointerType: '{kind}', "
            "clientX: r.right, clientY: r.top + 50}))"
        )
        return str(page.run(f"return {CURVES}.querySelector('.readout').textContent"))

    assert finger("pointerdown").startswith("rounds: 8")
    assert finger("pointerleave").startswith("rounds: 8")
    assert finger("pointerleave", "mouse") == ""
    look = f"return getComputedStyle({CURVES}.querySelector('.plot svg')).touchAction"
    assert page.run(look) == "pan-y"


def test_shades_have_a_scale(page: Browser) -> None:
    boxes = "document.querySelectorAll('#w0-classes .scale')"
    shown = page.run(f"return [...{boxes}].map(b => b.nextSibling.textContent)")
    assert shown == ["1 sample", "36", "143"]
    dark = [
        float(each)
        for each in page.run(f"return [...{boxes}].map(b => b.getAttribute('fill-opacity'))")
    ]
    assert dark == [pytest.approx(0.08 + 0.92 * (n / 143) ** 0.5, abs=1e-3) for n in (1, 36, 143)]


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
    page.dark(True)  # files are for paper even so
    saved = page.wait(
        """
        const saved = [], make = URL.createObjectURL;
        URL.createObjectURL = blob => { saved.push(blob); return make.call(URL, blob); };
        HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
        for (const b of document.querySelectorAll('#w0-curves .export button')) b.click();
        const read = blob => new Promise(r => {
            const f = new FileReader(); f.onload = () => r(f.result); f.readAsDataURL(blob); });
        const ready = setInterval(async () => {
            if (saved.filter(k => typeof k === 'string').length < 3) return;
            clearInterval(ready);
            done(await Promise.all(saved.map(k => typeof k === 'string' ? k : read(k))));
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
    assert "rgb(0, 114, 178)" in svg  # the first method's colour on paper, not in dark mode
    assert files["w0-curves.png"].startswith(b"\x89PNG")
    assert (
        files["w0-curves.csv"]
        .decode()
        .startswith("method,round,accuracy mean,lowest,highest,seeds")
    )


def test_the_live_page_redraws_and_keeps_the_choices(browser: Browser, tmp_path: Path) -> None:
    rows = iter(planned(tmp_path / "a.sqlite", rounds=40))
    for _ in range(3):
        next(rows)
    one = {"client": 3, "name": "<b>3</b>", "node": 12, "state": "connected"}
    page = {"state": "ended", "why": "", "at": 0.0, "clients": [one], "events": []}
    (tmp_path / "a.sqlite.live.json").write_text(json.dumps(page))
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
        health = browser.run("return document.getElementById('health').innerText")
        assert "round 40 of 40" in health
        assert "client 3, <b>3</b>, node 12: was connected" in health
        pressed = "return document.getElementById('w0-curves-ylog').getAttribute('aria-pressed')"
        assert browser.run(pressed) == "true"
        assert "log scale" in browser.run(f"return {CURVES}.textContent")
        assert browser.console() == []
        browser.open("about:blank")
    finally:
        asked.close()
