"""What a federation is told by its run config: the same for the server and its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from tunefree.config import Config, Deployment, deployed, load
from tunefree.errors import ConfigError

Builder: TypeAlias = Callable[[], nn.Module]
OWN = {"data.name": "", "data.partition": "", "run.out": "federation.sqlite"}  # unlike a simulation


class Settings(NamedTuple):
    """What is given, by key, and what only a deployment has."""

    given: Mapping[str, Any]
    own: Deployment

    def at(self, N: int, K: int = 1) -> Config:
        """All settings while N clients are registered; with local epochs K is what it is told."""
        if (S := self.per_round) > N:
            raise ConfigError(
                f"per-round = {S} exceeds the {N} registered clients; lower it, or wait for more: "
                f"clients = {S}"
            )
        config = load(None, {**OWN, **self.given, "system.N": N})
        if config.system.epochs:
            config = replace(config, system=replace(config.system, K=K))
        return config

    def first(self) -> Config:
        """All settings before anybody is registered; N, or K of epochs, is not to be relied on."""
        return self.at(max(1, self.per_round))

    @property
    def by_size(self) -> bool:
        """Whether the server must know how many samples each client holds."""
        system = self.first().system
        return bool(system.epochs) or system.sampling == "examples"

    def for_rounds(self, T: int) -> Settings:
        """The same for so many rounds."""
        return self._replace(given={**self.given, "system.T": T})

    @property
    def per_round(self) -> int:
        """As it is given; 0 where it is not, or is no number and will be refused."""
        S = self.given.get("system.S")
        return S if type(S) is int else 0


def settings_from(run_config: Mapping[str, Any]) -> Settings:
    """The settings among the keys of a run config, once they are possible."""
    settings = Settings(*deployed(run_config))
    settings.first()  # or it says what is wrong
    S, at_least = settings.per_round, settings.own.at_least
    if 0 < S < at_least:
        raise ConfigError(f"at-least = {at_least} exceeds per-round = {S}; lower it")
    return settings
