"""The settings in a run config, the same for the server and its clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from tunefree.config import OPTION, Config, Deployment, argument_keys, deployed, load
from tunefree.errors import FLAG, ConfigError, reworded

KEY = re.compile(r"(?<![\w./'\"-])(system|algorithm|data|schedule|run)\.([A-Za-z_]\w*)")
Builder: TypeAlias = Callable[[], nn.Module]
OWN = {
    "data.name": "",
    "data.partition": "",
    "run.out": "federation.sqlite",
}  # defaults unlike a simulation's


class Settings(NamedTuple):
    """The given settings, by key, and those that only a deployment has."""

    given: Mapping[str, Any]
    own: Deployment

    def at(self, N: int, K: int = 1) -> Config:
        """All settings for N registered clients; with local epochs, K is this argument."""
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
        """All settings before any client is registered; N, and K of epochs, are placeholders."""
        return self.at(max(1, self.per_round))

    @property
    def by_size(self) -> bool:
        """Whether the server must know how many samples each client has."""
        system = self.first().system
        return bool(system.epochs) or system.sampling == "examples"

    def for_rounds(self, T: int) -> Settings:
        """The same settings for T rounds."""
        return self._replace(given={**self.given, "system.T": T})

    @property
    def per_round(self) -> int:
        """As given; 0 if it is not given, or is not a number and will be refused."""
        S = self.given.get("system.S")
        return S if type(S) is int else 0


def settings_from(run_config: Mapping[str, Any]) -> Settings:
    """The settings in a run config, checked."""
    settings = Settings(*deployed(run_config))
    with run_config_names():
        settings.first()  # raises an error if they are wrong
    S, at_least = settings.per_round, settings.own.at_least
    if 0 < S < at_least:
        raise ConfigError(f"at-least = {at_least} exceeds per-round = {S}; lower it")
    return settings


def run_config_names() -> AbstractContextManager[None]:
    """Errors name keys of the run config instead of settings keys and command-line flags."""
    return reworded(in_run_config)


def in_run_config(sentence: str) -> str:
    """
    >>> in_run_config("system.T = 0 is too small; raise it (--rounds)")
    'rounds = 0 is too small; raise it (rounds)'
    >>> in_run_config("algorithm.etta = 0.2 is not an option of FedAvg")
    'option.etta = 0.2 is not an option of FedAvg'
    """
    flags = {name.replace("_", "-"): key for name, key in argument_keys().items()}
    names = {key: name for name, key in flags.items()}

    def name(match: re.Match[str]) -> str:
        usual = f"{OPTION}{match[2]}" if match[1] == "algorithm" else match[0]
        return names.get(match[0], usual)

    def flag(match: re.Match[str]) -> str:
        return match[1] if match[1] in flags else match[0]

    return FLAG.sub(flag, KEY.sub(name, sentence))
