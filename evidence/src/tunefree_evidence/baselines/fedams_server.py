"""FedAMS (server): AMSGrad on the server, local SGD on the clients.

Wang, Lin, Chen, "Communication-efficient adaptive federated learning", ICML 2022 (lines numbered
by us; η and η_s are the paper's η_l and η).

     1  require θ^0; m = v = 0; v_max = ε
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = θ - θ_i
     5  D = mean_i Δ_i;  m = β1 m + (1 - β1) D;  v = β2 v + (1 - β2) D^2
     6  v_max = max(v_max, v, ε);  θ = θ - η_s m / sqrt(v_max)       option "1"
        v_max = max(v_max, v);  θ = θ - η_s m / (sqrt(v_max) + ε)    option "2"
     7  download θ

Wire: d down, d up. Memory: none. Tuning: η and η_s (and ε).
Deviations: D points downhill, so it is subtracted; β1 and β2 weight the old term, unlike our β.
`bias_correction = "on"` divides m and v by 1 - β1^t and 1 - β2^t before line 6, as Adam does; that
the authors' code corrects is known to us, how exactly is our reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD


class Server(NamedTuple):
    theta: Vec
    m: Vec
    v: Vec
    v_max: Vec
    t: int


@dataclass(frozen=True)
class FedAMSServer(LocalSGD):  # 2, 3, 4, 7
    eta: float = 0.01
    eta_s: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3
    option: Literal["1", "2"] = "1"
    bias_correction: Literal["off", "on"] = "off"

    about: ClassVar[About] = About(
        title="FedAMS (server)",
        family="adaptive server",
        paper="Wang, Lin, Chen, ICML 2022",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "eta_s": (1e-2, 3e-2, 1e-1, 3e-1, 1.0)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        zero = 0 * theta0
        return Server(theta0, m=zero, v=zero, v_max=zero + self.epsilon, t=0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        beta1, beta2, epsilon, t = self.beta1, self.beta2, self.epsilon, s.t + 1
        D = mean(r.up.delta for r in replies)
        m, v = beta1 * s.m + (1 - beta1) * D, beta2 * s.v + (1 - beta2) * D * D  # 5
        m_t, v_t = m, v
        if self.bias_correction == "on":
            m_t, v_t = m / (1 - beta1**t), v / (1 - beta2**t)
        v_max = s.v_max.maximum(v_t)  # 6; it starts at ε, so it stays above
        below = v_max.sqrt() + (epsilon if self.option == "2" else 0.0)
        return Server(s.theta - self.eta_s * m_t / below, m, v, v_max, t)
