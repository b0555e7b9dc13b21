"""Settings as Flower's commands take them: KEY=VALUE pairs, or the name of a TOML file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError
from tunefree.settings import flat

PAIR = re.compile(r"""(\S+?)=('[^']*'|"[^"]*"|\S+)""")
EXAMPLES = {
    "--run-config": "'rounds=20 algorithm=\"padamfed\"'",
    "--node-config": "'partition-id=0 num-partitions=4 store=\"FOLDER\"'",
}


def read_pairs(flag: str, words: str) -> dict[str, Any]:
    """The settings in a flag's words; a table's key stands before its keys, with a dot.

    >>> read_pairs("--run-config", "rounds=5 option.eta=0.1")
    {'rounds': 5, 'option.eta': 0.1}
    """
    if words.endswith(".toml"):
        return flat(read_toml(Path(words).expanduser(), f"{flag} "))
    try:
        if PAIR.sub("", words).strip():
            raise ValueError  # Flower would skip what it cannot read
        return flat(tomllib.loads("\n".join(f"{k} = {v}" for k, v in PAIR.findall(words))))
    except ValueError:
        raise ConfigError(
            f"{flag} {words!r} cannot be read; write KEY=VALUE pairs separated by spaces, with "
            f"text in quotes: {EXAMPLES[flag]}"
        ) from None


def written(settings: Mapping[str, Any]) -> str:
    """Settings as pairs."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())


def read_toml(path: Path, flag: str = "") -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{flag}'{path}' cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{flag}'{path}' is not valid TOML ({error})") from error
