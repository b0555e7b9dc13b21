"""The settings in a run config, the same for the server and its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from tunefree.core import Algorithm, Shapes
from tunefree.errors import ConfigError
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.settings import Deployment, Settings, deployed, load

Builder: TypeAlias = Callable[[], nn.Module]
OWN = {  # unlike a simulation's
    "data": "",
    "partition": "",
    "out": "federation.sqlite",
    "commit_every": 1,
}


class RunConfig(NamedTuple):
    """The given settings, by name, and those that only a deployment has."""

    given: Mapping[str, Any]
    own: Deployment

    def at(self, N: int) -> Settings:
        """All settings for N registered clients."""
        if (S := self.per_round) > N:
            raise ConfigError(
                f"exceeds the {N} registered clients",
                f"lower it, or wait for more: {{clients}} = {S}",
                setting="per_round",
                value=S,
            )
        fixed = {"per_round": S} if S else {}
        return load(None, {**OWN, **self.given, **fixed, "clients": N})

    def algorithm(self, N: int, K: int, shapes: Shapes, make: Maker | None) -> Algorithm:
        """The algorithm for N clients; with local epochs, of K local steps in the mean."""
        now = self.at(N)
        return registry.configure(now, now.system_of(K), shapes, make)

    def first(self) -> Settings:
        """All settings before any client is registered; the number of clients is a placeholder."""
        return self.at(max(1, self.per_round))

    @property
    def by_size(self) -> bool:
        """Whether the server must know how many samples each client has."""
        settings = self.first()
        by_size = bool(settings.local_epochs) or "examples" in (
            settings.sampling,
            settings.weighting,
        )
        return by_size and not settings.epsilon

    @property
    def per_round(self) -> int:
        """As given; 0 if it is not given, or is not a number and will be refused.

        With privacy it is the same however many clients come: sums are divided by it.
        """
        S = self.given.get("per_round")
        if self.given.get("epsilon") and S in (None, 0):
            return self.own.clients if S == 0 else min(Settings.per_round, self.own.clients)
        return S if type(S) is int else 0


def settings_from(run_config: Mapping[str, Any]) -> RunConfig:
    """The settings in a run config, checked."""
    settings = RunConfig(*deployed(run_config))
    settings.first()  # raises an error if they are wrong
    S, at_least = settings.per_round, settings.own.at_least
    if 0 < S < at_least:
        raise ConfigError(
            f"exceeds {{per_round}} = {S}", "lower it", setting="at_least", value=at_least
        )
    return settings
