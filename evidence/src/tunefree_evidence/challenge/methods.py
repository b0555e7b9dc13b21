"""The methods: untuned ones run once per seed; the others after a search, with its tuning bill.

A tuned method has a space of at least 27 points: its own step sizes, each with constant steps and
with linear decay, with and without the average of its models. `small` searches 27 of them, chosen
at random once and for all, `full` 81. Options that are in no space have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tunefree.errors import ConfigError, unknown_name
from tunefree.search import Grid, Settings, Value, check, configure, parse_method
from tunefree_evidence.challenge.tasks import Kind, Scale

TRIALS: Mapping[Scale, int] = {"smoke": 3, "small": 27, "full": 81}
TUNING_SEED = 100  # never used for scores

FORMS: Grid = {"decay": ("none", "linear"), "average": ("off", "on")}
STEPS = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)
LOCAL = (1e-2, 3e-2, 1e-1, 3e-1)
MUON = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
ADAM = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


class Entry(NamedTuple):
    """A method as typed for `tunefree compare`, and the grid it is tuned on, if any."""

    method: str
    grid: Mapping[str, tuple[Value, ...]] = {}


def tuned(method: str, **steps: tuple[Value, ...]) -> Entry:
    return Entry(method, {**steps, **FORMS})


ENTRIES: Mapping[Kind, Sequence[Entry]] = {
    "synchronous": (
        *map(Entry, ("polarfl", "polarfl_stateless", "padamfed", "padamfed_vr", "parfrefl")),
        *map(Entry, ("local_prodigy", "local_dog", "local_schedule_free", "server_dog")),
        *map(Entry, ("delta_sgd", "fedexp")),
        tuned("fedavg", eta=STEPS),
        tuned("fedavgm", eta=LOCAL, mu=(0.8, 0.9, 0.97)),
        tuned("fedadam", eta=(3e-2, 1e-1, 3e-1), eta_s=(3e-3, 1e-2, 3e-2)),
        tuned("scaffold", eta=STEPS),
        tuned("scaffold_m", eta=STEPS[2:], beta=(0.1, 0.2, 0.5)),
        tuned("fedmuon_server", eta=LOCAL, eta_s=(3e-3, 1e-2, 3e-2, 1e-1)),
        tuned("local_muon", eta=MUON, momentum=("reset", "aggregated")),
        tuned("fedmuon", eta=MUON, beta=(0.1, 0.5, 0.9), over=("all", "sampled")),
        tuned("fedmuon_liu", eta=MUON, alpha=(0.25, 0.5, 0.75)),
        tuned("muloco", eta=MUON, mu_s=(0.6, 0.9)),
        tuned("fedadamw", eta=ADAM, alpha=(0.25, 0.5, 0.75)),
        tuned("fedacg", eta=LOCAL, lam=(0.7, 0.85, 0.95)),
        tuned("fedsmoo", eta=LOCAL, rho=(0.01, 0.1)),
    ),
    "late": (
        *map(Entry, ("polarfl", "polarfl_stateless", "adamasfl")),
        tuned("fedbuff", eta=STEPS),
        tuned("ca2fl", eta=STEPS),
        tuned("fadas", eta=LOCAL, gamma=(1e-3, 3e-3, 1e-2)),
        tuned("masfl", eta=LOCAL, gamma=(1e-1, 3e-1, 1.0)),
    ),
    "compressed": (
        Entry("polarfl:compressor=rotated:1"),
        *map(Entry, ("polarfl", "polarfl_stateless", "comparfrefl")),
        tuned("scafcom", eta=LOCAL, beta=(0.1, 0.2)),
        tuned("fed_ef_sgd", eta=STEPS),
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
