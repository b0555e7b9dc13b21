"""A small, complete Flower app to edit."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path

from tunefree.errors import ConfigError

FILES = ("task.py", "client_app.py", "server_app.py")


def new_app(folder: Path, secure: bool = False) -> list[Path]:
    """Write pyproject.toml and a package into a folder that does not have them yet."""
    package = re.sub(r"\W|^(?=\d)", "_", folder.resolve().name.lower())
    if keyword.iskeyword(package):
        package += "_"
    texts = {"pyproject.toml": "pyproject.toml", ".gitignore": "gitignore"}
    texts |= {f"{package}/__init__.py": ""}
    texts |= {f"{package}/{name}": name for name in FILES}
    try:
        for path in texts:
            if (folder / path).exists():
                raise ConfigError(f"'{folder / path}' exists already; choose another folder")
        for path, source in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            text = filled(source, package) if source else ""
            text = text.replace("secure = false ", "secure = true ") if secure else text
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"'{folder}' cannot be written ({error.strerror}); choose another folder"
        ) from error
    return [folder / path for path in texts]


def filled(source: str, package: str) -> str:
    text = (resources.files("tunefree.flower") / "template" / f"{source}.txt").read_text("utf-8")
    return text.replace("PACKAGE", package).replace("NAME", package.replace("_", "-"))
