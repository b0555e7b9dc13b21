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

from tunefree.core import About, Method, System
from tunefree.derive import named_data
from tunefree.errors import ConfigError, unknown_name
from tunefree.former_names import renamed
from tunefree.importing import EVIDENCE
from tunefree.methods import registry
from tunefree.methods.own import about_of, options_in
from tunefree.report.grouping import NO_EFFECT
from tunefree.report.sweeps import OF_METHOD
from tunefree.settings import Schedule, Settings, parse_assignment

METHOD = re.compile(
    r"(?P<name>[^@:]*(?::[A-Za-z_]\w*(?![\w=]))?)(?:@(?P<file>.+?))?"
    r"(?::(?P<options>[A-Za-z_]\w*=.*))?",
    re.DOTALL,
)
COMMA = re.compile(r",(?=[A-Za-z_]\w*=)")  # one that starts another key; others are part of a value
NO_TASK = {*NO_EFFECT, *OF_METHOD, "option", "validation"}  # settings that do not change the task


class MethodSpec(NamedTuple):
    """A method with its options."""

    name: str
    options: Mapping[str, object] = {}
    tuned: Path | None = None

    @property
    def about(self) -> About:
        """What the method says about itself: its title, its steps, its grid."""
        return about_of(registry.find(self.name))

    def bound(self, sys: System) -> Method:
        """The method itself, with its options, for these constants.

        >>> MethodSpec("fedavg", {"eta": 0.1}).bound(System(N=50, S=10, K=10, T=400)).eta
        0.1
        """
        return registry.build(self.name, sys, self.options)

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
        known = registry.every_name()
        if name not in known and name not in EVIDENCE["algorithm"].split():
            raise unknown_name("method", name, known, more="package.module:Name")
    registry.find(name)
    options: dict[str, object] = {}
    for part in COMMA.split(given) if given else ():
        key, value = parse_assignment(part)
        if key == "name" or key in options:
            why = "is given twice" if key in options else "cannot be changed"
            raise ConfigError(f"method {text!r}: {key} {why}; remove it")
        options[key] = value
    return MethodSpec(name, options, Path(file) if file else None)


def system_of(settings: Settings) -> System:
    """N, S, K and T; where K follows from the clients' samples, their data are loaded."""
    sizes = named_data(settings)[1].parts.sizes if settings.local_epochs else ()
    return settings.system_for(sizes)


def configure(method: MethodSpec, base: Settings) -> tuple[Settings, dict[str, Any]]:
    """The shared settings with the method's own, and its tuning bill as a fact of the run."""
    if base.option or base.explicit_steps:
        key = next(iter(base.option), "explicit_steps")
        raise ConfigError(
            "cannot be set for all methods at once",
            f"give it to one method, as in {method.name}:{key}=...",
            setting=f"option.{key}" if base.option else key,
        )
    tuned = read_tuned(method) if method.tuned else {}
    if tuned:
        warn_of_other_settings(method, tuned, base)
    given = {**tuned.get("options", {}), **method.options}
    schedule = choose_schedule(str(given.pop("schedule", base.schedule)), base.scheduling)
    compresses = "C" in options_in(registry.find(method.name))
    own = (*registry.WRAPPED, "explicit_steps")
    known: dict[str, Any] = {"compressor": base.compressor if compresses else ""}
    known |= {key: given.pop(key) for key in own if key in given}
    known |= schedule.as_settings()
    chosen = replace(base, algorithm=method.name, option=given, **known)
    try:
        registry.check(method.name, registry.options_of(chosen), chosen.explicit_steps)
    except ConfigError as error:
        key = error.setting.removeprefix("option.")
        if key not in method.options:
            raise
        typed = f"{method.name}:{key}={error.value}"
        raise ConfigError(f"{typed} {error.problem}", error.remedy) from error
    facts = {"tuning": tuned["bill"]} if tuned else {}
    return chosen, facts


def choose_schedule(name: str, shared: Schedule) -> Schedule:
    """The shared schedule, or synchronous rounds on the same clock."""
    if name == shared.name:
        return shared
    if name == "synchronous":
        return Schedule("synchronous", delays=shared.delays, opening=shared.opening)
    raise ConfigError(
        f"schedule = {name!r} of a method must be 'synchronous'",
        "run all methods buffered with {schedule} = buffered",
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


def warn_of_other_settings(method: MethodSpec, tuned: Mapping[str, Any], base: Settings) -> None:
    """Warn where a method was tuned on another task than it is compared on."""
    usual, there = Settings().asdict(), tuned["settings"]
    if "system" in there:  # written by version 0.2.0
        there = renamed(there)
    other = [
        f"{name} = {then!r}"
        for name, value in base.asdict().items()
        if name not in NO_TASK and (then := there.get(name, usual[name])) != value
    ]
    if other:
        warnings.warn(f"{method.name} was tuned with {', '.join(other)}", stacklevel=3)
