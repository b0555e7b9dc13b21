"""Linear decay: in round t a tuned method takes 1 - t / T times its step, whichever method it is.

The step that decays is the server's own where a method has one (γ, η_s), otherwise the clients'
(η; of FedSPS its bound η_b), which shortens the server's moves too. Everything else of the method
stays as on its page. A late client works with the step of the round it was sent, the
server with that of the current round.

Wire, memory: the method's. Tuning: the method's, and T must be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tunefree.core import About, Algorithm, Client, Exchange, Server, System, Vec, about


@dataclass(frozen=True)
class Decayed:
    inner: Algorithm

    formulas: ClassVar[Mapping[str, str]] = {"decay": "1 - t / T"}

    @property
    def sys(self) -> System:
        return self.inner.sys

    @property
    def about(self) -> About:
        said = about(self.inner)
        return said._replace(title=f"{said.title}, linear decay")

    def at(self, t: int) -> Algorithm:
        """The method with the steps of round t; the opening has those of round 0."""
        factor = 1 - max(t, 0) / self.sys.T
        steps = {name: factor * getattr(self.inner, name) for name in decaying(self.inner)}
        return replace(self.inner, **steps)

    def server(self, theta0: Vec) -> Server:
        return self.inner.server(theta0)

    def client(self, theta0: Vec) -> Client:
        return self.inner.client(theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return self.inner.opening()

    def round(self) -> tuple[Exchange, ...]:
        """Of round 0; `at` has the others."""
        return self.inner.round()


def decaying(algo: Any) -> list[str]:
    """The steps that decay: an algorithm's value, or its class with the defaults.

    >>> from tunefree.methods.fedopt import FedAdam
    >>> decaying(FedAdam)
    ['eta_s']
    """
    for names in (("gamma", "eta_s"), ("eta", "eta_b")):
        found = [name for name in names if isinstance(getattr(algo, name, None), float)]
        if found:
            return found
    return []
