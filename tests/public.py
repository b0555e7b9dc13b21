"""Which names of a module are public."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType


def public_names(module: ModuleType) -> set[str]:
    """`__all__`; of a module without it, what it imports `as` the same name, and its functions."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    froms = [node for node in body if isinstance(node, ast.ImportFrom)]
    imported = {each.name for node in froms for each in node.names if each.asname == each.name}
    return imported | {node.name for node in body if isinstance(node, ast.FunctionDef)}
