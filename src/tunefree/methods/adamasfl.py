"""AdaMasFL: normalised steps, momentum and control variates, late clients, nothing to tune.

Yan, Zhong, Wang, Zhang, "Momentum-driven adaptivity: towards tuning-free asynchronous federated
learning", ICML 2025, Algorithms 3 (server) and 4 (client; lines marked c).

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
    c1  receive θ and β c + (1 - β) g as they were τ_i steps ago; θ_i = θ
    c3      g_i = β (∇F(θ_i; ξ) - c_i + c) + (1 - β) g
    c4      θ_i = θ_i - η g_i / ||g_i||                              K times
    c6  upload Δ_i = (θ - θ_i) / (η K) and c_i' = mean of the K gradients of line c3
     3  when S uploads have come:
     6      θ = θ - γ (1/S) Σ Δ_i                                    5: the mean
     7      g = β ((1/S) Σ (c_i' - c_i) + c) + (1 - β) g             with the old c
     8      c = c + (1/N) Σ (c_i' - c_i)                             4: the server's c_i = c_i'
     9  send θ and β c + (1 - β) g

Wire: 2d down, 2d up. Memory: c_i. Tuning: none; the steps are Theorem 2's, and no reply is weighted
by its age. Deviations: line c6 uploads the increment c_i' - c_i, so the server stores no table of N
vectors; a client's next job starts after its upload was used, so that its c_i is the server's. Δ_i
is summed from unit vectors, never found by subtracting models; β is clipped at 1.

Line by line this is PAdaMFed with late clients, so its code is PAdaMFed's: 7 there is c3, 8 is c4,
11 is c6, 14 is 6, 15 is 8, 16 is 7 and 17 is 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About
from tunefree.methods.padamfed import PAdaMFed


@dataclass(frozen=True)
class AdaMasFL(PAdaMFed):
    about: ClassVar[About] = PAdaMFed.about._replace(
        title="AdaMasFL",
        family="asynchronous: normalised, momentum, control variate",
        paper="Yan, Zhong, Wang, Zhang, ICML 2025",
    )
