"""The papers' experiments as settings and methods, at three sizes.

smoke   digits and a tiny network: seconds, shows only that everything runs
small   reduced so that everything takes about an hour on two cores; `sizes` describes it
paper   the papers' data, networks and sizes; where a paper gives none, `GAPS` names it

A method is written as for `tunefree compare`. A method that declares a grid is tuned on held-out
samples unless its step size is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from tunefree.search import Grid, parse_method

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: Mapping[Scale, tuple[int, ...]] = {"smoke": (0, 1), "small": (0, 1, 2), "paper": (0, 1)}
TUNING_SEED = 100  # never used for verdicts
THEORY_ROUNDS: Mapping[Scale, int] = {"smoke": 64, "small": 4096, "paper": 16384}
THEORY_SEEDS: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (0, 1),
    "small": tuple(range(5)),
    "paper": tuple(range(10)),
}


class Setting(NamedTuple):
    """What the methods of one picture share."""

    settings: Mapping[str, object]
    seeds: int = 10**9  # methods run with at most so many of the seeds
    sweep_seeds: int = 2  # and methods at a given step size with so many
    tuned_in: str = ""  # the setting in which its methods are tuned, if another one


class Family(NamedTuple):
    """Settings that differ in data and partition only."""

    small: Mapping[str, object]
    paper: Mapping[str, object]
    seeds: int = 10**9


SMOKE = {
    "data": "digits",
    "model": "mlp",
    "model_option.hidden": 8,
    "batch_size": 8,
    "eval_every": 5,
    **{"clients": 10, "per_round": 2, "local_steps": 2, "rounds": 20},
}
IMAGES = Family(
    small={
        **{"clients": 50, "per_round": 5, "local_steps": 5, "rounds": 150},
        **{"batch_size": 20, "eval_every": 30},
    },
    paper={
        **{"clients": 100, "per_round": 10, "local_steps": 12, "rounds": 150},
        **{"batch_size": 100, "eval_every": 15},
    },
)
LATE = Family(IMAGES.small, IMAGES.paper, seeds=2)
EMNIST = Family(
    small={
        **{"data": "emnist-part-balanced", "model": "cnn_mnist"},
        **{"clients": 50, "per_round": 4, "local_steps": 3, "rounds": 400},
        **{"batch_size": 16, "eval_every": 80},
    },
    paper={
        "data": "emnist",
        **{"clients": 100, "per_round": 10, "local_steps": 10, "rounds": 400},
        **{"batch_size": 64, "eval_every": 10},
    },
)
CIFAR = Family(
    small={
        **{"data": "cifar10", "model": "cnn_mnist", "grad_norm": True},
        **{"clients": 50, "per_round": 5, "local_steps": 5, "rounds": 200},
        **{"batch_size": 20, "eval_every": 40},
    },
    paper={
        **{"data": "cifar10", "grad_norm": True},
        **{"clients": 100, "per_round": 10, "local_steps": 10, "rounds": 1000},
        **{"batch_size": 64, "eval_every": 50},
    },
)
IMDB = Family(
    small={
        **{
            "data": "imdb",
            "data_option.length": 60,
            "model_option.embedding": 16,
            "model_option.hidden": 16,
        },
        **{"clients": 50, "per_round": 5, "local_steps": 5, "rounds": 150},
        **{"batch_size": 16, "eval_every": 25},
    },
    paper={
        "data": "imdb",
        **{"clients": 100, "per_round": 10, "local_steps": 10, "rounds": 400},
        **{"batch_size": 32, "eval_every": 10},
    },
)
LEVELS: Mapping[Scale, tuple[int, ...]] = {  # jobs in flight; methods are tuned at the second
    "smoke": (2, 4, 6, 8),
    "small": (5, 10, 25, 40),
    "paper": (10, 20, 30, 50),
}


def settings(scale: Scale) -> dict[str, Setting]:
    """All settings of a size, by name."""

    def of(family: Family, data: str, partition: str, **more: object) -> Setting:
        keys = {"partition": partition, **more}
        if scale == "smoke":
            plain = "dirichlet:1" if partition.startswith("beta") else partition
            norm = {"grad_norm": True} if "grad_norm" in family.small else {}
            return Setting({**SMOKE, **norm, **keys, "partition": plain}, family.seeds)
        size = family.small if scale == "small" else family.paper
        named = {"data": data} if data else {}
        return Setting({**size, **named, **keys}, family.seeds)

    found = {
        f"{short}-{kind}": of(family, data, partition)
        for family, short, data, skew in (
            (IMAGES, "mnist", "mnist", "dirichlet:0.1"),
            (IMAGES, "fashion", "fashion-mnist", "dirichlet:0.1"),
            (EMNIST, "emnist", "", "dirichlet:1"),
            (CIFAR, "cifar", "", "dirichlet:0.5"),
            (IMDB, "imdb", "", "beta:2,5"),
        )
        for kind, partition in (("iid", "iid"), ("skew", skew))
    }
    found["ablation"] = (
        found["cifar-skew"] if scale == "paper" else of(IMAGES, "fashion-mnist", "dirichlet:0.5")
    )
    for place, jobs in enumerate(LEVELS[scale]):
        late = of(
            LATE,
            "fashion-mnist",
            "dirichlet:0.5",
            schedule="buffered",
            concurrency=jobs,
        )
        found[f"late-{place}"] = late._replace(tuned_in="late-1")
    wire = of(IMAGES, "mnist", "iid")
    tiny = {"per_round": 2, "local_steps": 1, "rounds": 3, "eval_every": 3}
    found["wire"] = Setting({**wire.settings, **tiny}, seeds=1, sweep_seeds=1)
    return found


ETAS = (1e-2, 3e-2, 1e-1, 3e-1)
SMALL_GRIDS: Mapping[str, Grid] = {
    "fedavg": {"eta": ETAS},
    "scaffold": {"eta": ETAS},
    "scaffold_m": {"eta": ETAS},
    "scaffold_norm": {"gamma": (1e-2, 3e-2, 1e-1, 3e-1)},
    "scafcom": {"eta": ETAS},
    "fedbuff": {"eta": ETAS},
    "ca2fl": {"eta": ETAS},
    "defedavg_niid": {"eta": ETAS},
    "fadas": {"eta": (3e-2, 1e-1), "gamma": (1e-3, 3e-3, 1e-2)},
    "masfl": {"eta": (1e-2, 1e-1), "gamma": (0.1, 0.3, 1.0)},
}


PAPER_GRIDS: Mapping[str, Grid] = {  # a run takes minutes: coarser, but extended at the edges too
    **{name: {"eta": ETAS[1:]} for name in SMALL_GRIDS},
    "scaffold": {"eta": ETAS[:3]},
    "scaffold_norm": {"gamma": (1e-1, 3e-1, 1.0)},
    "fadas": {"eta": (3e-2, 1e-1), "gamma": (1e-3, 3e-3)},
    "masfl": {"eta": (3e-2, 1e-1), "gamma": (0.3, 1.0)},
}


def grid_of(name: str, scale: Scale) -> Grid:
    """The grid that a method is tuned on; two values at smoke size."""
    if scale == "paper":
        return PAPER_GRIDS[name]
    grid = SMALL_GRIDS[name]
    return {k: v[-2:] for k, v in list(grid.items())[:1]} if scale == "smoke" else grid


def is_tuned(method: str) -> bool:
    """Whether the method's step sizes have to be tuned."""
    spec = parse_method(method)
    return bool(spec.about.grid) and "eta" not in spec.options


def swept_step(method: str) -> str:
    """The step size at which the method is one value of a sweep; empty if it is in none."""
    options = parse_method(method).options
    return next((step for step in ("gamma", "eta") if step in options), "")


def methods_at(method: str, step: str, values: Sequence[float]) -> list[str]:
    """The method at each of these step sizes."""
    name, _, options = method.partition(":")
    free = "" if parse_method(name).about.grid else ",explicit_steps=true"
    own = f",{options}" if options else ""
    return [f"{name}:{step}={value:g}{free}{own}" for value in values]
