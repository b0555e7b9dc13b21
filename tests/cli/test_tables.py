"""Tables show names as they are, whatever the user called them."""

from __future__ import annotations

import pytest

from tunefree.cli.tables import Answer, table

NAMES = ["[bold]mine", "mod:smile:Name", "[/x]"]


def test_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert not Answer({}, table(["method"], [[name] for name in NAMES])).printed("text")
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["method", *NAMES]
    assert not Answer({}, table(["method"], [[name] for name in NAMES], below=NAMES)).printed(
        "text"
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["method", *(name for name in NAMES for _ in range(2))]


def test_an_answer_is_the_same_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert Answer({"a": 1}, ["one"], failed=True).printed("text")
    assert not Answer({"a": 1}, table(["one"], [])).printed("text")
    assert not Answer({"a": 1}, ["one"]).printed("json")
    assert not Answer({"a": 1}).printed("text")
    assert capsys.readouterr().out.split() == ["one", "one", '{"a":', "1}"]
