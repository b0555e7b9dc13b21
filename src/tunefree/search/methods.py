"""A method of a comparison as it is typed: NAME, NAME:key=value,key=value or NAME@tuned.json.

NAME may be `package.module:Name`: text after a colon without = is part of the name.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tunefree import config
from tunefree.config import AlgorithmSettings, Config, Schedule
from tunefree.errors import ConfigError, unknown
from tunefree.methods import registry
from tunefree.methods.own import options_in

METHOD = re.compile(
    r"(?P<name>[^@:]*(?::[A-Za-z_]\w*(?![\w=]))?)(?:@(?P<file>.+?))?"
    r"(?::(?P<options>[A-Za-z_]\w*=.*))?",
    re.DOTALL,
)
COMMA = re.compile(r",(?=[A-Za-z_]\w*=)")  # one that starts another key; others are part of a value
NO_TASK = ("data.dir", "data.validation")  # they do not change the task


class MethodSpec(NamedTuple):
    """A method with its options."""

    name: str
    options: Mapping[str, object] = {}
    tuned: Path | None = None

    @property
    def label(self) -> str:
        own = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}{'@tuned' if self.tuned else ''}{':' if own else ''}{own}"


def labels(choices: Sequence[MethodSpec]) -> list[str]:
    """A name for each method; of one tuned by several searches, with the file of each."""
    count = Counter(method.label for method in choices)
    return [
        method.label.replace("@tuned", f"@{method.tuned}", 1)
        if count[method.label] > 1
        else method.label
        for method in choices
    ]


def parse_method(text: str) -> MethodSpec:
    """A method from its text; values may contain colons and commas.

    >>> parse_method("comparfrefl:compressor=top:0.05").options
    {'compressor': 'top:0.05'}
    >>> parse_method("fedavg@runs/tuned.json:s=2").label
    'fedavg@tuned:s=2'
    """
    match = METHOD.fullmatch(text)
    if match is None or match["name"].partition(":")[0] in registry.REGISTRY.keys() - {
        match["name"]
    }:
        raise ConfigError(
            f"method {text!r} must look like NAME, NAME:key=value,key=value or NAME@tuned.json"
        )
    name, file, given = match.group("name", "file", "options")
    if ":" not in name and name not in registry.REGISTRY:
        raise unknown("method", name, registry.REGISTRY, more="package.module:Name")
    registry.find(name)
    options: dict[str, object] = {}
    for part in COMMA.split(given) if given else ():
        key, value = config.parse_assignment(part)
        if key == "name" or key in options:
            why = "is given twice" if key in options else "cannot be changed"
            raise ConfigError(f"method {text!r}: {key} {why}; remove it")
        options[key] = value
    return MethodSpec(name, options, Path(file) if file else None)


def configure(method: MethodSpec, base: Config) -> tuple[Config, dict[str, Any]]:
    """The shared settings with the method's own, and its tuning bill as a fact of the run."""
    shared = base.algorithm
    if shared.options or shared.explicit_steps:
        key = next(iter(shared.options), "explicit_steps")
        raise ConfigError(
            f"algorithm.{key} cannot be set for all methods at once; give it to one method, as in "
            f"{method.name}:{key}=..."
        )
    tuned = read_tuned(method) if method.tuned else {}
    if tuned:
        warn_of_other_settings(method, tuned, base)
    given = {**tuned.get("options", {}), **method.options}
    schedule = choose_schedule(str(given.pop("schedule", base.schedule.name)), base.schedule)
    compresses = "C" in options_in(registry.find(method.name))
    known = {"compressor": shared.compressor if compresses else "", "weighting": shared.weighting}
    own = (*registry.WRAPPED, "explicit_steps")
    known |= {key: given.pop(key) for key in own if key in given}
    chosen: AlgorithmSettings = config.build("algorithm", {"name": method.name, **known, **given})
    registry.check(method.name, registry.options_of(chosen), chosen.explicit_steps)
    facts = {"tuning": tuned["bill"]} if tuned else {}
    return replace(base, algorithm=chosen, schedule=schedule), facts


def choose_schedule(name: str, shared: Schedule) -> Schedule:
    """The shared schedule, or synchronous rounds on the same clock."""
    if name == shared.name:
        return shared
    if name == "synchronous":
        return Schedule("synchronous", delays=shared.delays, opening=shared.opening)
    raise ConfigError(
        f"schedule = {name!r} of a method must be 'synchronous'; run all methods buffered with "
        "--schedule buffered"
    )


def read_tuned(method: MethodSpec) -> dict[str, Any]:
    """The file that `tunefree tune` wrote; refused if it is for another method."""
    path = method.tuned
    assert path is not None
    try:
        tuned: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        name, _ = tuned["algorithm"], (tuned["options"], tuned["bill"], tuned["settings"])
    except OSError as error:
        raise ConfigError(
            f"'{path}' cannot be read ({error.strerror}); write it with "
            f"`tunefree tune {method.name}`"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{path}' was not written by `tunefree tune`") from error
    if name != method.name:
        raise ConfigError(f"'{path}' contains tuned settings of {name}, not of {method.name}")
    return tuned


def check_seeds(choices: Sequence[MethodSpec], seeds: Sequence[int]) -> None:
    """Refuse to compare a tuned method on the seeds that it was tuned with."""
    for method in choices:
        same = sorted(set(seeds) & set(read_tuned(method).get("seeds", ()))) if method.tuned else []
        if same:
            word = f"seed{'s' * (len(same) > 1)} {', '.join(map(str, same))}"
            raise ConfigError(f"{method.name} was tuned with {word}; compare it on other seeds")


def warn_of_other_settings(method: MethodSpec, tuned: Mapping[str, Any], base: Config) -> None:
    """Warn where a method was tuned on another task than it is compared on."""
    here, usual, there = base.asdict(), Config().asdict(), tuned["settings"]
    follows = ("system.K",) if there["system"].get("epochs") else ()
    other = [
        f"{section}.{key} = {then!r}"
        for section in ("system", "data", "model", "schedule")
        for key, value in here[section].items()
        if f"{section}.{key}" not in (*NO_TASK, *follows)
        and (then := there[section].get(key, usual[section][key])) != value
    ]
    if other:
        warnings.warn(f"{method.name} was tuned with {', '.join(other)}", stacklevel=3)
