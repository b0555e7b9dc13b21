"""A griffe extension: our docstrings' examples, and keywords that stand in a TypedDict."""

from __future__ import annotations

import importlib
import inspect
import re
from operator import attrgetter
from typing import Any

import griffe


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
    """Shows examples as such, and every keyword of a function that takes `**settings`."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if not any("shows(" in str(each.value) for each in func.decorators):
            return
        made = importlib.import_module(func.module.path)
        place = func.path.removeprefix(f"{func.module.path}.")
        shown = inspect.signature(attrgetter(place)(made)).parameters
        taken = [each for each in func.parameters if each.name in shown or each.name == "self"]
        for name in shown.keys() - {each.name for each in taken}:
            each = shown[name]
            kind = griffe.ParameterKind.keyword_only
            taken.append(
                griffe.Parameter(
                    name, annotation=each.annotation, kind=kind, default=repr(each.default)
                )
            )
        order = {"self": -1, **{name: place for place, name in enumerate(shown)}}
        func.parameters = griffe.Parameters(*sorted(taken, key=lambda each: order[each.name]))
