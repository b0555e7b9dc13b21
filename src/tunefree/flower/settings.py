"""What a federation is told by its run config: the same keys for the server and its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_type_hints

import torch
from torch import nn

from tunefree import algorithms
from tunefree.config import checked
from tunefree.core import Algorithm, System, stream
from tunefree.errors import ConfigError
from tunefree.models.objective import Kernels, Loss, Objective

Builder = Callable[[], nn.Module]
Choice = Callable[[System], Algorithm]  # an algorithm of the user's own

OPTION = "option."  # run config keys that begin so belong to the algorithm
LEAST = {"rounds": 1, "local_steps": 1, "batch_size": 1, "clients": 1, "at_least": 1}
LEAST |= {"eval_every": 1, "per_round": 0, "concurrency": 0, "seed": 0}


@dataclass(frozen=True)
class Settings:
    """A key of the run config is a field's name with hyphens; what is left out is as here."""

    algorithm: str = "padamfed"
    compressor: str = ""
    rounds: int = 100
    per_round: int = 0  # clients in a round, or uploads in a buffer; 0 is all
    local_steps: int = 10
    batch_size: int = 16
    seed: int = 0
    clients: int = 1  # so many must be there before the first round
    schedule: Literal["synchronous", "buffered"] = "synchronous"
    concurrency: int = 0  # buffered: jobs out at a time; 0 is per_round
    opening: Literal["gradients", "zero"] = "gradients"
    eval_every: int = 10
    evaluate_on_clients: bool = False
    deadline: float = 300.0  # seconds that a client has for its reply
    at_least: int = 1  # replies without which no step is taken
    wait: float = 600.0  # seconds for enough clients to be there
    kernels: Kernels = "auto"
    out: str = "federation.sqlite"
    options: Mapping[str, object] = field(default_factory=dict)

    def system(self, N: int) -> System:
        """The constants of the algorithm while N clients are registered."""
        if self.per_round > N:
            raise ConfigError(
                f"per-round = {self.per_round} exceeds the {N} registered clients; lower it, or "
                f"wait for more: clients = {self.per_round}"
            )
        return System(N, self.per_round or N, self.local_steps, self.rounds)

    def build(self, N: int, objective: Objective, choice: Choice | None) -> Algorithm:
        """The algorithm for N clients, on whichever side."""
        if choice is not None:
            return choice(self.system(N))
        more = {"compressor": self.compressor} if self.compressor else {}
        options = {**self.options, **more}
        return algorithms.build(self.algorithm, self.system(N), options, sizes=objective.sizes)

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def settings_from(run_config: Mapping[str, Any]) -> Settings:
    """The settings among the keys of a run config; all others are the user's own."""
    hints = get_type_hints(Settings)
    given: dict[str, Any] = {}
    for f in fields(Settings):
        key = f.name.replace("_", "-")
        if f.name != "options" and key in run_config:
            given[f.name] = checked(key, run_config[key], hints[f.name], LEAST.get(f.name))
    given["options"] = {
        key.removeprefix(OPTION): value
        for key, value in run_config.items()
        if key.startswith(OPTION)
    }
    settings = Settings(**given)
    for name in ("deadline", "wait"):
        if getattr(settings, name) <= 0:
            raise ConfigError(f"{name} = {getattr(settings, name):g} must be a positive number")
    if settings.per_round and settings.at_least > settings.per_round:
        raise ConfigError(
            f"at-least = {settings.at_least} exceeds per-round = {settings.per_round}; lower it"
        )
    return settings


def objective_of(
    build_model: Builder, settings: Settings, loss: Loss | None, classes: int | None
) -> Objective:
    """The model as a function of one vector, its first weights named by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(settings.seed, "model").integers(2**31)))
        module = build_model()
    usual = nn.functional.mse_loss if classes is None else nn.functional.cross_entropy
    return Objective(module, loss or usual, "cpu", settings.kernels)
