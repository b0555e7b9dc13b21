"""A small, complete Flower app for a person to edit."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from tunefree.errors import ConfigError

FILES = ("task.py", "client_app.py", "server_app.py")


def new_app(folder: Path) -> list[Path]:
    """Write pyproject.toml and a package into a folder that has none of them yet."""
    package = re.sub(r"\W|^(?=\d)", "_", folder.resolve().name.lower())
    texts = {"pyproject.toml": "pyproject.toml", ".gitignore": "gitignore"}
    texts |= {f"{package}/__init__.py": ""}
    texts |= {f"{package}/{name}": name for name in FILES}
    for path in texts:
        if (folder / path).exists():
            raise ConfigError(f"'{folder / path}' exists already; choose a folder of its own")
    written = []
    for path, source in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(source, package) if source else "", encoding="utf-8")
        written.append(target)
    return written


def filled(source: str, package: str) -> str:
    text = (resources.files("tunefree.flower") / "template" / f"{source}.txt").read_text("utf-8")
    return text.replace("PACKAGE", package).replace("NAME", package.replace("_", "-"))
