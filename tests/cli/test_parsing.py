"""The command line knows all commands, and imports only what the typed one needs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tunefree import cli
from tunefree.cli import flags, main, parser

HEAVY = "{'numpy', 'rich', 'torch', 'tunefree.cli.run'} & sys.modules.keys()"


@pytest.mark.parametrize("words", [["--version"], ["runs", "--help"]])
def test_nothing_heavy_is_imported_for_the_arguments(words: list[str]) -> None:
    code = f"""
import sys
from tunefree.cli import main
try:
    main({words})
except SystemExit:
    pass
sys.exit(str({HEAVY} or ''))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.stderr in (b"", b"\n")


def test_every_command_has_a_file_and_every_file_a_command() -> None:
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    commands = {words.split()[0] for words, _ in cli.COMMANDS}
    assert files == commands | {"__init__", "__main__", "flags", "tables"}


def test_without_a_command_it_says_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"  tunefree {words} " in out for words, _ in cli.COMMANDS)
    assert "tunefree COMMAND --help" in out


def test_the_example_of_each_command_is_understood() -> None:
    for words, _ in cli.COMMANDS:
        assert parser().parse_args(words.split()).command == words.split()[0]


def test_an_argument_is_added_as_its_usage_shows_it() -> None:
    command = argparse.ArgumentParser()
    for usage in ("RUN ...", "-o --out X.html", "--port P", "--tls"):
        flags.add(command, usage, "", int if usage == "--port P" else str)
    args = command.parse_args(["a", "b", "-o", "c.html", "--port", "7", "--tls"])
    assert vars(args) == {"run": ["a", "b"], "out": "c.html", "port": 7, "tls": True}
    optional = argparse.ArgumentParser()
    flags.add(optional, "[FILE.toml]", "", default="usual")
    flags.add(optional, "--values X ...", "", float)
    assert vars(optional.parse_args([])) == {"file": "usual", "values": None}
    assert optional.parse_args(["--values", "1", "2"]).values == [1.0, 2.0]
