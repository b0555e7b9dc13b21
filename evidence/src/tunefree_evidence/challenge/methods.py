"""The methods: untuned ones run once per seed; the others after a search, with its tuning bill.

A tuned method searches its grid with constant steps and with linear decay, and extends the grid if
its best point is on an edge, up to `TRIALS` trials in all, on held-out samples and with a seed of
its own. Options that are in no grid have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tunefree.errors import ConfigError, unknown_name
from tunefree.search import Grid, Settings, Value, check, configure, parse_method
from tunefree_evidence.challenge.tasks import Kind, Scale

TRIALS: Mapping[Scale, int] = {"smoke": 2, "small": 10, "full": 36}
TUNING_SEED = 100  # never used for scores

DECAY: Grid = {"decay": ("none", "linear")}
LOW: Grid = {"eta": (1e-2, 3e-2, 1e-1, 3e-1), **DECAY}
HIGH: Grid = {"eta": (3e-2, 1e-1, 3e-1, 1.0), **DECAY}
ADAPTIVE: Grid = {"eta": (3e-2, 1e-1), "eta_s": (1e-2, 3e-2), **DECAY}


class Entry(NamedTuple):
    """A method as typed for `tunefree compare`, and the grid it is tuned on, if any."""

    method: str
    grid: Mapping[str, tuple[Value, ...]] = {}


ENTRIES: Mapping[Kind, Sequence[Entry]] = {
    "synchronous": (
        *map(Entry, ("polarfl", "padamfed", "padamfed_vr", "parfrefl", "delta_sgd", "fedexp")),
        Entry("fedavg", HIGH),
        Entry("fedavgm", LOW),
        Entry("fedadam", ADAPTIVE),
        Entry("fedyogi", ADAPTIVE),
        Entry("scaffold", LOW),
        Entry("scaffold_m", HIGH),
    ),
    "late": (
        *map(Entry, ("polarfl", "adamasfl")),
        Entry("fedbuff", HIGH),
        Entry("ca2fl", LOW),
        Entry("fadas", {"eta": (3e-2, 1e-1), "gamma": (3e-3, 1e-2), **DECAY}),
        Entry("masfl", {"eta": (3e-2, 1e-1), "gamma": (3e-1, 1.0), **DECAY}),
    ),
    "compressed": (
        Entry("polarfl:compressor=rotated:1"),
        *map(Entry, ("polarfl", "comparfrefl")),
        Entry("scafcom", HIGH),
        Entry("fed_ef_sgd", HIGH),
    ),
}


def entries(kind: Kind, own: Sequence[str], only: Sequence[str]) -> list[Entry]:
    """The methods for tasks of a kind: all or some of the suite's, and the user's own."""
    suite = {entry.method: entry for entry in ENTRIES[kind]}
    chosen = [
        entry for method, entry in suite.items() if not only or method.partition(":")[0] in only
    ]
    return chosen + [own_entry(method) for method in own if method not in suite]


def check_names(own: Sequence[str], only: Sequence[str]) -> None:
    """Refuse unknown methods before anything runs."""
    for text in own:
        own_entry(text)
    suite = {entry.method.partition(":")[0] for each in ENTRIES.values() for entry in each}
    for name in only:
        if name not in suite:
            raise unknown_name("--only", name, suite)


def own_entry(text: str) -> Entry:
    """A user's own method; it is tuned on the grid it declares, but for options that are given."""
    spec = parse_method(text)
    if spec.tuned:
        raise ConfigError(f"--add {text!r}: the challenge does its own tuning; give no file")
    grid = spec.about.grid
    return Entry(text, {key: grid[key] for key in grid if key not in spec.options})


def why_not(entry: Entry, base: Settings) -> str:
    """Why a method cannot run a task; empty if it can."""
    try:
        settings, _ = configure(parse_method(entry.method), base)
        if base.compressor and not settings.compressor:
            return "it cannot compress its uploads"
        check(settings)
    except ConfigError as error:
        return str(error)
    return ""
