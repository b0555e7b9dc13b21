"""A griffe extension: our docstrings' examples, and functions that are made at run time."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

import tunefree.run.assemble

MADE = {"train": ("Run", "__init__"), "resume": ("Run", "resume")}  # whose arguments they take


def with_examples(text: str) -> str:
    """The docstring with its doctest, which is at its end, in a section of its own.

    >>> with_examples("What is true.\\n\\n>>> 1 + 1\\n2")
    'What is true.\\n\\nExamples:\\n    >>> 1 + 1\\n    2'
    """
    before, mark, example = text.partition("\n\n>>> ")
    if not mark:
        return text
    return f"{before}\n\nExamples:\n    " + re.sub(r"\n(?=.)", "\n    ", f">>> {example}")


class Reference(griffe.Extension):
    """Shows examples as such, and `tunefree.train` and `resume` with the arguments they take."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.name != "tunefree":
            return
        api = pkg["api"]
        for name, (cls, maker) in MADE.items():
            function = getattr(tunefree.run.assemble, name)
            arguments = list(api[cls][maker].parameters)[1:]
            for argument in arguments:
                usual = inspect.signature(function).parameters[argument.name].default
                if isinstance(usual, str | int):
                    argument.default = repr(usual)  # its value, not the expression
            text = inspect.getdoc(function) or ""
            made = griffe.Function(
                name,
                lineno=api[name].lineno,
                endlineno=api[name].endlineno,
                parameters=griffe.Parameters(*arguments),
                returns=griffe.ExprName("Run", parent=api),
                parent=api,
            )
            made.docstring = griffe.Docstring(with_examples(text), parser="google", parent=made)
            api.set_member(name, made)
