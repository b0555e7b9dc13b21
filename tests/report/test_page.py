"""One page that needs no other files and that no label can break."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tunefree.record import Facts, Summary, summarise
from tunefree.report.content import content
from tunefree.report.page import SCRIPTS, page, part

EVIL = "</script><script>alert(1)</script><!-- {{content}} & \u2028"


@pytest.fixture
def evil() -> str:
    run = Summary(Path("x.sqlite"), Facts(label=EVIL, reason=EVIL))
    return page(content([run], [{"claim": 1, "sentence": EVIL}], title=EVIL))


def embed(text: str) -> str:
    (json_text,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text)
    return str(json_text)


def test_a_label_stays_text(evil: str) -> None:
    assert "alert(1)</script>" not in evil
    assert evil.count("</script>") == 2  # the content's and the script's own
    assert evil.count("<!--") == 0
    report = json.loads(embed(evil))
    assert report["title"] == report["verdicts"][0]["sentence"] == EVIL
    assert report["workloads"][0]["methods"][0]["label"] == EVIL


def test_the_page_contains_everything_and_has_no_links(runs: Path) -> None:
    text = page(content([summarise(runs / "padamfed-1.sqlite")]))
    addresses = set(re.findall(r"\w+://[^\s\"')]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.findall(r"\b(?:src|href)=\"(?!data:)", text)
    assert "connect-src &#x27;none&#x27;" in text
    assert len(text) < 200_000


def test_numbers_that_json_does_not_have() -> None:
    rows = [{"t": 0, "loss": float("inf"), "accuracy": float("nan"), "samples": 1}]
    report = json.loads(embed(page(content([Summary(Path("x"), Facts(), rows)]))))
    assert report["workloads"][0]["methods"][0]["final"]["loss"]["mean"] is None


@pytest.mark.parametrize("name", ["page.css", *(f"{name}.js" for name in SCRIPTS)])
def test_no_part_can_end_its_own_element(name: str) -> None:
    assert "</" not in part(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_needs_a_browser_of_this_year(name: str) -> None:
    new = r"\.(?:toReversed|toSorted|toSpliced|with|groupBy)\(|\(\?<[=!]"
    assert not re.findall(new, part(f"{name}.js"))
