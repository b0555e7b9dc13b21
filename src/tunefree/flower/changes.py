"""What differs between a run and its start, by the keys of the run config."""

from __future__ import annotations

import ast
from collections.abc import Mapping

KEYS = {  # of the tuples that `federation.identity` writes
    "constants": ("per_round", "local_steps", "rounds"),
    "schedule": ("schedule", "concurrency", "opening"),
    "algorithm": ("algorithm", "compressor", "options"),
}
SHARED = ("decay", "weighting")  # options that are keys of their own
EPOCHS, SAMPLING = " epochs", ", sampling by "


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One sentence for each setting that has changed; older files store less.

    >>> changes({"constants": "(0, 5, 256)"}, {"constants": "(0, 7, 256)"})
    ['local_steps was 5, and now it is 7']
    """
    found = []
    for what, value in now.items():
        old = before.get(what, value)
        if old == value:
            continue
        if what == "first model":
            found.append("its first model was another one (`build_model` has changed)")
            continue
        was, is_now = by_key(what, old), by_key(what, value)
        keys = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key)]
        found += [
            f"{key} was {shown(was, key)}, and now it is {shown(is_now, key)}" for key in keys
        ]
    return found


def by_key(what: str, text: str) -> dict[str, object]:
    """An entry of a run's identity as settings; the entry itself if it is not a known tuple."""
    text, _, sampling = text.partition(SAMPLING) if what == "schedule" else (text, "", "")
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        values = None
    if not isinstance(values, tuple) or len(values) != len(KEYS.get(what, ())):
        return {what.replace(" ", "_"): text}
    found: dict[str, object] = dict(zip(KEYS[what], values, strict=True))
    if sampling:
        found["sampling"] = sampling
    steps, options = str(found.get("local_steps")), found.pop("options", None)
    if steps.endswith(EPOCHS):
        del found["local_steps"]
        found["local_epochs"] = int(steps.removesuffix(EPOCHS))
    if isinstance(options, dict):
        for name, value in options.items():
            found[name if name in SHARED else f"option.{name}"] = value
    return found


def shown(settings: Mapping[str, object], key: str) -> str:
    value = settings.get(key)
    return "not given" if value is None else str(value) or "none"
