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
from typing import ClassVar

from tunefree.core import Method, Wrapper, options


@dataclass(frozen=True)
class Decayed(Wrapper):
    words: ClassVar[str] = "linear decay"
    formulas: ClassVar[Mapping[str, str]] = {"decay": "1 - t / T"}

    def at(self, t: int) -> Method:
        """The method with the steps of round t; the opening has those of round 0."""
        factor, steps = 1 - max(t, 0) / self.sys.T, options(self.inner)
        return replace(self.inner, **{name: factor * steps[name] for name in decaying(self.inner)})


def decaying(method: Method) -> list[str]:
    """The steps that decay.

    >>> from tunefree.methods import FedAdam
    >>> decaying(FedAdam())
    ['eta_s']
    """
    given = options(method)
    for names in (("gamma", "eta_s"), ("eta", "eta_b")):
        if found := [name for name in names if isinstance(given.get(name), float)]:
            return found
    return []
